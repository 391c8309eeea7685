"""The experiments of "How to Dissect a Muppet" on real text, with MiniLM in the place of BERT.

    python benchmarks/muppet.py DATA [--only importance wsd ...] [--out build/muppet]

DATA is a folder with europarl/europarl.en (a sentence a line), semcor/*.tsv (a table of words with
lemma and lexical_key) and wnut17/wnut17train.conll and emerging.dev.conll (a word and its tag a
line). Every table is printed with the time it took; results (JSON) and figures (PDF) go to the
folder that --out names, finished work too, so that a run that was stopped goes on.

Named entities take three seeds instead of five: there are thirty heads to learn for each. The
tuned model is MiniLM with three epochs of named entities from the training file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from transformers import BertConfig, BertForTokenClassification

import prosect
from prosect import corpus
from prosect.corpus.data.readers import TaggedSentence, bio, conll, sense_table, spans_of, text_of

EPOCHS, RATE, BATCH = 3, 5e-5, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="the folder with the texts")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--out", type=Path, default=Path("build/muppet"))
    given = parser.parse_args()
    if given.data is None:
        print("Real text is needed: python benchmarks/muppet.py DATA (see --help)")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    pd.set_option("display.width", 160, "display.max_columns", 20, "display.max_rows", 200)
    for name in given.only:
        started = time.perf_counter()
        print(f"\n== {name}")
        EXPERIMENTS[name](given.data, given.out)
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)


def keep(result: corpus.Result, out: Path, name: str) -> None:
    result.save(out / f"{name}.json")
    result.figure().savefig(out / f"{name}.pdf")
    print(result)


# --- models and texts -----------------------------------------------------------------------------


def europarl(data: Path) -> Path:
    return data / "europarl" / "europarl.en"


def entities(data: Path) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """The training sentences, and those of the development file, which are the test here."""
    folder = data / "wnut17"
    return conll(folder / "wnut17train.conll"), conll(folder / "emerging.dev.conll")


def tuned(data: Path, out: Path) -> prosect.Lens:
    """MiniLM tuned for named entities; once made it is read from where it was kept."""
    lens = prosect.load("minilm")
    folder = out / "tuned"
    if not (folder / "config.json").exists():
        model = fine_tuned(lens, entities(data)[0])
        model.save_pretrained(folder)
        lens.tokenizer.save_pretrained(folder)
    model = BertForTokenClassification.from_pretrained(folder)
    return prosect.Lens(model, lens.tokenizer, name="MiniLM tuned for entities")


def fine_tuned(lens: prosect.Lens, sentences: list[TaggedSentence]) -> BertForTokenClassification:
    labels = sorted({tag for sentence in sentences for tag in bio(sentence.tags)})
    torch.manual_seed(0)
    named = {"id2label": dict(enumerate(labels)), "label2id": {t: i for i, t in enumerate(labels)}}
    config = BertConfig.from_dict({**lens.model.config.to_dict(), **named})
    model = BertForTokenClassification(config)
    model.bert.load_state_dict(lens.model.state_dict(), strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    model.train()
    for epoch in range(EPOCHS):
        lost = 0.0
        for chosen in torch.randperm(len(sentences)).split(BATCH):
            batch = [sentences[i] for i in chosen.tolist()]
            inputs = lens.tokenizer(
                [text_of(s) for s in batch],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
                return_offsets_mapping=True,
            )
            wanted = torch.full(inputs["input_ids"].shape, -100)
            for row, (sentence, offsets) in enumerate(
                zip(batch, inputs.pop("offset_mapping").tolist(), strict=True)
            ):
                starts = {start: i for i, (start, end) in enumerate(offsets) if end > start}
                for (start, _), tag in zip(spans_of(sentence), bio(sentence.tags), strict=True):
                    if start in starts:  # the first piece of the word carries its tag
                        wanted[row, starts[start]] = labels.index(tag)
            loss = model(**inputs, labels=wanted).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lost += loss.item()
        print(
            f"  tuning, epoch {epoch + 1}: loss {lost / (len(sentences) / BATCH):.3f}", flush=True
        )
    return model.eval()


# --- experiments ----------------------------------------------------------------------------------


def importance(data: Path, out: Path) -> None:
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    found = corpus.importance(models, europarl(data), checkpoint=out / "shards")
    print(found.compare().round(3))
    keep(found, out, "importance")


def linear_ff(data: Path, out: Path) -> None:
    found = corpus.linear_ff("minilm", europarl(data), checkpoint=out / "shards")
    print(found.compare().round(3))
    keep(found, out, "linear_ff")


def correlation(data: Path, out: Path) -> None:
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    found = corpus.correlation(models, europarl(data), checkpoint=out / "shards")
    print(found.to_frame().round(3))
    keep(found, out, "correlation")


def wsd(data: Path, out: Path) -> None:
    (table,) = (data / "semcor").glob("*.tsv")
    found = corpus.wsd("minilm", sense_table(table), folds=10, checkpoint=out / "shards")
    print(found.to_frame().round(3))
    keep(found, out, "wsd")


def ner(data: Path, out: Path) -> None:
    train, test = entities(data)
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    found = corpus.ner(models, train, test=test, seeds=3, checkpoint=out / "shards")
    print(found.to_frame().round(3))
    keep(found, out, "ner")


EXPERIMENTS: dict[str, Callable[[Path, Path], None]] = {
    "importance": importance,
    "linear_ff": linear_ff,
    "correlation": correlation,
    "wsd": wsd,
    "ner": ner,
}

if __name__ == "__main__":
    main()
