"""Learned maps back to the input embeddings."""

from __future__ import annotations

import pytest
import torch

import prosect
from prosect.engines.learned import lost, ridge, trained
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


def linear_data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return x, x @ weight + 0.5


def test_ridge_finds_a_linear_map_in_closed_form() -> None:
    x, y = linear_data()
    x_valid, y_valid = linear_data(1)
    g = ridge(x, y, x_valid, lambda guess: lost(guess, y_valid, "l2"))
    with torch.no_grad():
        assert float(lost(g(x_valid), y_valid, "l2")) < 1e-8


@pytest.mark.parametrize("loss", ["cosine", "l2"])
@pytest.mark.parametrize("shape", ["linear", "mlp"])
def test_training_comes_near_and_is_repeatable(shape: str, loss: str) -> None:
    x, y = linear_data()
    x_valid, y_valid = linear_data(1)
    options = {"seed": 3, "epochs": 60, "patience": 10, "rate": 1e-2, "batch": 64}

    def fit() -> torch.Tensor:
        g = trained(shape, x, y, x_valid, y_valid, loss, **options)
        with torch.no_grad():
            return g(x_valid)

    first = fit()
    assert torch.equal(first, fit())
    untrained = lost(torch.zeros_like(y_valid) + 1e-3, y_valid, loss)
    assert float(lost(first, y_valid, loss)) < 0.2 * float(untrained)


def test_training_stops_when_it_brings_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch is a little better than the last, and only those of a hundredth count."""
    calls = []
    losses = [1.0, 0.5, *(0.499 - 1e-4 * i for i in range(100))]

    def told(guess: torch.Tensor, wanted: torch.Tensor, loss: str) -> torch.Tensor:
        if guess.requires_grad:
            return (guess - wanted).square().mean()
        calls.append(loss)
        return torch.tensor(losses[len(calls) - 1])

    monkeypatch.setattr("prosect.engines.learned.lost", told)
    x, y = linear_data()
    options = {"seed": 0, "epochs": 100, "rate": 1e-2, "batch": 300}
    g = trained("linear", x, y, x, y, "l2", patience=4, **options)
    assert len(calls) == 2 + 4
    again = trained("linear", x, y, x, y, "l2", patience=100, **{**options, "epochs": 6})
    # the last epoch was the best, though it did not count
    assert torch.equal(g(x), again(x))


def test_the_losses_follow_their_definitions() -> None:
    a, b = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    assert float(lost(a, b, "cosine")) == pytest.approx(0.5)
    assert float(lost(a, b, "l2")) == pytest.approx(2.0)


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
    with pytest.raises(prosect.ProsectError, match="no shape 'cubic'"):
        prosect.learn_identity(lens, TEXTS, "cubic")
    with pytest.raises(prosect.ProsectError, match="no loss 'dot'"):
        prosect.learn_identity(lens, TEXTS, loss="dot")
    with pytest.raises(prosect.ProsectError, match="at least 10 texts, not 3"):
        prosect.learn_identity(lens, TEXTS[:3])
    with pytest.raises(prosect.ProsectError, match="not one text"):
        prosect.learn_identity(lens, TEXTS[0])
    refused = [
        ({"seeds": 0}, "seeds is a whole number above 0, not 0"),
        ({"seeds": -1}, "seeds is a whole number above 0, not -1"),
        ({"seeds": 1.5}, "seeds is a whole number above 0, not 1.5"),
        ({"seeds": "a"}, "seeds is a whole number above 0, not 'a'"),
        ({"rate": float("nan")}, "rate is a number above 0, not nan"),
        ({"rate": "fast"}, "rate is a number above 0, not 'fast'"),
        ({"batch": 2.5}, "batch is a whole number above 0, not 2.5"),
        ({"rate": -1.0}, "rate is a number above 0, not -1.0"),
        ({"shape": "ridge", "epochs": 3}, "epochs is of the training by Adam"),
    ]
    for options, message in refused:
        with pytest.raises(prosect.ProsectError, match=message):
            prosect.learn_identity(lens, TEXTS, **options)
    with pytest.raises(prosect.ProsectError, match="learn_identity takes a Lens, not Trace"):
        prosect.learn_identity(lens.trace("a river"), TEXTS)


def test_a_mistake_names_words_of_the_vocabulary_alike() -> None:
    lens = random_lens("gpt2", torch.float32)
    found = prosect.learn_identity(lens, TEXTS, "ridge", candidates="vocabulary")
    words = vocabulary_labels(range(lens.anatomy.words.num_embeddings), lens.tokenizer)
    assert found.mistakes
    for mistake in found.mistakes:
        assert {mistake.token, mistake.taken_for} <= set(words)
        assert mistake.token != mistake.taken_for
