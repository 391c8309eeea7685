"""Trace: everything that one forward pass computed, and what can be asked of it."""

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
"""The positions of tokens; None is all of them."""


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text through one model, or through the encoder or the decoder of one.

    Layers and heads count from 0, and so do positions; a negative position or state counts from the
    end. Every method raises a ``ProsectError`` of one sentence where an argument is not one of those
    allowed, and a ``ReconstructionError`` where parts do not add up to what the model computed.

    Attributes
    ----------
    lens, anatomy
        What it was traced with, and the parts of the stack that was run.
    texts
        The text, or the two of a pair.
    tokens
        What the model read, one :class:`~prosect.tokens.Token` a position.
    run
        Everything that the forward pass computed.
    encoder
        For a decoder's trace: the trace of the text that it attends to.
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
        """The run as the functions of :mod:`prosect.analyses` take it; it keeps their results."""
        return Analyses(self.run, self.anatomy, self.run.dtype)

    @property
    def hidden(self) -> Float[Tensor, "layer+1 token d"]:
        """The hidden states, as transformers' ``hidden_states``: the last is after the final norm."""
        return self.run.hidden

    @property
    def attention(self) -> Float[Tensor, "layer head target source"]:
        """The attention weights α among the tokens."""
        return self.run.attention

    @property
    def cross_attention(self) -> Float[Tensor, "layer head target source"] | None:
        """In a decoder: the attention weights from its tokens to the encoder's; else None."""
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
        """Split every hidden state into its four terms (Mickus et al. 2022), or one state finer.

        Without ``by``, [term, layer+1, token, d]. With it, the parts [part, target, d] of
        ``hidden[state]`` at ``targets`` (all by default): by "layer", "head", "source", "norm" or
        "embedding". ``centring`` says where the means that norms subtract go: to the "bias" term, as
        in the paper, or "each" part loses its own. Details: :func:`prosect.analyses.terms.terms`.
        """
        return splits.terms(self.analyses, by, state, targets, centring)

    def neurons(self, layer: int, token: int, k: int = 10) -> Neurons:
        """The k neurons of a layer's feed-forward that wrote most to one token, and an exact rest."""
        return splits.neurons(self.analyses, layer, token, k)

    def predict(
        self, terms: Term | Sequence[Term] | None = None, position: int = -1, k: int = 10
    ) -> list[Prediction]:
        """The k tokens that the model's own head predicts at a position from the sum of some terms.

        ``terms`` are names such as ``("input", "attention")``; all by default: the model's own
        predictions. Raises ``UnsupportedModelError`` where the model has no head that predicts tokens.
        """
        model, start = self._model_with_head, None if self.encoder is None else self.tokens[0].id
        tokenizer = self.lens.tokenizer
        return predictions.predict(self.analyses, model, tokenizer, terms, position, k, start)

    def logit_contributions(
        self, token: int | Prediction, position: int = -1, *, baseline: Baseline = "zero"
    ) -> LogitContributions:
        """What each input token adds to the logit of a token at a position, signed: [source].

        ``token`` is its index in the vocabulary, or a prediction: ``trace.predict()[0]``. Through all
        layers and the head, exactly; ``baseline`` is as in :meth:`map`.
        """
        model = self._model_with_head
        return predictions.logit_contributions(self.analyses, model, token, position, baseline)

    @property
    def _model_with_head(self) -> Any:
        predictions.check_head_reads(self.anatomy, self.lens.decoder)
        return self.lens.model

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of map that this model has, by name; ``print`` one to read what it shows."""
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
        """How much each source token passes to each target token, by one of the ``kinds`` of map.

        Computed once and kept: clone the values before you edit them in place. "attribution" is exact
        here and may take long; :meth:`attribution` estimates it.

        ``kind`` is its name: "attention" and "norm" by head, [layer, head, target, source]; by layer,
        [layer, target, source], the scopes of Kobayashi et al. (2024) that the model has, such as
        "ATB"; "contribution", "value_zeroing" and the others of ``trace.kinds``. ``rest`` adds the
        part that belongs to no token (biases) as a last column. The other options, for the kinds that
        take them, are those of :class:`prosect.analyses.maps.Options`.
        """
        found = table.token_map(self.analyses, kind, Options(value_bias, baseline, measure))
        return found.with_rest() if rest else found

    def computed(self, kind: str) -> bool:
        """Whether the map of a kind is there already, with its default options."""
        return table.computed(self.analyses, kind)

    def compare(self, before: str, after: str) -> Comparison:
        """The change between two kinds of map of the layer, such as "ATB" and "ATBFF"."""
        return comparison.compare(self.analyses, self.tokens, before, after)

    def cancellation(self) -> dict[str, Float[Tensor, "layer"]]:
        """By scope, the share of the feed-forward's change that is undone by then; negative: more."""
        return comparison.cancellation(self.analyses)

    def gains(self) -> list[GainRelation]:
        """How the norm after each feed-forward weighs the dimensions it writes to, where one follows."""
        return comparison.gains(self.analyses)

    def rollout(self, kind: str = "ATB", residual: float = 0.0) -> TokenMap:
        """Multiply the maps of single layers over the layers (Abnar & Zuidema 2020; GlobEnc, 2022).

        Of kinds whose ``rolls_out`` is true. ``residual`` is the share of the identity mixed into each
        map once its rows sum to 1: 0.5 for "attention", 0 for maps with the residual connection.
        """
        return comparison.rollout(self.analyses, kind, residual)

    def attention_identifiability(
        self, value_bias: bool = True, tolerance: float | None = None
    ) -> AttentionIdentifiability:
        """How far each head's attention is determined by its output (Brunner et al. 2020).

        Of the row that sees most tokens. Singular values below ``tolerance``, a share of the largest,
        count as zero; by default the rounding error of the model's precision. ``value_bias`` says
        whether value vectors are taken as the model uses them, or without their bias.
        """
        return effective.attention_identifiability(self.analyses, value_bias, tolerance)

    def nullspace(
        self, layer: int, head: int, *, value_bias: bool = True, tolerance: float | None = None
    ) -> NullSpace:
        """The directions in which one head's attention can move without changing its output.

        Each row moves within the tokens that it sees. The options are those of
        :meth:`attention_identifiability`.
        """
        return effective.nullspace(self.analyses, layer, head, value_bias, tolerance)

    def effective_correlation(self, value_bias: bool = True, seed: int = 0) -> EffectiveCorrelation:
        """How alike attention and effective attention are, beside random matrices of that size."""
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
        """How much each input token moves each vector (Hidden Token Attribution, Brunner et al. 2020).

        Exact, or estimated from ``probes`` random probes a token, with standard errors; after
        ``layers`` and at ``targets``, all by default. From hidden state ``start``; ``times_input``:
        along the input vectors; ``head``, (layer, head): of what one head writes; ``seed``: of the
        probes; ``progress``: whether to show a bar. Raises ``UnsupportedModelError`` for DeBERTa.
        Details: :func:`prosect.analyses.attribution.attribution`.
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

        By the ``metric`` "cosine", "l2" or "dot", among the ``candidates`` of this "sentence" or of
        the "vocabulary". With the vocabulary, ``positions`` adds position and type embeddings to each
        candidate, and ``stem`` takes it through the embedding norm and projection. Computed once.
        """
        return identity.identify(
            self.analyses, self.tokens, self.lens.tokenizer, k, metric, candidates, positions, stem
        )

    def identified(
        self, k: int = 10, metric: Metric = "cosine", candidates: Candidates = "sentence"
    ) -> bool:
        """Whether :meth:`identify` has found these neighbours before."""
        return identity.is_identified(self.analyses, k, metric, candidates)

    def explore(self, **traits: int | str) -> Explorer:
        """Open the linked views of this trace in one widget.

        ``traits`` say where to start: ``layer``, ``head``, ``target``, ``source``, ``kind``;
        ``candidates`` and ``metric`` of the neighbours; ``theme`` ("auto", "light" or "dark").
        """
        from prosect.views import Explorer  # views look down on traces, not the other way round

        return Explorer(self, **traits)
