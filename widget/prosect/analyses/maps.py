"""Token-to-token maps: what one is, and the computations behind the kinds that there are.

:mod:`prosect.analyses.kinds` has the table of the kinds, which says which computation each one takes.
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
"""What is measured of each part: its length, or how much nearer it brings the output in L1."""


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class TokenMap:
    """A token-to-token map of every layer.

    Attributes
    ----------
    values
        [layer, head, target, source], or [layer, target, source] for kinds without heads. They are
        kept by the trace, and those of "attention" are its own: clone them before you edit them.
    kind
        The name of the kind.
    axes
        The names of the axes of ``values``.
    error
        The certificate; ``trace.kinds[kind].certificate`` says what it measures.
    rest
        [layer, target], the length of the part that belongs to no token; None for kinds without.
    own, others
        [layer, target], the length of what a token sends to itself, and that of the sum of all that
        the others send; None for kinds without.
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
        """The same map with the part of no token as one more column, the last.

        Raises
        ------
        ProsectError
            If the kind has no such part.
        """
        if self.rest is None:
            raise ProsectError(f"The kind {self.kind!r} has no part that belongs to no token.")
        return replace(self, values=torch.cat([self.values, self.rest[..., None]], dim=-1))

    def mixing(self) -> Float[Tensor, "layer target"]:
        """The context-mixing ratio of every token (Kobayashi et al. 2021): 0 only itself, 1 only others.

        Vectors are summed before their length is taken. Where nothing is written, nothing is mixed: 0.

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
    """How a map is made, for the kinds that take these options.

    Attributes
    ----------
    value_bias
        Whether the value's bias is part of what a token sends, as in the papers, or of the rest.
    baseline
        Where integrated gradients of a feed-forward start: at "zero", as in the paper, or at the part
        of its input that is no token's, "bias". From zero, the biases share in the non-linearity like
        a token; from the biases, only what tokens add to them is attributed.
    measure
        "norm": the length of each part. "alti": how much nearer it brings the output in L1, as shares
        (Ferrando et al. 2022).

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
        """The names of the options that are not as they are by default."""
        default = vars(Options())
        return [name for name, value in vars(self).items() if value != default[name]]


@dataclass(frozen=True, eq=False)
class Values:
    """What a computation gives: the numbers of a map, without the name of its kind."""

    values: Tensor
    error: float
    rest: Float[Tensor, "layer target"] | None = None
    own: Float[Tensor, "layer target"] | None = None
    others: Float[Tensor, "layer target"] | None = None


def attention(analyses: Analyses, _: Options) -> Values:
    """The attention weights of the run, as they are."""
    alpha = analyses.run.attention
    return Values(alpha, float((alpha.sum(-1) - 1).abs().max()))


def norm(analyses: Analyses, options: Options) -> Values:
    """The length of what each head takes from each source."""
    found = [
        scopes.norm_map(layer.attention, options.value_bias) for layer in analyses.run.stream.layers
    ]
    chosen = Options(value_bias=options.value_bias)
    error = max(layer["ATTN"].error for layer in scopes_of(analyses, chosen, feed_forward=False))
    return Values(torch.stack(found), error)


def scope(analyses: Analyses, options: Options, *, name: str, feed_forward: bool) -> Values:
    """The lengths of the parts at one place of each layer.

    Parameters
    ----------
    name
        Of the scope, as the engine calls it.
    feed_forward
        Whether it comes after the feed-forward.
    """
    found = [layer[name] for layer in scopes_of(analyses, options, feed_forward)]
    return Values(
        values=torch.stack([one.values for one in found]),
        error=max(one.error for one in found),
        rest=torch.stack([one.rest for one in found]),
        own=torch.stack([one.own for one in found]),
        others=torch.stack([one.others for one in found]),
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
        Whether the one before comes after the feed-forward too.
    """
    a = scope(analyses, options, name=before, feed_forward=read_before)
    b = scope(analyses, options, name=after, feed_forward=True)
    return Values(b.values - a.values, max(a.error, b.error))


def scopes_of(analyses: Analyses, options: Options, feed_forward: bool) -> list[dict[str, Scope]]:
    """Every scope of each layer by name, through the feed-forward or up to it; computed once."""

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

    # beside attention a feed-forward reads each token alone: its scopes come with the others
    beside = any(block.parallel for block in analyses.anatomy.blocks)
    through = feed_forward or beside
    return analyses.once(("scopes", through, options), compute)


def scopes_are_known(analyses: Analyses) -> bool:
    """Whether every scope is computed, through the feed-forward and with the default options."""
    return analyses.known(("scopes", True, Options())) is not None


def contribution(analyses: Analyses, options: Options) -> Values:
    """The length of each input token's part in each hidden state, through all layers so far."""
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
    """How far each output turns where the values of one source are set to zero.

    The certificate: in each layer the value vector that attention takes most from is really set to
    zero in the model, and the layer's output is compared.
    """
    layers = analyses.run.stream.layers
    places = [zeroing.strongest(layer) for layer in layers]
    outputs = [zeroing.silenced(layer, *place) for layer, place in zip(layers, places, strict=True)]
    expected = silenced_in_model(analyses.anatomy, analyses.run, places)
    gap = relative_gap(torch.stack(outputs), expected)
    error = agreed(gap, "The output with a value at zero", analyses.dtype)
    return Values(torch.stack([zeroing.value_zeroing(layer) for layer in layers]), error)


def visible(analyses: Analyses) -> Sequence[Bool[Tensor, "target source"]]:
    """Of every layer, which sources each target may attend to."""
    attention = analyses.run.attention
    everything = torch.ones(attention.shape[-2:], dtype=torch.bool, device=attention.device)
    masks = [layer.attention.visible for layer in analyses.run.stream.layers]
    return [everything if mask is None else mask for mask in masks]
