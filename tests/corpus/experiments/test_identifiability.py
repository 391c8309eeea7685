"""Token identifiability after a learned map."""

from __future__ import annotations

import pytest
import torch

import prosect
from prosect.tokens import vocabulary_labels
from support.families import random_lens

WORDS = [
    "river",
    "bank",
    "rates",
    "road",
    "mother",
    "ducklings",
    "telegram",
    "Thursday",
    "nobody",
    "behind",
]
TEXTS = [" ".join(WORDS[i % 10 :] + WORDS[: i % 10][: i % 7]) + "." for i in range(40)]


@pytest.mark.parametrize("candidates", ["sentence", "vocabulary"])
def test_tokens_are_recovered_at_layer_0_and_shares_are_what_transfer_says(candidates: str) -> None:
    lens = random_lens("gpt2", torch.float32)
    found = prosect.learn_identity(lens, TEXTS, "ridge", loss="l2", candidates=candidates, seeds=2)
    assert found.texts == (28, 6, 6)
    assert found.recovered.shape == (1, 4)  # a closed form has no seeds
    if candidates == "sentence":
        assert found.unmapped[0] == 1
        assert (found.recovered[:, 0] == 1).all()
    torch.testing.assert_close(found.transfer.diagonal(), found.recovered.mean(0))
    assert all(0 <= mistake.layer <= 3 for mistake in found.mistakes)
    lost_at_the_end = sum(mistake.layer == 3 for mistake in found.mistakes)
    assert (lost_at_the_end == 0) == (float(found.recovered[-1, -1]) == 1.0)


def test_a_text_that_cannot_be_read_is_named_by_its_place() -> None:
    lens = random_lens("gpt2")
    with pytest.raises(prosect.ProsectError, match="Text 7"):
        prosect.learn_identity(lens, [*TEXTS[:7], "", *TEXTS[7:]], "ridge")


def test_odd_arguments_are_refused_with_a_sentence() -> None:
    lens = random_lens("gpt2")
    with pytest.raises(prosect.ProsectError, match=r"shape must be one of .*, got 'cubic'"):
        prosect.learn_identity(lens, TEXTS, "cubic")
    with pytest.raises(prosect.ProsectError, match=r"loss must be one of .*, got 'dot'"):
        prosect.learn_identity(lens, TEXTS, loss="dot")
    with pytest.raises(prosect.ProsectError, match="at least 10 texts, got 3"):
        prosect.learn_identity(lens, TEXTS[:3])
    with pytest.raises(prosect.ProsectError, match="got one string"):
        prosect.learn_identity(lens, TEXTS[0])
    refused = [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": -1}, "seeds must be at least 1, got -1"),
        ({"seeds": 1.5}, "seeds must be an integer, got 1.5"),
        ({"seeds": "a"}, "seeds must be an integer, got 'a'"),
        ({"rate": float("nan")}, "rate must be a finite number above 0, got nan"),
        ({"rate": "fast"}, "rate must be a finite number above 0, got 'fast'"),
        ({"batch": 2.5}, "batch must be an integer, got 2.5"),
        ({"rate": -1.0}, "rate must be a finite number above 0, got -1.0"),
        ({"shape": "ridge", "epochs": 3}, "epochs must be left out with shape='ridge'"),
    ]
    for options, message in refused:
        with pytest.raises(prosect.ProsectError, match=message):
            prosect.learn_identity(lens, TEXTS, **options)
    with pytest.raises(prosect.ProsectError, match="lens must be a Lens, got Trace"):
        prosect.learn_identity(lens.trace("a river"), TEXTS)


def test_a_mistake_names_words_of_the_vocabulary_alike() -> None:
    lens = random_lens("gpt2", torch.float32)
    found = prosect.learn_identity(lens, TEXTS, "ridge", candidates="vocabulary")
    words = vocabulary_labels(range(lens.anatomy.words.num_embeddings), lens.tokenizer)
    assert found.mistakes
    for mistake in found.mistakes:
        assert {mistake.token, mistake.taken_for} <= set(words)
        assert mistake.token != mistake.taken_for
