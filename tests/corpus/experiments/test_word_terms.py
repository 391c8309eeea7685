from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import prosect
from corpus.annotated import names, senses
from prosect.corpus.data.readers import Sentence, TaggedSentence, spans_of, text_of
from prosect.corpus.data.words import WordRequest
from prosect.corpus.experiments.word_terms import word_vectors
from support.families import FAMILIES, PAIRS, random_lens


def items(sentences: Any) -> list[WordRequest]:
    return [
        WordRequest(n, text_of(s), tuple(range(len(s.words))), spans_of(s))
        for n, s in enumerate(sentences)
    ]


def plainly(lens: prosect.Lens, sentence: Sentence, word: int, state: int) -> torch.Tensor | None:
    """The sum of the terms of the tokens that share a character with the word."""
    start = len(" ".join([*sentence.words[:word], ""]))
    place = set(range(start, start + len(sentence.words[word])))
    trace = lens.trace(" ".join(sentence.words))
    own = [
        i
        for i, token in enumerate(trace.tokens)
        if token.span is not None and place & set(range(*token.span))
    ]
    return trace.terms().values[:, state, own].sum(1) if own else None


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in PAIRS])
def test_a_word_is_the_sum_of_the_terms_of_its_tokens(family: str) -> None:
    lens = random_lens(family)
    sentences = [senses()[5], senses()[6], names()[8]]
    found = word_vectors(lens, items(sentences), -1, batch=2, progress=False)
    terms = found.terms[family]
    assert found.names[family] == lens.trace("a").terms().names
    assert found.sentences == [0, 1, 2]
    expected = {
        (s, w): plainly(lens, sentence, w, -1)
        for s, sentence in enumerate(sentences)
        for w in range(len(sentence.words))
    }
    read = {place: vector for place, vector in expected.items() if vector is not None}
    assert found.positions == list(read)
    assert found.missing == len(expected) - len(read)
    wanted = torch.stack(list(read.values()), 1)
    tolerance = 1e-5 if wanted.dtype == torch.float32 or FAMILIES[family].float32_norms else 1e-9
    torch.testing.assert_close(terms, wanted, rtol=tolerance, atol=tolerance)


def test_any_hidden_state_can_be_asked_for() -> None:
    lens = random_lens("bert")
    sentence = names()[0]
    for state in (0, 2, -2):
        found = word_vectors(lens, items([sentence]), state, progress=False)
        expected = plainly(lens, sentence, 1, state)
        torch.testing.assert_close(found.terms["bert"][:, 1], expected)
    for state in (4, -5):
        with pytest.raises(
            prosect.ProsectError, match=f"state must be between -4 and 3, as bert .*, got {state}"
        ):
            word_vectors(lens, items([sentence]), state, progress=False)


def test_words_do_not_depend_on_how_the_work_was_cut(tmp_path: Path) -> None:
    lens, wanted = random_lens("gpt2"), items(names())
    whole = word_vectors(lens, wanted, -1, progress=False)
    with ThreadPoolExecutor(2) as pool:
        for options in (
            {"batch": 3, "shard": 4},
            {"batch": 3, "shard": 6, "checkpoint": tmp_path},
            {"batch": 3, "shard": 6, "checkpoint": tmp_path},
            {"batch": 5, "shard": 5, "executor": pool},
        ):
            cut = word_vectors(lens, wanted, -1, progress=False, **options)
            assert cut.positions == whole.positions
            torch.testing.assert_close(cut.terms["gpt2"], whole.terms["gpt2"])


def test_words_and_sentences_that_cannot_be_read_are_left_out_and_counted() -> None:
    lens = random_lens("bert")
    sentences = [
        TaggedSentence(("\u200b", "Grace", "\xa0", "left"), ("O",) * 4),
        TaggedSentence(("so",) * 80, ("O",) * 80),
        TaggedSentence(("\u200b", "\xa0"), ("O",) * 2),
        TaggedSentence(("[SEP]", "saw", "</s>"), ("O",) * 3),
    ]
    found = word_vectors(lens, items(sentences), -1, progress=False)
    assert found.positions == [(0, 1), (0, 3), (3, 0), (3, 1), (3, 2)]
    assert found.sentences == [0, 3]
    assert found.missing == 2
    assert found.outcomes["bert"].skipped >= 1
    torch.testing.assert_close(found.terms["bert"][:, 2], plainly(lens, sentences[3], 0, -1))


def test_models_are_compared_on_the_words_that_all_have_read() -> None:
    sentences = [
        TaggedSentence(("\u200b", "Grace"), ("O",) * 2),
        TaggedSentence(("ab" * 30, "left"), ("O",) * 2),
    ]
    lenses = {"one": random_lens("bert"), "other": random_lens("gpt2")}
    alone = {
        name: word_vectors(lens, items(sentences), -1, progress=False).positions
        for name, lens in lenses.items()
    }
    assert alone["one"] != alone["other"]
    found = word_vectors(lenses, items(sentences), -1, progress=False)
    assert found.positions == sorted(set(alone["one"]) & set(alone["other"]))
    for name, lens in lenses.items():
        expected = [plainly(lens, sentences[s], w, -1) for s, w in found.positions]
        assert all(vector is not None for vector in expected)
        torch.testing.assert_close(found.terms[name], torch.stack(expected, 1))


def test_terms_are_kept_in_the_precision_of_the_trace() -> None:
    for dtype in (torch.float64, torch.float32):
        found = word_vectors(random_lens("bert", dtype), items(names()[:2]), -1, progress=False)
        assert found.terms["bert"].dtype == dtype
    assert found.outcomes["bert"].arrays["positions"].dtype.kind == "i"
    assert np.array_equal(found.outcomes["bert"].arrays["positions"], found.positions)
