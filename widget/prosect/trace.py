"""Trace: everything that one forward pass computed, with its analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from jaxtyping import Float
from torch import Tensor

from prosect.analyses import attribution as attributions
from prosect.analyses import comparison, effective, identity, predictions
from prosect.analyses import kinds as table
from prosect.analyses import terms as splits
from prosect.analyses.attribution import Attribution
from prosect.analyses.cache import Analyses
from prosect.analyses.comparison import Comparison, GainRelation
from prosect.analyses.effective import AttentionIdentifiability, EffectiveCorrelation, NullSpace
from prosect.analyses.identity import Candidates, Identity
from prosect.analyses.kinds import Kind
from prosect.analyses.maps import Options, PartMeasure, TokenMap
from prosect.analyses.predictions import LogitContributions, Prediction
from prosect.analyses.terms import Neurons, Parts, Terms
from prosect.anatomy.vocabulary import Anatomy, Term
from prosect.capture.run import Run
from prosect.engines.activation import Baseline
from prosect.engines.linear import Centring
from prosect.engines.nearest import Metric
from prosect.engines.splits import By
from prosect.modes import in_plain_arithmetic
from prosect.tokens import Token

if TYPE_CHECKING:
    from prosect.lens import Lens
    from prosect.views import Explorer

Targets = Sequence[int] | None
"""Positions of tokens; None: all tokens."""


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One forward pass of a model, or of its encoder or decoder, on one text.

    Layers, heads and positions count from 0; a negative position or state counts from the end. Every
    method raises a ``ProsectError`` if an argument is invalid, and a ``ReconstructionError`` if the
    parts do not add up to what the model computed.

    Attributes
    ----------
    lens
        The model with its tokenizer.
    anatomy
        The parts of the model, of its encoder or of its decoder.
    texts
        The text, or the two texts of a pair.
    tokens
        The tokens that the model read, one :class:`~prosect.tokens.Token` per position.
    run
        Everything that the forward pass computed.
    encoder
        For the trace of a decoder: the trace of the text that it attends to.
    """

    lens: Lens
    anatomy: Anatomy
    texts: tuple[str, ...]
    tokens: list[Token]
    run: Run
    encoder: Trace | None = None

    def __repr__(self) -> str:
        text = f"{len(self.tokens)} tokens, {self.texts[0][:40]!r}"
        if self.encoder is not None:
            read = self.encoder
            text = f"{len(read.tokens)} tokens, {read.texts[0][:40]!r} → {text}"
        return f"Trace({self.lens.name}: {text})"

    @cached_property
    def analyses(self) -> Analyses:
        """The argument of the functions in :mod:`prosect.analyses`; it keeps their results."""
        return Analyses(self.run, self.anatomy, self.run.dtype)

    @property
    def hidden(self) -> Float[Tensor, "layer+1 token d"]:
        """The hidden states, as ``hidden_states`` of transformers; the last is after the final norm."""
        return self.run.hidden

    @property
    def attention(self) -> Float[Tensor, "layer head target source"]:
        """The attention weights α among the tokens."""
        return self.run.attention

    @property
    def cross_attention(self) -> Float[Tensor, "layer head target source"] | None:
        """The attention weights from the decoder's tokens to the encoder's; None without an encoder."""
        return self.run.cross_attention

    @overload
    def terms(self, *, centring: Centring = "bias") -> Terms: ...
    @overload
    def terms(
        self, by: By, *, state: int = -1, targets: Targets = None, centring: Centring = "bias"
    ) -> Parts: ...
    def terms(
        self,
        by: By | None = None,
        *,
        state: int = -1,
        targets: Targets = None,
        centring: Centring = "bias",
    ) -> Terms | Parts:
        """Split hidden states into the four terms (Mickus et al. 2022), or one state into finer parts.

        Without ``by``: the terms of every hidden state, [term, layer+1, token, d]. With ``by``: the
        parts of ``hidden[state]`` at ``targets`` (all by default), [part, target, d], by "layer",
        "head", "source", "norm" or "embedding". ``centring``: the means that norms subtract belong to
        the "bias" term, as in the paper, or "each" part loses its own mean. Details:
        :func:`prosect.analyses.terms.terms`.
        """
        return splits.terms(self.analyses, by, state, targets, centring)

    def neurons(self, layer: int, token: int, k: int = 10) -> Neurons:
        """The k largest contributions of a layer's neurons to one token, and the sum of the others."""
        return splits.neurons(self.analyses, layer, token, k)

    def predict(
        self, terms: Term | Sequence[Term] | None = None, position: int = -1, k: int = 10
    ) -> list[Prediction]:
        """The k most probable tokens that the model's head predicts from the sum of some terms.

        ``terms`` are names such as ``("input", "attention")``. By default all terms are summed, which
        gives the predictions of the model. Raises ``UnsupportedModelError`` if the model has no head
        that predicts tokens.
        """
        model, start = self._model_with_head, None if self.encoder is None else self.tokens[0].id
        tokenizer = self.lens.tokenizer
        return predictions.predict(self.analyses, model, tokenizer, terms, position, k, start)

    def logit_contributions(
        self, token: int | Prediction, position: int = -1, *, baseline: Baseline = "zero"
    ) -> LogitContributions:
        """The signed contribution of each input token to the logit of a token at a position: [source].

        The contributions pass through all layers and the head, and their sum is exact. ``token`` is an
        index in the vocabulary or a prediction, such as ``trace.predict()[0]``; for ``baseline``, see
        :meth:`map`.
        """
        model = self._model_with_head
        return predictions.logit_contributions(self.analyses, model, token, position, baseline)

    @property
    def _model_with_head(self) -> Any:
        predictions.check_head_reads(self.anatomy, self.lens.decoder)
        return self.lens.model

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of map of this model, by name; ``print`` a kind for its description."""
        return table.kinds(self.analyses)

    def map(
        self,
        kind: str = "attention",
        *,
        rest: bool = False,
        value_bias: bool = True,
        baseline: Baseline = "zero",
        measure: PartMeasure = "norm",
    ) -> TokenMap:
        """How much each source token contributes to each target token, by one of the ``kinds``.

        The map is computed once and kept: clone its values before you edit them in place.
        "attribution" is exact here and may take long; :meth:`attribution` can estimate it.

        ``kind`` is the name of a kind in ``trace.kinds``. "attention", "norm", "effective" and "null"
        are by head, [layer, head, target, source]. The others are by layer, [layer, target, source]:
        the scopes of Kobayashi et al. (2024), such as "ATB", "contribution", "value_zeroing" and so
        on. ``rest`` adds the part that belongs to no token (biases) as a last column. The other
        options are those of :class:`prosect.analyses.maps.Options`; not every kind takes them.
        """
        token_map = table.token_map(self.analyses, kind, Options(value_bias, baseline, measure))
        return token_map.with_rest() if rest else token_map

    def computed(self, kind: str) -> bool:
        """Whether the map of a kind is already computed, with the default options."""
        return table.computed(self.analyses, kind)

    def compare(self, before: str, after: str) -> Comparison:
        """The difference between two kinds of map by layer, such as "ATB" and "ATBFF"."""
        return comparison.compare(self.analyses, self.tokens, before, after)

    def cancellation(self) -> dict[str, Float[Tensor, "layer"]]:
        """By scope, the share of the feed-forward's change that later steps undo; negative: amplify."""
        return comparison.cancellation(self.analyses)

    def gains(self) -> list[GainRelation]:
        """How the norm after each feed-forward scales the dimensions of its output."""
        return comparison.gains(self.analyses)

    def rollout(self, kind: str = "ATB", residual: float = 0.0) -> TokenMap:
        """Multiply the maps of the single layers (Abnar & Zuidema 2020; GlobEnc, 2022).

        ``kind`` must be one whose ``rolls_out`` is true. Each map is normalised to rows that sum to 1;
        then ``residual`` is the share of the identity that is mixed into it: 0.5 for "attention", 0
        for maps that include the residual connection.
        """
        return comparison.rollout(self.analyses, kind, residual)

    def attention_identifiability(
        self, value_bias: bool = True, tolerance: float | None = None
    ) -> AttentionIdentifiability:
        """Whether each head's output determines its attention (Brunner et al. 2020).

        The ranks are those of the row that attends to most tokens. Singular values below
        ``tolerance``, a share of the largest, count as zero; the default is the rounding error of the
        model's precision. ``value_bias``: whether the value vectors include their bias.
        """
        return effective.attention_identifiability(self.analyses, value_bias, tolerance)

    def nullspace(
        self, layer: int, head: int, *, value_bias: bool = True, tolerance: float | None = None
    ) -> NullSpace:
        """The directions in which one head's attention can change without changing its output.

        Each row changes only at the tokens that it attends to. For the options, see
        :meth:`attention_identifiability`.
        """
        return effective.nullspace(self.analyses, layer, head, value_bias, tolerance)

    def effective_correlation(self, value_bias: bool = True, seed: int = 0) -> EffectiveCorrelation:
        """The correlation of attention with effective attention, and that of random matrices."""
        special = [i for i, token in enumerate(self.tokens) if token.special]
        return effective.effective_correlation(self.analyses, special, value_bias, seed)

    def attribution(
        self,
        probes: int | None = None,
        layers: Sequence[int] | None = None,
        targets: Targets = None,
        *,
        start: int = 0,
        times_input: bool = False,
        head: tuple[int, int] | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Attribution:
        """Hidden Token Attribution (Brunner et al. 2020): how input tokens influence hidden vectors.

        It is exact, or estimated from ``probes`` random probes per token, with standard errors.
        ``layers`` and ``targets`` select the vectors; all by default. ``start`` is the hidden state of
        the sources. ``times_input``: derivatives along the input vectors. ``head``, (layer, head): the
        attribution of the output of one head. ``seed`` is that of the probes. ``progress``: whether to
        show a progress bar. Raises ``UnsupportedModelError`` for DeBERTa. Details:
        :func:`prosect.analyses.attribution.attribution`.
        """
        return attributions.attribution(
            self.analyses,
            probes,
            layers,
            targets,
            start=start,
            times_input=times_input,
            head=head,
            seed=seed,
            progress=progress,
        )

    def identify(
        self,
        k: int = 10,
        metric: Metric = "cosine",
        candidates: Candidates = "sentence",
        *,
        positions: bool = False,
        stem: bool = True,
    ) -> Identity:
        """The k input embeddings nearest to every hidden state (Brunner et al. 2020, section 3).

        ``metric`` is "cosine", "l2" or "dot"; ``candidates`` are the embeddings of this "sentence" or
        of the "vocabulary". With the vocabulary, ``positions`` adds position and type embeddings to
        each candidate, and ``stem`` applies the embedding norm and projection to it. The result is
        computed once and kept.
        """
        return identity.identify(
            self.analyses, self.tokens, self.lens.tokenizer, k, metric, candidates, positions, stem
        )

    def identified(
        self, k: int = 10, metric: Metric = "cosine", candidates: Candidates = "sentence"
    ) -> bool:
        """Whether the result of :meth:`identify` is already computed."""
        return identity.is_identified(self.analyses, k, metric, candidates)

    def explore(self, **traits: int | str) -> Explorer:
        """Open the linked views of this trace in one widget.

        ``traits`` are the initial selection: ``layer``, ``head``, ``target``, ``source``, ``kind``;
        ``candidates`` and ``metric`` of the neighbours; ``theme`` ("auto", "light" or "dark").
        """
        from prosect.views import Explorer  # views import traces, so not at the top of the file

        return Explorer(self, **traits)
