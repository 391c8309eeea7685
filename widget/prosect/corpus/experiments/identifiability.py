"""Token identifiability after a learned map, over many texts (Brunner et al. 2020, section 3)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm.auto import tqdm

from prosect.analyses import identity as analysis
from prosect.engines import learned, nearest
from prosect.engines.learned import Loss, Shape
from prosect.errors import ProsectError
from prosect.lens import Lens
from prosect.tokens import Token, vocabulary_labels

SPLIT = (0.70, 0.15, 0.15)
"""Training, validation and test texts, as in the paper."""
TRAINING = {"epochs": 100, "patience": 5, "rate": 1e-3, "batch": 256}
"""Of Adam, if nothing else is said."""


@dataclass(frozen=True)
class Mistake:
    """A token of the test texts that was taken for another.

    Attributes
    ----------
    layer
        The hidden state.
    token, taken_for
        The labels: those of the text's tokens, or with the vocabulary those of its words.
    """

    layer: int
    token: str
    taken_for: str


@dataclass(frozen=True, eq=False, repr=False)
class Identifiability:
    """How well tokens of held-out texts are recovered from their hidden vectors.

    Attributes
    ----------
    recovered
        [seed, layer+1], the share of test tokens whose own input embedding is the nearest to g(e);
        one row for "ridge", which has no seed.
    unmapped
        [layer+1], the same without any map.
    transfer
        [layer+1, layer+1], the mean over seeds with g trained at one layer (row), used at another.
    mistakes
        Of the last seed, with g trained where it is used: which token each lost one became.
    texts
        How many texts were in training, validation and test.
    """

    recovered: Float[Tensor, "seed layer+1"]
    unmapped: Float[Tensor, "layer+1"]
    transfer: Float[Tensor, "layer+1 layer+1"]
    mistakes: list[Mistake]
    shape: Shape
    loss: Loss
    candidates: str
    texts: tuple[int, int, int]

    def __repr__(self) -> str:
        shares = ", ".join(f"{share:.2f}" for share in self.recovered.mean(0).tolist())
        return f"Identifiability({self.shape}, {self.loss}: recovered by layer {shares})"


@dataclass(frozen=True)
class _Texts:
    """The hidden states of some texts side by side, and where each token's candidates are."""

    hidden: Float[Tensor, "layer+1 token d"]
    starts: Tensor
    ids: Tensor
    labels: list[str]


def learn_identity(
    lens: Lens,
    texts: Iterable[str],
    shape: Shape = "linear",
    *,
    loss: Loss = "cosine",
    candidates: str = "sentence",
    seeds: int = 3,
    epochs: int = 100,
    patience: int = 5,
    rate: float = 1e-3,
    batch: int = 256,
    progress: bool = False,
) -> Identifiability:
    """Fit a map g from each layer's hidden vectors to the input embeddings, and see what it recovers.

    Texts are split 70/15/15 into training, validation and test by the first seed; the map of the
    epoch that does best on the validation texts is judged on the test texts.

    Parameters
    ----------
    lens
        The model.
    texts
        At least ten; a few hundred sentences for a stable figure.
    shape
        "ridge": linear, closed form. "linear": linear, by Adam. "mlp": one hidden layer, by Adam.
    loss
        "cosine" or "l2"; candidates are compared the same way.
    candidates
        "sentence": the input embeddings of the token's own text. "vocabulary": all word embeddings.
    seeds
        How many times to train, with other initial weights and order; "ridge" is fitted once.
    epochs, patience, rate, batch
        Of the training by Adam; it stops after ``patience`` epochs that together bring the loss on
        the validation texts down by less than a hundredth.
    progress
        Show a bar over texts, and one over layers and seeds.

    Raises
    ------
    ProsectError
        If an argument is not one of these, or there are fewer than ten texts.
    """
    for value, known, what in (
        (shape, get_args(Shape), "shape"),
        (loss, get_args(Loss), "loss"),
        (candidates, ("sentence", "vocabulary"), "candidates"),
    ):
        if value not in known:
            raise ProsectError(f"There is no {what} {value!r}: choose one of {', '.join(known)}.")
    if not isinstance(lens, Lens):
        raise ProsectError(f"learn_identity takes a Lens, not {type(lens).__name__}.")
    options: dict[str, Any] = {"epochs": epochs, "patience": patience, "rate": rate, "batch": batch}
    for name, value in {"seeds": seeds, **options}.items():
        known = numbers.Real if name == "rate" else numbers.Integral
        fits = isinstance(value, known) and not isinstance(value, bool)
        if not fits or not 0 < float(value) < math.inf:
            kind = "a number" if name == "rate" else "a whole number"
            raise ProsectError(f"{name} is {kind} above 0, not {value!r}.")
    if shape == "ridge":
        chosen = [name for name, value in options.items() if value != TRAINING[name]]
        if chosen:
            raise ProsectError(f"{chosen[0]} is of the training by Adam: ridge has a closed form.")
        seeds = 1
    if isinstance(texts, str):
        raise ProsectError("texts is a list of texts, not one text.")
    listed = list(texts)
    if len(listed) < 10:
        raise ProsectError(f"Learning takes at least 10 texts, not {len(listed)}.")
    parts = _split(lens, listed, progress)
    train, valid, test = parts
    states = len(train.hidden)
    metric: nearest.Metric = loss
    recovered = torch.zeros(seeds, states)
    transfer = torch.zeros(seeds, states, states)
    mistakes: list[Mistake] = []
    with tqdm(total=seeds * states, unit="map", disable=not progress) as bar:
        for seed in range(seeds):
            for layer in range(states):
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
                found = _nearest(lens, g, test, metric, candidates)
                right = found == _right(test, candidates)
                transfer[seed, layer] = right.float().mean(-1)
                recovered[seed, layer] = transfer[seed, layer, layer]
                if seed == seeds - 1:
                    lost = ~right[layer]
                    own, others = _right(test, candidates)[lost], found[layer, lost]
                    names = (_labels(lens, test, x.tolist(), candidates) for x in (own, others))
                    mistakes += [Mistake(layer, *pair) for pair in zip(*names, strict=True)]
                bar.update()
    plain = _nearest(lens, nn.Identity(), test, metric, candidates) == _right(test, candidates)
    return Identifiability(
        recovered=recovered,
        unmapped=plain.float().mean(-1),
        transfer=transfer.mean(0),
        mistakes=mistakes,
        shape=shape,
        loss=loss,
        candidates=candidates,
        texts=_sizes(len(listed)),
    )


def _sizes(count: int) -> tuple[int, int, int]:
    valid = max(1, round(SPLIT[1] * count))
    test = max(1, round(SPLIT[2] * count))
    return count - valid - test, valid, test


def _split(lens: Lens, texts: Sequence[str], progress: bool) -> list[_Texts]:
    generator = torch.Generator().manual_seed(0)
    order: list[int] = torch.randperm(len(texts), generator=generator).tolist()
    read = [(trace.hidden, trace.tokens) for trace in lens.traces(texts, progress=progress)]
    chosen = iter(order)
    return [_gathered([read[i] for i in islice(chosen, size)]) for size in _sizes(len(texts))]


def _gathered(read: Sequence[tuple[Tensor, list[Token]]]) -> _Texts:
    hidden, starts, ids, labels, first = [], [], [], [], 0
    for states, tokens in read:
        hidden.append(states)
        starts += [first] * len(tokens)
        ids += [token.id for token in tokens]
        labels += [token.label for token in tokens]
        first += len(tokens)
    return _Texts(torch.cat(hidden, dim=1), torch.tensor(starts), torch.tensor(ids), labels)


def _right(texts: _Texts, candidates: str) -> Tensor:
    return texts.ids if candidates == "vocabulary" else torch.arange(len(texts.ids))


def _nearest(
    lens: Lens, g: nn.Module, texts: _Texts, metric: nearest.Metric, candidates: str
) -> Tensor:
    """[layer+1, token], the candidate nearest to g of every hidden vector."""
    with torch.no_grad():
        guess = g(texts.hidden)
    if candidates == "vocabulary":
        found = analysis.search(lens.anatomy, guess, None, texts.ids, 1, metric, stem=True)
        return found[0][..., 0]
    found = torch.empty(guess.shape[:-1], dtype=torch.long)
    for start in texts.starts.unique().tolist():
        own = (texts.starts == start).nonzero()[:, 0]
        scores = nearest.similarity(guess[:, own], texts.hidden[0, own], metric)
        found[:, own] = nearest.nearest(scores, 1)[0][..., 0] + start
    return found


def _labels(lens: Lens, texts: _Texts, numbers: list[int], candidates: str) -> list[str]:
    """Of candidates, given by their numbers."""
    if candidates == "vocabulary":
        return vocabulary_labels(numbers, lens.tokenizer)
    return [texts.labels[number] for number in numbers]
