"""Token-to-token maps: their class, and the functions that compute them.

The table of the kinds in :mod:`prosect.analyses.kinds` refers to these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from prosect.analyses.cache import Analyses
from prosect.analyses.certificate import agreed, relative_gap
from prosect.capture.intervention import silenced_in_model
from prosect.engines import contributions, measures, scopes, zeroing
from prosect.engines.activation import Baseline
from prosect.engines.scopes import Scope
from prosect.engines.terms import reconstruction_error
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.validation import check_flag, check_known

PartMeasure = Literal["norm", "alti"]
"""The measure of a part: its length, or how much it reduces the L1 distance to the output."""


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class TokenMap:
    """A token-to-token map of all layers.

    Attributes
    ----------
    values
        [layer, head, target, source], or [layer, target, source] for kinds without heads. The trace
        keeps this tensor: clone it before you edit it in place.
    kind
        The name of the kind.
    axes
        The names of the axes of ``values``.
    error
        The certificate; ``trace.kinds[kind].certificate`` says what it measures.
    rest
        [layer, target], the length of the part that belongs to no token; None for kinds without one.
    own, others
        [layer, target], the length of what a token sends to itself, and the length of the sum of
        what all others send; None for kinds that split no vectors.
    """

    values: Tensor
    kind: str
    axes: tuple[str, ...]
    error: float
    rest: Float[Tensor, "layer target"] | None = None
    own: Float[Tensor, "layer target"] | None = None
    others: Float[Tensor, "layer target"] | None = None

    def __repr__(self) -> str:
        axes = ", ".join(f"{a} {n}" for a, n in zip(self.axes, self.values.shape, strict=True))
        return f"TokenMap({self.kind}: {axes}, error {self.error:.1e})"

    def with_rest(self) -> TokenMap:
        """The same map with the part that belongs to no token as an additional last column.

        Raises
        ------
        ProsectError
            If the kind has no such part.
        """
        if self.rest is None:
            raise ProsectError(f"The kind {self.kind!r} has no part that belongs to no token.")
        return replace(self, values=torch.cat([self.values, self.rest[..., None]], dim=-1))

    def mixing(self) -> Float[Tensor, "layer target"]:
        """The context-mixing ratio (Kobayashi et al. 2021): 0 only the token itself, 1 only others.

        Vectors are summed before their length is taken. The ratio is 0 where all parts are zero.

        Raises
        ------
        ProsectError
            If the kind splits no vectors.
        """
        if self.own is None or self.others is None:
            raise ProsectError(
                f"The kind {self.kind!r} has no mixing ratio: choose a norm-based one."
            )
        return measures.mixing_ratio(self.own, self.others)


@dataclass(frozen=True)
class Options:
    """Options of a map; each kind states which of them it takes.

    Attributes
    ----------
    value_bias
        Whether the bias of the values is part of what a token sends, as in the papers, or of the
        rest.
    baseline
        The start of the integrated gradients of a feed-forward: "zero", as in the paper, or "bias",
        the part of its input that belongs to no token. With "zero", the biases receive a share of the
        non-linearity, as tokens do; with "bias", only the tokens do.
    measure
        "norm": the length of each part. "alti": how much the part reduces the L1 distance to the
        output, as a share (Ferrando et al. 2022).

    Raises
    ------
    ProsectError
        If a value is not one of those allowed.
    """

    value_bias: bool = True
    baseline: Baseline = "zero"
    measure: PartMeasure = "norm"

    def __post_init__(self) -> None:
        check_flag(self.value_bias, "value_bias")
        check_known(self.baseline, get_args(Baseline), "baseline")
        check_known(self.measure, get_args(PartMeasure), "measure")

    def changed(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        default = vars(Options())
        return [name for name, value in vars(self).items() if value != default[name]]


@dataclass(frozen=True, eq=False)
class Values:
    """The result of a computation: a map without its kind."""

    values: Tensor
    error: float
    rest: Float[Tensor, "layer target"] | None = None
    own: Float[Tensor, "layer target"] | None = None
    others: Float[Tensor, "layer target"] | None = None


def attention(analyses: Analyses, _: Options) -> Values:
    """The attention weights of the run."""
    alpha = analyses.run.attention
    return Values(alpha, float((alpha.sum(-1) - 1).abs().max()))


def norm(analyses: Analyses, options: Options) -> Values:
    """The length of what each head takes from each source."""
    lengths = [
        scopes.norm_map(layer.attention, options.value_bias) for layer in analyses.run.stream.layers
    ]
    chosen = Options(value_bias=options.value_bias)
    error = max(layer["ATTN"].error for layer in scopes_of(analyses, chosen, feed_forward=False))
    return Values(torch.stack(lengths), error)


def scope(analyses: Analyses, options: Options, *, name: str, feed_forward: bool) -> Values:
    """The lengths of the parts at one place of each layer.

    Parameters
    ----------
    name
        The name of the scope.
    feed_forward
        Whether the scope comes after the feed-forward.
    """
    by_layer = [layer[name] for layer in scopes_of(analyses, options, feed_forward)]
    return Values(
        values=torch.stack([one.values for one in by_layer]),
        error=max(one.error for one in by_layer),
        rest=torch.stack([one.rest for one in by_layer]),
        own=torch.stack([one.own for one in by_layer]),
        others=torch.stack([one.others for one in by_layer]),
    )


def change(
    analyses: Analyses, options: Options, *, before: str, after: str, read_before: bool
) -> Values:
    """The map after a step minus the map before it.

    Parameters
    ----------
    before, after
        The names of the two scopes.
    read_before
        Whether the scope ``before`` comes after the feed-forward, too.
    """
    a = scope(analyses, options, name=before, feed_forward=read_before)
    b = scope(analyses, options, name=after, feed_forward=True)
    return Values(b.values - a.values, max(a.error, b.error))


def scopes_of(analyses: Analyses, options: Options, feed_forward: bool) -> list[dict[str, Scope]]:
    """The scopes of each layer by name, up to the feed-forward or through it; computed once."""

    def compute() -> list[dict[str, Scope]]:
        return [
            scopes.scopes_of(
                layer,
                feed_forward=through,
                value_bias=options.value_bias,
                baseline=options.baseline,
                measure=scopes.l1_share if options.measure == "alti" else None,
            )
            for layer in analyses.run.stream.layers
        ]

    # a parallel feed-forward reads each token separately: its scopes cost almost nothing
    beside = any(block.parallel for block in analyses.anatomy.blocks)
    through = feed_forward or beside
    return analyses.once(("scopes", through, options), compute)


def scopes_are_known(analyses: Analyses) -> bool:
    """Whether all scopes are already computed with the default options."""
    return analyses.known(("scopes", True, Options())) is not None


def contribution(analyses: Analyses, options: Options) -> Values:
    """The length of each input token's part in each hidden state, through all layers up to it."""
    hidden, stream = analyses.run.hidden, analyses.run.stream
    layers, n, _ = hidden.shape
    rests, _ = contributions.rest_of(stream, options.baseline)
    total = torch.stack(rests)
    values = hidden.new_zeros(layers, n, n)
    own = hidden.new_zeros(hidden.shape)
    blocks = contributions.contributions(stream, range(n), options.baseline)
    for sources, states in blocks:
        for layer, parts in enumerate(states):
            values[layer][:, sources] = parts.norm(dim=-1).T
            own[layer][sources] = parts[range(len(sources)), sources]
            total[layer] += parts.sum(0)
    others = total - torch.stack(rests) - own
    return Values(
        values=values[1:],
        error=float(reconstruction_error(total, hidden).max()),
        rest=torch.stack(rests)[1:].norm(dim=-1),
        own=own[1:].norm(dim=-1),
        others=others[1:].norm(dim=-1),
    )


def last_parts(
    analyses: Analyses, position: int, baseline: Baseline = "zero"
) -> tuple[Float[Tensor, "source d"], Float[Tensor, "d"]]:
    """The part of every input token in one last hidden state, and the part of no token.

    Raises
    ------
    ProsectError
        If there is no such baseline.
    """
    check_known(baseline, get_args(Baseline), "baseline")
    stream, n = analyses.run.stream, analyses.sizes.tokens
    rests, _ = contributions.rest_of(stream, baseline)
    blocks = contributions.contributions(stream, range(n), baseline)
    parts = torch.cat([states[-1][:, position] for _, states in blocks])
    return parts, rests[-1][position]


def value_zeroing(analyses: Analyses, _: Options) -> Values:
    """How far each output turns if the values of one source are set to zero.

    The certificate: in the model, the value vector with the largest contribution in each layer is set
    to zero, and the outputs of the layer are compared.
    """
    layers = analyses.run.stream.layers
    places = [zeroing.strongest(layer) for layer in layers]
    outputs = [zeroing.silenced(layer, *place) for layer, place in zip(layers, places, strict=True)]
    expected = silenced_in_model(analyses.anatomy, analyses.run, places)
    gap = relative_gap(torch.stack(outputs), expected)
    error = agreed(gap, "The output with one value set to zero", analyses.dtype)
    return Values(torch.stack([zeroing.value_zeroing(layer) for layer in layers]), error)


def visible(analyses: Analyses) -> Sequence[Bool[Tensor, "target source"]]:
    """For every layer, the sources that each target can attend to."""
    attention = analyses.run.attention
    everything = torch.ones(attention.shape[-2:], dtype=torch.bool, device=attention.device)
    masks = [layer.attention.visible for layer in analyses.run.stream.layers]
    return [everything if mask is None else mask for mask in masks]
