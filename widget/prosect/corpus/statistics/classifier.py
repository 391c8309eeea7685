"""Small classifiers on sums of terms, one a subset and seed, trained side by side.

The classifier of Mickus et al. (2022): Linear(d, d), ReLU, Dropout, Linear(d, classes, no bias); or
one linear layer. What a seed decides (initial weights, the order of the examples, what is dropped)
is the same for all subsets, so that they differ in their terms alone; and no model knows of the
others, so that one trained alone is the same as one trained with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from prosect.errors import ProsectError
from prosect.validation import check_flag, whole_number

Shape = Literal["mlp", "linear"]
Best = Literal["accuracy", "macro_f1", "loss"]
MEMORY = 2**31
"""How many bytes the models that train at once may take, with all that their training needs."""
BLOCK = 2**28
"""How many bytes may be looked at at once outside training."""


@dataclass(frozen=True)
class Training:
    """How heads are trained; what is None, as everything is by default, is as the experiment does.

    Attributes
    ----------
    shape
        "mlp": Linear(d, d), ReLU, Dropout, Linear(d, classes, no bias), as in the paper for senses
        and names. "linear": one layer, with a bias, as in the paper for masked words.
    best
        What says on the validation examples which epoch was the best, whose weights are kept:
        "accuracy"; "macro_f1", the mean F1 of the classes that occur there; "loss". With few
        examples the loss rises long before the others are at their best.
    epochs, patience
        At most so many times through the examples, and no more than so many after the best epoch.
    rate, decay
        Of AdamW.
    dropout
        Share of the hidden units left out in training.
    batch
        Examples a step.
    standardise
        Give every dimension of a subset's sum mean 0 and variance 1 over the training examples. Not
        done in the paper.
    device
        Where heads train, such as "cuda".

    Raises
    ------
    ProsectError
        If a value is out of range.
    """

    shape: Shape | None = None
    best: Best | None = None
    epochs: int | None = None
    patience: int | None = None
    rate: float | None = None
    decay: float | None = None
    dropout: float | None = None
    batch: int | None = None
    standardise: bool | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if self.shape is not None and self.shape not in get_args(Shape):
            raise ProsectError(f"There is no head {self.shape!r}: choose 'mlp' or 'linear'.")
        if self.best is not None and self.best not in get_args(Best):
            raise ProsectError(
                f"The best epoch cannot be told by {self.best!r}: "
                "choose 'accuracy', 'macro_f1' or 'loss'."
            )
        for name, what in _WHOLE.items():
            value = getattr(self, name)
            if value is not None and whole_number(value, what) < 1:
                raise ProsectError(f"{name} must be at least 1, not {value}.")
        for name, (bounds, holds) in _REAL.items():
            value = getattr(self, name)
            if value is not None and not (_is_real(value) and holds(value)):
                raise ProsectError(f"{name} is {bounds}, not {value!r}.")
        if self.standardise is not None:
            check_flag(self.standardise, "standardise")


_WHOLE = {"epochs": "number of epochs", "patience": "patience", "batch": "batch size"}
_REAL: dict[str, tuple[str, Callable[[float], bool]]] = {
    "rate": ("a number above 0", lambda rate: rate > 0),
    "decay": ("a number of 0 or more", lambda decay: decay >= 0),
    "dropout": ("a share from 0 to below 1", lambda dropout: 0 <= dropout < 1),
}


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Settled(Training):
    """Training of which everything is settled; by default as in the paper for senses."""

    shape: Shape = "mlp"
    best: Best = "accuracy"
    epochs: int = 50
    patience: int = 10
    rate: float = 1e-3
    decay: float = 0.01
    dropout: float = 0.1
    batch: int = 256
    standardise: bool = False
    device: str = "cpu"

    @classmethod
    def of(cls, wanted: Training | None, own: Settled | None = None) -> Settled:
        """What is wanted, and of what is left open an experiment's own.

        Raises
        ------
        ProsectError
            If what is wanted is no :class:`Training`.
        """
        own = own or cls()
        if wanted is None:
            return own
        if not isinstance(wanted, Training):
            raise ProsectError(
                "training is a prosect.corpus.Training, such as Training(epochs=5), "
                f"not {type(wanted).__name__}."
            )
        return replace(own, **{k: v for k, v in asdict(wanted).items() if v is not None})


@dataclass(frozen=True, eq=False)
class Examples:
    """What heads learn from or are judged on.

    Attributes
    ----------
    terms
        [term, example, d].
    labels
        [example], the right class.
    allowed
        [example, choice], the classes that each may be of, padded with −1 on the right; None: all.
    """

    terms: Float[Tensor, "term example d"]
    labels: Int[Tensor, "example"]
    allowed: Int[Tensor, "example choice"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: Tensor | np.ndarray | slice) -> Examples:
        """Some of the examples."""
        chosen = torch.from_numpy(chosen) if isinstance(chosen, np.ndarray) else chosen
        allowed = None if self.allowed is None else self.allowed[chosen]
        return Examples(self.terms[:, chosen], self.labels[chosen], allowed)

    def blocks(self, size: int) -> Iterator[Examples]:
        """All of them, so many at a time."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def targets(self) -> Int[Tensor, "example"]:
        """The right class's place among the choices."""
        if self.allowed is None:
            return self.labels
        return (self.allowed == self.labels[:, None]).int().argmax(-1)


@dataclass(eq=False)
class Heads:
    """Heads of one shape, one a subset, and how each reads the terms.

    Attributes
    ----------
    weights
        W_1 [model, d, d] as [in, out], b_1 [model, 1, d] and W_2 [model, class, d] of an mlp;
        W [model, class, d] and b [model, 1, class] of a linear head.
    mix
        [model, term], 1 where a term is in the model's subset.
    shift, scale
        [model, 1, d], what standardising takes away and multiplies by; None without it.
    epochs
        [model], the epoch whose weights were kept, from 1.
    """

    weights: list[Float[Tensor, "model *sizes"]]
    mix: Float[Tensor, "model term"]
    shift: Float[Tensor, "model 1 d"] | None
    scale: Float[Tensor, "model 1 d"] | None
    epochs: Int[Tensor, "model"]

    @property
    def classes(self) -> int:
        """How many there are."""
        return self._out.shape[1]

    @property
    def _out(self) -> Tensor:
        """[model, class, d], of the last layer."""
        return self.weights[0] if len(self.weights) == 2 else self.weights[2]

    def inputs(self, terms: Float[Tensor, "term example d"]) -> Float[Tensor, "model example d"]:
        """The sum of each model's terms."""
        x = torch.einsum("mt,tnd->mnd", self.mix, terms)
        return x if self.shift is None or self.scale is None else (x - self.shift) * self.scale

    def scores(
        self, examples: Examples, kept: Float[Tensor, "example d"] | None = None
    ) -> Float[Tensor, "model example choice"]:
        """Logits of each example's choices, −∞ where there is none.

        ``kept`` is what dropout multiplies the hidden units by.
        """
        x = self.inputs(examples.terms)
        W, bias = self._out, None
        if len(self.weights) == 2:
            bias = self.weights[1]
        else:
            W_1, b_1, _ = self.weights
            x = torch.relu(torch.baddbmm(b_1, x, W_1))
            x = x if kept is None else x * kept
        if examples.allowed is None:
            W = W.transpose(1, 2)
            return torch.bmm(x, W) if bias is None else torch.baddbmm(bias, x, W)
        example, choice = (examples.allowed >= 0).nonzero(as_tuple=True)
        own = examples.allowed[example, choice]
        found = (x.index_select(1, example) * W.index_select(1, own)).sum(-1)
        if bias is not None:
            found = found + bias[:, 0].index_select(1, own)
        scores = x.new_full((len(x), *examples.allowed.shape), -torch.inf)
        models = torch.arange(len(x), device=x.device)[:, None]
        return scores.index_put((models, example, choice), found)

    def predict(self, examples: Examples) -> Int[Tensor, "model example"]:
        """The class of the highest score among each example's choices."""
        found = []
        with torch.no_grad():
            for block in examples.blocks(self._block(examples)):
                best = self.scores(block).argmax(-1)
                if block.allowed is not None:
                    best = block.allowed[torch.arange(len(block), device=best.device), best]
                found.append(best)
        return torch.cat(found, dim=1)

    def quality(self, examples: Examples, by: Best) -> Float[Tensor, "model"]:
        """How good they are, more is better: minus the mean cross-entropy, accuracy or macro-F1."""
        if by == "loss":
            parts = examples.blocks(self._block(examples))
            with torch.no_grad():
                sums = [_cross_entropy(self.scores(part), part).sum(-1) for part in parts]
            return -torch.stack(sums).sum(0) / len(examples)
        found = self.predict(examples)
        if by == "accuracy":
            return (found == examples.labels).to(self.mix).mean(-1)
        return torch.stack([macro_f1(examples.labels, row, self.classes) for row in found])

    def _block(self, examples: Examples) -> int:
        """How many examples take BLOCK bytes: their inputs, hidden units and scores."""
        d = examples.terms.shape[-1]
        choices = examples.allowed
        most = self.classes if choices is None else 2 * d * choices.shape[1]
        return max(1, BLOCK // (len(self.mix) * (2 * d + most) * examples.terms.element_size()))


def train(
    examples: Examples,
    valid: Examples,
    mix: Float[Tensor, "subset term"],
    classes: int,
    *,
    seed: int = 0,
    how: Training | None = None,
) -> Heads:
    """Train one head a subset, with one seed.

    Parameters
    ----------
    examples, valid
        What is learned from, and what says when to stop.
    mix
        1 where a term is in a subset (:func:`~prosect.corpus.experiments.subsets.indicator`).
    classes
        How many there are.
    seed
        Of initial weights, order and dropout; they do not depend on the device.
    how
        The settings; what is left open is as in :class:`Settled`.

    Raises
    ------
    ProsectError
        If there is nothing to learn from or to choose by, the right class of
        an example is not allowed, or the loss is no number.
    """
    how = Settled.of(how)
    if not len(examples) or not len(valid):
        raise ProsectError(
            f"{len(examples)} training and {len(valid)} validation examples: "
            "give more, so that there is at least one of each."
        )
    for part in (examples, valid):
        if part.allowed is not None and not (part.allowed == part.labels[:, None]).any(1).all():
            raise ProsectError("The right class of an example is not among those allowed for it.")
    size = examples.terms.shape[-1]
    weights = size * classes + (size * size if how.shape == "mlp" else 0)
    # weights, gradients, two moments of AdamW and the best so far
    together = max(1, MEMORY // (5 * weights * examples.terms.element_size()))
    parts = [_train(examples, valid, some, classes, seed, how) for some in mix.split(together)]
    return parts[0] if len(parts) == 1 else _joined(parts)


def predictions(
    examples: Examples,
    valid: Examples,
    test: Examples,
    mix: Float[Tensor, "subset term"],
    classes: int,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    how: Training | None = None,
    progress: bool = False,
) -> Int[np.ndarray, "seed subset example"]:
    """What heads trained with each of some seeds predict of the test examples.

    Parameters and errors as of :func:`train`; ``progress`` shows a bar over the seeds.
    """
    if not len(test):
        raise ProsectError("There are no test examples: give more, so that there is at least one.")
    found = []
    for seed in tqdm(seeds, unit="seed", desc="heads", leave=False, disable=not progress):
        found.append(train(examples, valid, mix, classes, seed=seed, how=how).predict(test))
    return torch.stack(found).cpu().numpy()


def _train(
    examples: Examples, valid: Examples, mix: Tensor, classes: int, seed: int, how: Settled
) -> Heads:
    terms = examples.terms
    generator = torch.Generator().manual_seed(seed)
    mix = mix.to(terms)
    shift, scale = _standard(terms, mix) if how.standardise else (None, None)
    start = _initial(terms.shape[-1], classes, how.shape, generator)
    # a copy of the same weights for every subset
    weights = [w.to(terms).expand(len(mix), *w.shape).clone() for w in start]
    heads = Heads(weights, mix, shift, scale, torch.zeros(len(mix), dtype=torch.long))
    best = Heads([w.clone() for w in weights], mix, shift, scale, heads.epochs.clone())
    most = torch.full((len(mix),), -torch.inf, dtype=torch.float64)
    running = torch.arange(len(mix))  # which of the models still train
    optimizer = _optimizer(heads, how)
    for epoch in range(1, how.epochs + 1):
        lost = torch.zeros(len(running)).to(terms)
        order = torch.randperm(len(examples), generator=generator)
        for chosen in order.split(how.batch):
            batch = examples[chosen.to(terms.device)]
            kept = _kept(len(batch), terms, how.dropout, generator) if how.shape == "mlp" else None
            loss = _cross_entropy(heads.scores(batch, kept), batch).mean(-1)
            optimizer.zero_grad()
            loss.sum().backward()  # each model's weights have the gradient of its own mean
            optimizer.step()
            lost += loss.detach()
        if not lost.isfinite().all():
            raise ProsectError(
                f"The loss grew beyond all numbers in epoch {epoch}: lower the rate from {how.rate}."
            )
        now = heads.quality(valid, how.best).cpu().to(most)
        better = now > most[running]
        for kept_weights, weight in zip(best.weights, heads.weights, strict=True):
            kept_weights[running[better]] = weight.detach()[better]
        most[running[better]] = now[better]
        best.epochs[running[better]] = epoch
        going = epoch - best.epochs[running] < how.patience
        if not going.any():
            break
        if not going.all():
            running = running[going]
            heads, optimizer = _without_the_rest(heads, optimizer, going, how)
    return best


def macro_f1(
    right: Int[Tensor, "example"], found: Int[Tensor, "example"], classes: int
) -> Float[Tensor, ""]:
    """The mean, over the classes that occur among the right ones, of F1 = 2 hits / (right + found)."""
    hits = torch.bincount(right[right == found], minlength=classes)
    there = torch.bincount(right, minlength=classes)
    both = there + torch.bincount(found, minlength=classes)
    return (2 * hits / both)[there > 0].mean()


def _initial(size: int, classes: int, shape: Shape, generator: torch.Generator) -> list[Tensor]:
    """Weights as torch.nn.Linear draws them, uniform within 1/√d."""

    def drawn(*sizes: int) -> Tensor:
        return (2 * torch.rand(*sizes, generator=generator) - 1) / size**0.5

    if shape == "linear":
        return [drawn(classes, size), drawn(1, classes)]
    return [drawn(size, size), drawn(1, size), drawn(classes, size)]


def _standard(terms: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and 1/σ of every dimension of each subset's sum; a dimension that is constant stays so."""
    shifts, scales = [], []
    for row in mix:
        x = torch.einsum("t,tnd->nd", row, terms)
        sigma = x.std(0, correction=0)
        shifts.append(x.mean(0))
        scales.append(torch.where(sigma > 0, 1 / sigma, 0))
    return torch.stack(shifts)[:, None], torch.stack(scales)[:, None]


def _kept(count: int, like: Tensor, dropout: float, generator: torch.Generator) -> Tensor | None:
    if not dropout:
        return None
    kept = torch.rand(count, like.shape[-1], generator=generator) >= dropout
    return kept.to(like) / (1 - dropout)


def _cross_entropy(scores: Tensor, examples: Examples) -> Float[Tensor, "model example"]:
    wanted = examples.targets().expand(len(scores), -1)
    right = scores.gather(2, wanted[..., None])[..., 0]
    return scores.logsumexp(-1) - right


def _optimizer(heads: Heads, how: Settled) -> torch.optim.AdamW:
    heads.weights = [weight.requires_grad_() for weight in heads.weights]
    return torch.optim.AdamW(heads.weights, lr=how.rate, weight_decay=how.decay, fused=True)


def _without_the_rest(
    heads: Heads, optimizer: torch.optim.AdamW, going: Bool[Tensor, "model"], how: Settled
) -> tuple[Heads, torch.optim.AdamW]:
    """The models that still train, with the state of their training."""
    going = going.to(heads.mix.device)

    def of(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[going]

    weights = [weight.detach()[going] for weight in heads.weights]
    left = Heads(
        weights, heads.mix[going], of(heads.shift), of(heads.scale), heads.epochs[going.cpu()]
    )
    after = _optimizer(left, how)
    for old, new in zip(heads.weights, left.weights, strict=True):
        state = optimizer.state[old]
        after.state[new] = {
            "step": state["step"],
            "exp_avg": state["exp_avg"][going],
            "exp_avg_sq": state["exp_avg_sq"][going],
        }
    return left, after


def _joined(parts: Sequence[Heads]) -> Heads:
    def of(values: Sequence[Tensor | None]) -> Tensor | None:
        return None if values[0] is None else torch.cat([v for v in values if v is not None])

    return Heads(
        [torch.cat(weights) for weights in zip(*(part.weights for part in parts), strict=True)],
        torch.cat([part.mix for part in parts]),
        of([part.shift for part in parts]),
        of([part.scale for part in parts]),
        torch.cat([part.epochs for part in parts]),
    )
