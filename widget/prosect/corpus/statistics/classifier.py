"""Small classifiers on sums of terms, one for each subset and seed, trained in parallel.

The classifier of Mickus et al. (2022) is Linear(d, d), ReLU, Dropout, Linear(d, classes, no bias);
the alternative is one linear layer. The seed decides the initial weights, the order of the examples
and the dropout mask. These are the same for all subsets, so that subsets differ in their terms
alone. The models are independent: training one alone or with others gives the same weights.
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
from prosect.modes import plain_arithmetic
from prosect.validation import check_count, check_flag, check_known

HeadShape = Literal["mlp", "linear"]
Criterion = Literal["accuracy", "macro_f1", "loss"]
MAX_TRAINING_BYTES = 2**31
"""Memory for the models that train together, with gradients, optimizer state and best weights."""
MAX_BLOCK_BYTES = 2**28
"""Memory for the activations of one block of examples outside training."""


@dataclass(frozen=True)
class Training:
    """How heads are trained. None, the default of every option, is the experiment's default.

    Attributes
    ----------
    shape
        "mlp": Linear(d, d), ReLU, Dropout, Linear(d, classes, no bias), as in the paper for senses
        and entities. "linear": one layer with a bias, as in the paper for masked words.
    best
        The criterion on the validation examples by which the epoch is chosen whose weights are
        kept: "accuracy"; "macro_f1", the mean F1 over the classes that occur there; "loss". With
        few examples the loss rises long before the other two reach their maximum.
    epochs, patience
        The maximal number of epochs, and how many may follow the best one.
    rate, decay
        The learning rate and the weight decay of AdamW.
    dropout
        The share of hidden units dropped in training.
    batch
        The number of examples in a step.
    standardise
        Whether every dimension of a subset's sum is scaled to mean 0 and variance 1 over the
        training examples. The paper does not do this.
    device
        The device on which heads train, such as "cuda".

    Raises
    ------
    ProsectError
        If a value is out of range.
    """

    shape: HeadShape | None = None
    best: Criterion | None = None
    epochs: int | None = None
    patience: int | None = None
    rate: float | None = None
    decay: float | None = None
    dropout: float | None = None
    batch: int | None = None
    standardise: bool | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            check_known(self.shape, get_args(HeadShape), "shape")
        if self.best is not None:
            check_known(self.best, get_args(Criterion), "best")
        for name in ("epochs", "patience", "batch"):
            value = getattr(self, name)
            if value is not None:
                check_count(value, name)
        for name, (bounds, allowed) in _REAL_RANGES.items():
            value = getattr(self, name)
            if value is not None and not (_is_real(value) and allowed(value)):
                raise ProsectError(f"{name} must be {bounds}, got {value!r}.")
        if self.standardise is not None:
            check_flag(self.standardise, "standardise")


_REAL_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "rate": ("a number above 0", lambda rate: rate > 0),
    "decay": ("a number of at least 0", lambda decay: decay >= 0),
    "dropout": ("at least 0 and less than 1", lambda dropout: 0 <= dropout < 1),
}


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class ResolvedTraining(Training):
    """Training with all options filled in; the defaults are the paper's for word senses."""

    shape: HeadShape = "mlp"
    best: Criterion = "accuracy"
    epochs: int = 50
    patience: int = 10
    rate: float = 1e-3
    decay: float = 0.01
    dropout: float = 0.1
    batch: int = 256
    standardise: bool = False
    device: str = "cpu"

    @classmethod
    def of(
        cls, training: Training | None, defaults: ResolvedTraining | None = None
    ) -> ResolvedTraining:
        """Fill the options that are None with the defaults of an experiment.

        Raises
        ------
        ProsectError
            If ``training`` is not a :class:`Training`.
        """
        defaults = defaults or cls()
        if training is None:
            return defaults
        if not isinstance(training, Training):
            raise ProsectError(
                "training must be a prosect.corpus.Training, such as Training(epochs=5), "
                f"got {type(training).__name__}."
            )
        return replace(defaults, **{k: v for k, v in asdict(training).items() if v is not None})


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples for training, validation or test.

    Attributes
    ----------
    terms
        [term, example, d].
    labels
        [example], the true class.
    allowed
        [example, choice], the classes among which each example's class is chosen, padded with −1
        on the right; None if all classes are allowed.
    """

    terms: Float[Tensor, "term example d"]
    labels: Int[Tensor, "example"]
    allowed: Int[Tensor, "example choice"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, selection: Tensor | np.ndarray | slice) -> Examples:
        """Select examples."""
        if isinstance(selection, np.ndarray):
            selection = torch.from_numpy(selection)
        allowed = None if self.allowed is None else self.allowed[selection]
        return Examples(self.terms[:, selection], self.labels[selection], allowed)

    def blocks(self, size: int) -> Iterator[Examples]:
        """Yield all examples in blocks of ``size``."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def targets(self) -> Int[Tensor, "example"]:
        """The index of the true class among the choices."""
        if self.allowed is None:
            return self.labels
        return (self.allowed == self.labels[:, None]).int().argmax(-1)


@dataclass(eq=False)
class Heads:
    """Heads of one shape, one for each subset.

    Attributes
    ----------
    weights
        W_1 [model, d, d] as [in, out], b_1 [model, 1, d] and W_2 [model, class, d] of an mlp;
        W [model, class, d] and b [model, 1, class] of a linear head.
    mix
        [model, term], 1 where a term is in the model's subset.
    shift, scale
        [model, 1, d], what standardising subtracts and multiplies by; None without it.
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
        """The number of classes."""
        return self._output_weight.shape[1]

    @property
    def _output_weight(self) -> Tensor:
        """[model, class, d], the weight of the last layer."""
        return self.weights[0] if len(self.weights) == 2 else self.weights[2]

    def inputs(self, terms: Float[Tensor, "term example d"]) -> Float[Tensor, "model example d"]:
        """The sum of each model's terms, standardised if the models were trained so."""
        x = torch.einsum("mt,tnd->mnd", self.mix, terms)
        return x if self.shift is None or self.scale is None else (x - self.shift) * self.scale

    def logits(
        self, examples: Examples, dropout_mask: Float[Tensor, "example d"] | None = None
    ) -> Float[Tensor, "model example choice"]:
        """The logits of the choices of each example, −∞ for padding.

        Hidden units are multiplied by ``dropout_mask``.
        """
        x = self.inputs(examples.terms)
        W, bias = self._output_weight, None
        if len(self.weights) == 2:
            bias = self.weights[1]
        else:
            W_1, b_1, _ = self.weights
            x = torch.relu(torch.baddbmm(b_1, x, W_1))
            x = x if dropout_mask is None else x * dropout_mask
        if examples.allowed is None:
            W = W.transpose(1, 2)
            return torch.bmm(x, W) if bias is None else torch.baddbmm(bias, x, W)
        example, choice = (examples.allowed >= 0).nonzero(as_tuple=True)
        classes = examples.allowed[example, choice]
        values = (x.index_select(1, example) * W.index_select(1, classes)).sum(-1)
        if bias is not None:
            values = values + bias[:, 0].index_select(1, classes)
        logits = x.new_full((len(x), *examples.allowed.shape), -torch.inf)
        models = torch.arange(len(x), device=x.device)[:, None]
        return logits.index_put((models, example, choice), values)

    def predict(self, examples: Examples) -> Int[Tensor, "model example"]:
        """The class of the highest logit among the choices of each example."""
        predictions = []
        with torch.no_grad():
            for block in examples.blocks(self._block_size(examples)):
                best = self.logits(block).argmax(-1)
                if block.allowed is not None:
                    best = block.allowed[torch.arange(len(block), device=best.device), best]
                predictions.append(best)
        return torch.cat(predictions, dim=1)

    def quality(self, examples: Examples, criterion: Criterion) -> Float[Tensor, "model"]:
        """Accuracy, macro-F1 or minus the mean cross-entropy: larger is better."""
        if criterion == "loss":
            blocks = examples.blocks(self._block_size(examples))
            with torch.no_grad():
                sums = [_cross_entropy(self.logits(block), block).sum(-1) for block in blocks]
            return -torch.stack(sums).sum(0) / len(examples)
        predictions = self.predict(examples)
        if criterion == "accuracy":
            return (predictions == examples.labels).to(self.mix).mean(-1)
        return torch.stack(
            [macro_f1_of_true_classes(examples.labels, row, self.classes) for row in predictions]
        )

    def _block_size(self, examples: Examples) -> int:
        """The number of examples whose inputs, hidden units and logits fit MAX_BLOCK_BYTES."""
        d = examples.terms.shape[-1]
        choices = examples.allowed
        outputs = self.classes if choices is None else 2 * d * choices.shape[1]
        bytes_per_example = len(self.mix) * (2 * d + outputs) * examples.terms.element_size()
        return max(1, MAX_BLOCK_BYTES // bytes_per_example)


@plain_arithmetic()
def train(
    examples: Examples,
    valid: Examples,
    mix: Float[Tensor, "subset term"],
    classes: int,
    *,
    seed: int = 0,
    training: Training | None = None,
) -> Heads:
    """Train one head for each subset, with one seed.

    Parameters
    ----------
    examples, valid
        The training examples, and the validation examples that choose the epoch.
    mix
        1 where a term is in a subset, else 0.
    classes
        The number of classes.
    seed
        Decides initial weights, order and dropout, whatever the device.
    training
        The options; the defaults are those of :class:`ResolvedTraining`.

    Raises
    ------
    ProsectError
        If there are no training or no validation examples, the true class of an example is not
        allowed for it, or the loss is not finite.
    """
    how = ResolvedTraining.of(training)
    if not len(examples) or not len(valid):
        raise ProsectError(
            "Learning needs at least one training and one validation example, "
            f"got {len(examples)} and {len(valid)}."
        )
    for part in (examples, valid):
        if part.allowed is not None and not (part.allowed == part.labels[:, None]).any(1).all():
            raise ProsectError("The true class of an example is not among its allowed classes.")
    size = examples.terms.shape[-1]
    weights = size * classes + (size * size if how.shape == "mlp" else 0)
    # weights, gradients, two moments of AdamW and the best weights
    bytes_per_head = 5 * weights * examples.terms.element_size()
    together = max(1, MAX_TRAINING_BYTES // bytes_per_head)
    parts = [_train(examples, valid, rows, classes, seed, how) for rows in mix.split(together)]
    return parts[0] if len(parts) == 1 else _concatenate(parts)


def predictions(
    examples: Examples,
    valid: Examples,
    test: Examples,
    mix: Float[Tensor, "subset term"],
    classes: int,
    *,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    training: Training | None = None,
    progress: bool = False,
) -> Int[np.ndarray, "seed subset example"]:
    """Train heads with each seed and predict the classes of the test examples.

    Parameters and errors are those of :func:`train`; ``progress`` shows a bar over the seeds.
    """
    if not len(test):
        raise ProsectError("Learning needs at least one test example, got 0.")
    by_seed = []
    for seed in tqdm(seeds, unit="seed", desc="heads", leave=False, disable=not progress):
        heads = train(examples, valid, mix, classes, seed=seed, training=training)
        by_seed.append(heads.predict(test))
    return torch.stack(by_seed).cpu().numpy()


@torch.enable_grad()
def _train(
    examples: Examples,
    valid: Examples,
    mix: Tensor,
    classes: int,
    seed: int,
    how: ResolvedTraining,
) -> Heads:
    terms = examples.terms
    generator = torch.Generator().manual_seed(seed)
    mix = mix.to(terms)
    shift, scale = _standardisation(terms, mix) if how.standardise else (None, None)
    initial = _initial_weights(terms.shape[-1], classes, how.shape, generator)
    # every subset starts from a copy of the same weights
    weights = [w.to(terms).expand(len(mix), *w.shape).clone() for w in initial]
    heads = Heads(weights, mix, shift, scale, torch.zeros(len(mix), dtype=torch.long))
    best = Heads([w.clone() for w in weights], mix, shift, scale, heads.epochs.clone())
    best_quality = torch.full((len(mix),), -torch.inf, dtype=torch.float64)
    running = torch.arange(len(mix))  # the models that still train
    optimizer = _optimizer(heads, how)
    for epoch in range(1, how.epochs + 1):
        loss_sum = torch.zeros(len(running)).to(terms)
        order = torch.randperm(len(examples), generator=generator)
        for rows in order.split(how.batch):
            batch = examples[rows.to(terms.device)]
            mask = None
            if how.shape == "mlp":
                mask = _dropout_mask(len(batch), terms, how.dropout, generator)
            loss = _cross_entropy(heads.logits(batch, mask), batch).mean(-1)
            optimizer.zero_grad()
            loss.sum().backward()  # each model's weights get the gradient of its own mean
            optimizer.step()
            loss_sum += loss.detach()
        if not loss_sum.isfinite().all():
            raise ProsectError(f"Loss is not finite in epoch {epoch}: use a rate below {how.rate}.")
        quality = heads.quality(valid, how.best).cpu().to(best_quality)
        better = quality > best_quality[running]
        for best_weight, weight in zip(best.weights, heads.weights, strict=True):
            best_weight[running[better]] = weight.detach()[better]
        best_quality[running[better]] = quality[better]
        best.epochs[running[better]] = epoch
        continues = epoch - best.epochs[running] < how.patience
        if not continues.any():
            break
        if not continues.all():
            running = running[continues]
            heads, optimizer = _select_models(heads, optimizer, continues, how)
    return best


def macro_f1_of_true_classes(
    labels: Int[Tensor, "example"], predictions: Int[Tensor, "example"], classes: int
) -> Float[Tensor, ""]:
    """The mean of F1 = 2 hits / (labels + predictions) over the classes that occur as labels."""
    hits = torch.bincount(labels[labels == predictions], minlength=classes)
    label_counts = torch.bincount(labels, minlength=classes)
    totals = label_counts + torch.bincount(predictions, minlength=classes)
    return (2 * hits / totals)[label_counts > 0].mean()


def _initial_weights(
    size: int, classes: int, shape: HeadShape, generator: torch.Generator
) -> list[Tensor]:
    """Draw weights as torch.nn.Linear does, uniformly within ±1/√d."""

    def uniform(*sizes: int) -> Tensor:
        return (2 * torch.rand(*sizes, generator=generator) - 1) / size**0.5

    if shape == "linear":
        return [uniform(classes, size), uniform(1, classes)]
    return [uniform(size, size), uniform(1, size), uniform(classes, size)]


def _standardisation(terms: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and 1/σ of every dimension of each subset's sum; 0 instead of 1/σ if it is constant."""
    shifts, scales = [], []
    for row in mix:
        x = torch.einsum("t,tnd->nd", row, terms)
        sigma = x.std(0, correction=0)
        shifts.append(x.mean(0))
        scales.append(torch.where(sigma > 0, 1 / sigma, 0))
    return torch.stack(shifts)[:, None], torch.stack(scales)[:, None]


def _dropout_mask(
    count: int, like: Tensor, dropout: float, generator: torch.Generator
) -> Tensor | None:
    if not dropout:
        return None
    kept = torch.rand(count, like.shape[-1], generator=generator) >= dropout
    return kept.to(like) / (1 - dropout)


def _cross_entropy(logits: Tensor, examples: Examples) -> Float[Tensor, "model example"]:
    targets = examples.targets().expand(len(logits), -1)
    target_logits = logits.gather(2, targets[..., None])[..., 0]
    return logits.logsumexp(-1) - target_logits


def _optimizer(heads: Heads, how: ResolvedTraining) -> torch.optim.AdamW:
    heads.weights = [weight.requires_grad_() for weight in heads.weights]
    return torch.optim.AdamW(heads.weights, lr=how.rate, weight_decay=how.decay, fused=True)


def _select_models(
    heads: Heads,
    optimizer: torch.optim.AdamW,
    selection: Bool[Tensor, "model"],
    how: ResolvedTraining,
) -> tuple[Heads, torch.optim.AdamW]:
    """Keep the selected models and their optimizer state."""
    selection = selection.to(heads.mix.device)

    def select(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[selection]

    selected = Heads(
        [weight.detach()[selection] for weight in heads.weights],
        heads.mix[selection],
        select(heads.shift),
        select(heads.scale),
        heads.epochs[selection.cpu()],
    )
    selected_optimizer = _optimizer(selected, how)
    for old, new in zip(heads.weights, selected.weights, strict=True):
        state = optimizer.state[old]
        selected_optimizer.state[new] = {
            "step": state["step"],
            "exp_avg": state["exp_avg"][selection],
            "exp_avg_sq": state["exp_avg_sq"][selection],
        }
    return selected, selected_optimizer


def _concatenate(parts: Sequence[Heads]) -> Heads:
    def join(values: Sequence[Tensor | None]) -> Tensor | None:
        return None if values[0] is None else torch.cat([v for v in values if v is not None])

    return Heads(
        [torch.cat(weights) for weights in zip(*(part.weights for part in parts), strict=True)],
        torch.cat([part.mix for part in parts]),
        join([part.shift for part in parts]),
        join([part.scale for part in parts]),
        torch.cat([part.epochs for part in parts]),
    )
