"""The experiments of "How to Dissect a Muppet" on real text, with MiniLM instead of BERT.

    python benchmarks/muppet.py DATA [--only importance wsd ...] [--out build/muppet]

DATA is a folder with europarl/europarl.en (one sentence per line), semcor/*.tsv (a table of words
with lemma and lexical_key) and wnut17/wnut17train.conll and emerging.dev.conll (one word and its tag
per line). Every table is printed with the computing time. Results (JSON), figures (PDF) and finished
shards are written to the folder --out, so that an interrupted run can be resumed.

Named entities use three seeds instead of five, as each seed trains thirty heads. The tuned model is
MiniLM fine-tuned for three epochs on the named entities of the training file.
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
    arguments = parser.parse_args()
    if arguments.data is None:
        print("DATA must be a folder with texts: python benchmarks/muppet.py DATA (see --help)")
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    pd.set_option("display.width", 160, "display.max_columns", 20, "display.max_rows", 200)
    for name in arguments.only:
        started = time.perf_counter()
        print(f"\n== {name}")
        EXPERIMENTS[name](arguments.data, arguments.out)
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)


def save(result: corpus.Result, out: Path, name: str) -> None:
    result.save(out / f"{name}.json")
    result.figure().savefig(out / f"{name}.pdf")
    print(result)


# --- models and texts -----------------------------------------------------------------------------


def europarl(data: Path) -> Path:
    return data / "europarl" / "europarl.en"


def entities(data: Path) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """The training sentences, and those of the development file, which are the test sentences."""
    folder = data / "wnut17"
    return conll(folder / "wnut17train.conll"), conll(folder / "emerging.dev.conll")


def tuned(data: Path, out: Path) -> prosect.Lens:
    """MiniLM fine-tuned for named entities, read from its folder after the first time."""
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
    label_maps = {
        "id2label": dict(enumerate(labels)),
        "label2id": {t: i for i, t in enumerate(labels)},
    }
    config = BertConfig.from_dict({**lens.model.config.to_dict(), **label_maps})
    model = BertForTokenClassification(config)
    model.bert.load_state_dict(lens.model.state_dict(), strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    model.train()
    for epoch in range(EPOCHS):
        loss_sum = 0.0
        for indices in torch.randperm(len(sentences)).split(BATCH):
            batch = [sentences[i] for i in indices.tolist()]
            inputs = lens.tokenizer(
                [text_of(s) for s in batch],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
                return_offsets_mapping=True,
            )
            targets = torch.full(inputs["input_ids"].shape, -100)
            for row, (sentence, offsets) in enumerate(
                zip(batch, inputs.pop("offset_mapping").tolist(), strict=True)
            ):
                starts = {start: i for i, (start, end) in enumerate(offsets) if end > start}
                for (start, _), tag in zip(spans_of(sentence), bio(sentence.tags), strict=True):
                    if start in starts:  # the first token of a word has its tag
                        targets[row, starts[start]] = labels.index(tag)
            loss = model(**inputs, labels=targets).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item()
        print(
            f"  tuning, epoch {epoch + 1}: loss {loss_sum / (len(sentences) / BATCH):.3f}",
            flush=True,
        )
    return model.eval()


# --- experiments ----------------------------------------------------------------------------------


def importance(data: Path, out: Path) -> None:
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    result = corpus.importance(models, europarl(data), checkpoint=out / "shards")
    print(result.compare().round(3))
    save(result, out, "importance")


def linear_ff(data: Path, out: Path) -> None:
    result = corpus.linear_ff("minilm", europarl(data), checkpoint=out / "shards")
    print(result.compare().round(3))
    save(result, out, "linear_ff")


def correlation(data: Path, out: Path) -> None:
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    result = corpus.correlation(models, europarl(data), checkpoint=out / "shards")
    print(result.to_frame().round(3))
    save(result, out, "correlation")


def wsd(data: Path, out: Path) -> None:
    (table,) = (data / "semcor").glob("*.tsv")
    result = corpus.wsd("minilm", sense_table(table), folds=10, checkpoint=out / "shards")
    print(result.to_frame().round(3))
    save(result, out, "wsd")


def ner(data: Path, out: Path) -> None:
    train, test = entities(data)
    models = {"MiniLM": prosect.load("minilm"), "MiniLM tuned": tuned(data, out)}
    result = corpus.ner(models, train, test=test, seeds=3, checkpoint=out / "shards")
    print(result.to_frame().round(3))
    save(result, out, "ner")


EXPERIMENTS: dict[str, Callable[[Path, Path], None]] = {
    "importance": importance,
    "linear_ff": linear_ff,
    "correlation": correlation,
    "wsd": wsd,
    "ner": ner,
}

if __name__ == "__main__":
    main()
