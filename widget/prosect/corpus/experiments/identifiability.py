"""Token identifiability after a learned map, over many texts (Brunner et al. 2020, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import TypedDict, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from prosect.corpus.experiments.hidden_states import (
    Candidates,
    HiddenStates,
    part_sizes,
    split_hidden_states,
)
from prosect.engines import learned
from prosect.engines.learned import Loss, Shape
from prosect.errors import ProsectError
from prosect.lens import Lens
from prosect.modes import plain_arithmetic
from prosect.validation import check_count, check_known

MIN_TEXTS = 10
"""The minimal number of texts."""


@dataclass(frozen=True)
class Mistake:
    """A token of the test texts for which another candidate was nearer.

    Attributes
    ----------
    layer
        The hidden state, from 0 for the input embeddings.
    token, taken_for
        The labels of the token and of the nearest candidate: labels of the text's tokens, or of
        vocabulary entries if the candidates are the vocabulary.
    """

    layer: int
    token: str
    taken_for: str


@dataclass(frozen=True, eq=False, repr=False)
class Identifiability:
    """The share of tokens of held-out texts that are recovered from their hidden vectors.

    Attributes
    ----------
    recovered
        [seed, layer+1], the share of test tokens whose own input embedding is the nearest to g(e);
        one row for "ridge", which has no seed.
    unmapped
        [layer+1], the same share without a map.
    transfer
        [layer+1, layer+1], the mean share over seeds with g trained at one layer (row) and applied
        at another (column).
    mistakes
        The tokens that were not recovered, for the last seed, with g applied where it was trained.
    texts
        The numbers of training, validation and test texts.
    """

    recovered: Float[Tensor, "seed layer+1"]
    unmapped: Float[Tensor, "layer+1"]
    transfer: Float[Tensor, "layer+1 layer+1"]
    mistakes: list[Mistake]
    shape: Shape
    loss: Loss
    candidates: Candidates
    texts: tuple[int, int, int]

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.2f}" for share in self.recovered.mean(0).tolist())
        return f"Identifiability({self.shape}, {self.loss}: recovered by layer {shares})"


class _AdamOptions(TypedDict):
    epochs: int
    patience: int
    rate: float
    batch: int


_ADAM_DEFAULTS: _AdamOptions = {"epochs": 100, "patience": 5, "rate": 1e-3, "batch": 256}


@plain_arithmetic()
def learn_identity(
    lens: Lens,
    texts: Iterable[str],
    shape: Shape = "linear",
    *,
    loss: Loss = "cosine",
    candidates: Candidates = "sentence",
    seeds: int = 3,
    epochs: int = 100,
    patience: int = 5,
    rate: float = 1e-3,
    batch: int = 256,
    progress: bool = False,
) -> Identifiability:
    """Fit a map g from each layer's hidden vectors to the input embeddings, and test its recovery.

    Texts are split 70/15/15 into training, validation and test with a fixed seed. The map of the
    epoch with the lowest validation loss is evaluated on the test texts.

    Parameters
    ----------
    lens
        The model.
    texts
        At least ten texts; a few hundred sentences give stable results.
    shape
        "ridge": linear, in closed form. "linear": linear, by Adam. "mlp": one hidden layer, by Adam.
    loss
        "cosine" or "l2", which also compares candidates.
    candidates
        "sentence": the input embeddings of the token's own text. "vocabulary": all word embeddings.
    seeds
        The number of trainings with different initial weights and order; "ridge" is fitted once.
    epochs, patience, rate, batch
        The options of the training by Adam. It stops after ``patience`` epochs that together reduce
        the validation loss by less than one hundredth.
    progress
        Whether to show progress bars over texts, and over layers and seeds.

    Raises
    ------
    ProsectError
        If an argument is out of range, or there are fewer than ten texts.
    """
    check_known(shape, get_args(Shape), "shape")
    check_known(loss, get_args(Loss), "loss")
    check_known(candidates, get_args(Candidates), "candidates")
    if not isinstance(lens, Lens):
        raise ProsectError(f"lens must be a Lens, got {type(lens).__name__}.")
    options: _AdamOptions = {
        "epochs": epochs,
        "patience": patience,
        "rate": rate,
        "batch": batch,
    }
    _check_training(seeds, shape, options)
    strings = _checked_texts(texts)
    train, valid, test = split_hidden_states(lens, strings, progress)
    seeds = 1 if shape == "ridge" else seeds
    layers = len(train.hidden)
    truth = test.true_candidates(candidates)
    transfer = torch.zeros(seeds, layers, layers)
    mistakes: list[Mistake] = []
    with tqdm(total=seeds * layers, unit="map", disable=not progress) as bar:
        for seed in range(seeds):
            for layer in range(layers):
                g = learned.trained(
                    shape,
                    train.hidden[layer],
                    train.hidden[0],
                    valid.hidden[layer],
                    valid.hidden[0],
                    loss,
                    seed=seed,
                    **options,
                )
                nearest = test.nearest_candidates(lens, g, loss, candidates)
                correct = nearest == truth
                transfer[seed, layer] = correct.float().mean(-1)
                if seed == seeds - 1:
                    mistakes += _mistakes(
                        lens, test, layer, nearest[layer], correct[layer], candidates
                    )
                bar.update()
    unmapped = test.nearest_candidates(lens, nn.Identity(), loss, candidates) == truth
    return Identifiability(
        recovered=transfer.diagonal(dim1=1, dim2=2).clone(),
        unmapped=unmapped.float().mean(-1),
        transfer=transfer.mean(0),
        mistakes=mistakes,
        shape=shape,
        loss=loss,
        candidates=candidates,
        texts=part_sizes(len(strings)),
    )


def _check_training(seeds: int, shape: Shape, options: _AdamOptions) -> None:
    check_count(seeds, "seeds")
    for name in ("epochs", "patience", "batch"):
        check_count(options[name], name)
    rate = options["rate"]
    is_number = isinstance(rate, Real) and not isinstance(rate, bool)
    if not is_number or not 0 < float(rate) < math.inf:
        raise ProsectError(f"rate must be a finite number above 0, got {rate!r}.")
    changed = [name for name, value in options.items() if value != _ADAM_DEFAULTS[name]]
    if shape == "ridge" and changed:
        raise ProsectError(
            f"{changed[0]} must be left out with shape='ridge', which is fitted in closed form "
            f"without training, got {options[changed[0]]}."
        )


def _checked_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise ProsectError("texts must be a list of strings, got one string.")
    strings = list(texts)
    if len(strings) < MIN_TEXTS:
        raise ProsectError(f"texts must contain at least {MIN_TEXTS} texts, got {len(strings)}.")
    return strings


def _mistakes(
    lens: Lens,
    test: HiddenStates,
    layer: int,
    nearest: Int[Tensor, "token"],
    correct: Bool[Tensor, "token"],
    candidates: Candidates,
) -> list[Mistake]:
    """The test tokens of one layer that were not recovered."""
    wrong = ~correct
    truth = test.true_candidates(candidates)[wrong].tolist()
    taken_for = nearest[wrong].tolist()
    labels = (test.candidate_labels(lens, indices, candidates) for indices in (truth, taken_for))
    return [Mistake(layer, *pair) for pair in zip(*labels, strict=True)]
