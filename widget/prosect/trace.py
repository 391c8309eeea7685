"""Trace: everything that one forward pass computed, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, get_args, overload

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.analyses.attribution import Attribution
from prosect.analyses.certificate import certified
from prosect.analyses.effective import EffectiveCorrelation, Freedom, NullSpace, correlate
from prosect.analyses.identity import Identity, search
from prosect.analyses.kinds import Kind
from prosect.analyses.maps import Comparison, GainRelation, Maps, Measure, TokenMap
from prosect.analyses.predictions import LogitContributions, Prediction, logits_of_one
from prosect.analyses.terms import Neurons, Parts, Terms
from prosect.anatomy.heads import head_of
from prosect.anatomy.vocabulary import Anatomy, Term
from prosect.capture.run import Run
from prosect.capture.weights import head_record_of
from prosect.engines import contributions, measures, nearest
from prosect.engines.activation import Baseline
from prosect.engines.linear import Centring
from prosect.engines.logits import logit_parts
from prosect.engines.splits import By
from prosect.errors import ProsectError
from prosect.tokens import Token, token_label, vocabulary_labels
from prosect.validation import check_count, check_flag, check_share, listed, whole_number

MEMORY = 2**31
"""How many bytes the parts of one split may take."""

if TYPE_CHECKING:
    from prosect.lens import Lens
    from prosect.views import Explorer


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One text through one model, or through the encoder or the decoder of one.

    Attributes
    ----------
    lens
        What it was traced with.
    anatomy
        The parts of the stack that was run.
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
            source = self.encoder
            text = f"{len(source.tokens)} tokens, {source.texts[0][:40]!r} → {text}"
        return f"Trace({self.lens.name}: {text})"

    @property
    def hidden(self) -> Float[Tensor, "layer+1 token d"]:
        """The hidden states, as transformers' ``hidden_states``.

        0 enters the first block, the last is after the final norm, where there is one. In float32,
        or float64 for a float64 model.
        """
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
        self,
        by: By,
        *,
        state: int = -1,
        targets: Sequence[int] | None = None,
        centring: Centring = "bias",
    ) -> Parts: ...

    def terms(
        self,
        by: By | None = None,
        *,
        state: int = -1,
        targets: Sequence[int] | None = None,
        centring: Centring = "bias",
    ) -> Terms | Parts:
        """Split every embedding into its four terms (Mickus et al. 2022), or one layer's finer.

        Parameters
        ----------
        by
            Nothing: the terms of every hidden state, [term, layer+1, token, d]. Else the parts of
            one hidden state, [part, target, d]: "layer", what each sublayer of each layer wrote;
            "head", attention by head too; "source", each head's part from each source token too;
            "norm", the bias term by norm and sublayer; "embedding", the input by kind of embedding.
        state
            Which hidden state is split finer; the last by default.
        targets
            The positions of the tokens that are split finer; all by default. With "source" there
            are layers × heads × tokens parts a target, so name the targets in long texts.
        centring
            "bias": the means that norms subtract belong to the bias term, as in the paper. "each":
            every part loses its own mean. The sum is the same.

        Raises
        ------
        ReconstructionError
            If the parts do not add up to the hidden states; it names where they stop doing so.
        ProsectError
            If an argument is not one of these, or the parts would not fit in memory.
        """
        if centring not in get_args(Centring):
            raise ProsectError(f"There is no centring {centring!r}: choose 'bias' or 'each'.")
        dtype = self.lens.model.dtype
        if by is None and (targets is not None or state != -1):
            raise ProsectError("state and targets go with by: the terms are those of every state.")
        if by is None:
            if centring == "bias":
                return self._terms
            stream, names = self.run.stream, self.anatomy.terms
            return Terms.of(stream, self.hidden, names, dtype, centring)
        if by not in get_args(By):
            known = ", ".join(get_args(By))
            raise ProsectError(f"There is no split by {by!r}: choose one of {known}.")
        layer = self._state(state)
        places = self._positions(targets)
        self._check_memory(by, len(places))
        return Parts.of(self.run.stream, self.hidden, dtype, by, layer, places, centring)

    @cached_property
    def _terms(self) -> Terms:
        dtype = self.lens.model.dtype
        return Terms.of(self.run.stream, self.hidden, self.anatomy.terms, dtype)

    def neurons(self, layer: int, token: int, k: int = 10) -> Neurons:
        """Split what one feed-forward wrote to one token by neuron.

        Parameters
        ----------
        layer
            From 0, as ``attention`` counts layers.
        token
            The token's position.
        k
            How many neurons to name; all the others are one exact rest.

        Raises
        ------
        ProsectError
            If there is no such layer or token, or k is not at least 1.
        """
        (position,) = self._positions([whole_number(token, "token")])
        layer = whole_number(layer, "layer")
        if not 0 <= layer < len(self.anatomy.blocks):
            last = len(self.anatomy.blocks) - 1
            raise ProsectError(f"There is no layer {layer}: layers count from 0 to {last}.")
        check_count(k, "k")
        record = self.run.stream.layers[layer].feed_forward
        return Neurons.of(record, position, k, self.lens.model.dtype)

    def predict(
        self, terms: Term | Sequence[Term] | None = None, position: int = -1, k: int = 10
    ) -> list[Prediction]:
        """The tokens that the model's own head predicts from the sum of some terms.

        The head is used as the model uses it, its transform included; the terms of a model with a
        final norm are those after it.

        Parameters
        ----------
        terms
            Which terms to add up, such as ``("input", "attention")``; all by default, which gives
            the model's own predictions.
        position
            Of the token at which to predict; negative counts from the end.
        k
            How many predictions, most probable first.

        Raises
        ------
        ProsectError
            If the model has no head that predicts tokens, or an argument is out of range.
        """
        if isinstance(terms, str):
            terms = (terms,)
        names = self.anatomy.terms if terms is None else tuple(dict.fromkeys(terms))
        unknown = [name for name in names if name not in self.anatomy.terms]
        if unknown:
            known = ", ".join(self.anatomy.terms)
            raise ProsectError(f"There is no term {unknown[0]!r}: choose from {known}.")
        check_count(k, "k")
        self._check_head_is_here()
        (place,) = self._positions([whole_number(position, "position")])
        split = self.terms()
        chosen = [split.names.index(name) for name in names]
        vector = split.values[chosen, -1, place].sum(0)
        start = None if self.encoder is None else self.tokens[0].id
        logits = logits_of_one(self.lens.model, self.anatomy, vector, start)
        probabilities = logits.softmax(-1)
        best = probabilities.topk(min(k, len(probabilities))).indices.tolist()
        return [
            Prediction(
                label=token_label(id, self.lens.tokenizer),
                id=id,
                probability=float(probabilities[id]),
                logit=float(logits[id]),
            )
            for id in best
        ]

    def _check_head_is_here(self) -> None:
        if self.encoder is None and self.lens.decoder is not None:
            raise ProsectError(
                "The head of this model sits on its decoder: "
                "trace with a target, lens.trace(text, target=...), and predict from that."
            )

    def _state(self, state: int) -> int:
        count = len(self.hidden)
        state = whole_number(state, "state")
        if not -count <= state < count:
            raise ProsectError(f"There is no state {state}: states count from 0 to {count - 1}.")
        return state % count

    def _positions(self, targets: Sequence[int] | None) -> list[int]:
        count = len(self.tokens)
        if targets is None:
            return list(range(count))
        places = listed(targets, "targets")
        if not places:
            raise ProsectError("There are no targets: name at least one, or leave targets out.")
        for target in places:
            if not -count <= target < count:
                raise ProsectError(
                    f"There is no token {target}: positions count from 0 to {count - 1}."
                )
        return [target % count for target in places]

    def _check_memory(self, by: By, targets: int) -> None:
        if by != "source":
            return
        layers, heads, _, sources = self.attention.shape
        needed = layers * heads * sources * targets * self.hidden[-1, 0].nbytes
        if needed > MEMORY:
            raise ProsectError(
                f"By source these {targets} tokens have parts of {needed / 2**30:.1f} GiB: "
                f"name at most {max(1, int(MEMORY * targets // needed))} targets."
            )

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of map that this model has, by name."""
        return self._maps.kinds

    @cached_property
    def _maps(self) -> Maps:
        return Maps(self.run, self.anatomy, self.lens.model.dtype)

    def map(
        self,
        kind: str = "attention",
        *,
        rest: bool = False,
        value_bias: bool = True,
        baseline: Baseline = "zero",
        measure: Measure = "norm",
    ) -> TokenMap:
        """How much each source token passes to each target token, by one of the kinds of map.

        Computed once and kept: clone the values before you edit them in place. ``trace.kinds`` lists
        the kinds with a sentence on each: "attention" and "norm" by head; by layer the scopes of
        Kobayashi et al. (2024) that the model has; "contribution", the parts of each input token
        pushed through all layers so far; "value_zeroing", an intervention to hold them against.
        "attribution" is exact here; where it takes more than a few seconds a bar appears, and
        :meth:`attribution` estimates it.

        Parameters
        ----------
        kind
            Its name.
        rest
            Add the part that belongs to no token (biases) as a last column.
        value_bias
            Whether the value's bias is part of what a token sends, as in the papers, or of the rest;
            ``trace.kinds[kind].options`` says which kinds take it.
        baseline
            Where integrated gradients of a feed-forward start, for kinds with one in them: "zero", as
            in the paper, or "bias", the token-less part of its input. From zero, the biases share in
            the non-linearity like a token; from the biases, only what tokens add to them is attributed.
        measure
            "norm": the length of each part. "alti": how much nearer it brings the output in L1, as
            shares (Ferrando et al. 2022).

        Raises
        ------
        ProsectError
            If there is no such kind, or it does not take an option; the message lists those that
            there are, or that do.
        ReconstructionError
            If the parts do not add up to what the model computed.
        """
        found = self._maps.map(kind, value_bias=value_bias, baseline=baseline, measure=measure)
        return found.with_rest() if rest else found

    def computed(self, kind: str) -> bool:
        """Whether the map of a kind is there already, with its default options."""
        return self._maps.computed(kind)

    def logit_contributions(
        self, token: int | Prediction, position: int = -1, *, baseline: Baseline = "zero"
    ) -> LogitContributions:
        """What each input token adds to the logit of a token, through all layers and the head.

        The parts of "contribution", pushed on through the model's own head: signed, exact, with all
        that is frozen on the way taken from the run. Of a capped logit, what is before the cap.

        Parameters
        ----------
        token
            The predicted token's index in the vocabulary, or a prediction: ``trace.predict()[0]``.
        position
            Where it is predicted; negative counts from the end.
        baseline
            As in :meth:`map`.

        Raises
        ------
        ProsectError
            If there is no such token, position or baseline, or the model has no head that predicts
            tokens.
        ReconstructionError
            If the parts do not add up to the logit.
        """
        id = whole_number(token.id if isinstance(token, Prediction) else token, "token")
        self._check_head_is_here()
        (place,) = self._positions([whole_number(position, "position")])
        head = head_record_of(head_of(self.lens.model), self.lens.model, self.hidden.device)
        _, size = head.decoder.weight.shape
        if not 0 <= id < size:
            raise ProsectError(f"The vocabulary counts from 0 to {size - 1}, not {id}.")
        parts, rest = self._maps.last_parts(place, baseline)
        values, left = logit_parts(parts, rest, head, id)
        whole_vector = self.hidden[-1, place]
        _, logit = logit_parts(whole_vector[None] * 0, whole_vector, head, id)
        gap = (values.sum() + left - logit).abs()
        # nothing that is the sum of nothings is split exactly
        error = float(gap / (values.abs().sum() + left.abs())) if bool(gap != 0) else 0.0
        certified(error, "the logit", self.lens.model.dtype)
        return LogitContributions(values, float(left), float(logit), error)

    def compare(self, before: str, after: str) -> Comparison:
        """What lies between two kinds of map of the layer, such as "ATB" and "ATBFF".

        Raises
        ------
        ProsectError
            If there is no such kind, or one has heads and the other has not.
        """
        a, b = self.map(before), self.map(after)
        if a.axes != b.axes or "head" in a.axes:
            raise ProsectError(f"{before!r} and {after!r} are not both maps of whole layers.")
        seen = torch.stack(self._maps.visible())
        if self.kinds[before].whole or self.kinds[after].whole:
            # earlier layers let a token see beyond the window of this one
            seen |= (a.values != 0) | (b.values != 0)
        # pairs that cannot be seen are zero before and after: they are no agreement
        change = [
            measures.contextualization_change(x[own], y[own])
            for x, y, own in zip(a.values, b.values, seen, strict=True)
        ]
        values = b.values - a.values
        return Comparison(values, before, after, torch.tensor(change), self.tokens, seen)

    def cancellation(self) -> dict[str, Float[Tensor, "layer"]]:
        """How much of what the feed-forward changes in the map later steps of the layer undo.

        By the name of the scope, the share of the change from before the feed-forward to after it
        that is taken back from there to this scope: 1 is all of it, 0 nothing, negative more change.
        Maps are compared with rows that sum to 1; where nothing changed, as in a text of one token,
        nothing is taken back.
        """
        names = [name for name in self.kinds if name.startswith("ATB")]
        fed = next((i for i, name in enumerate(names) if name.endswith("FF")), None)
        if not fed:  # no map before it to compare with
            return {}
        before, after = (self.map(name).values for name in names[fed - 1 : fed + 1])
        found = {}
        for name in names[fed + 1 :]:
            later = self.map(name).values
            rows = zip(before, after, later, strict=True)
            found[name] = torch.tensor([measures.undone(x, y, z) for x, y, z in rows])
        return found

    def gains(self) -> list[GainRelation]:
        """How the norm after each feed-forward weighs the dimensions that it writes to.

        A layer each, where a norm with a gain follows (Kobayashi et al. 2024: it shrinks the outlier
        dimensions that the feed-forward pushes). Empty for models whose norms all come before what
        they feed, such as GPT-2 and LLaMA.
        """
        return self._maps.gains()

    def rollout(self, kind: str = "ATB", residual: float = 0.0) -> TokenMap:
        """Roll a map of whole layers out over them (Abnar & Zuidema 2020; GlobEnc, 2022).

        Parameters
        ----------
        kind
            A norm-based kind of one layer without heads, "value_zeroing", or "attention", whose mean
            over heads is taken.
        residual
            The share of the identity mixed into each map once its rows sum to 1; 0.5 for attention,
            0 for maps that include the residual connection. A row of zeros, where attention writes
            nothing, stays one.

        Raises
        ------
        ProsectError
            If the kind cannot be rolled out, or the residual is not between 0 and 1.
        """
        check_share(residual, "residual")
        found = self.map(kind)
        known = [name for name, one in self.kinds.items() if one.rolls_out]
        if kind not in known:
            raise ProsectError(
                f"The kind {kind!r} cannot be rolled out: choose one of {', '.join(known)}."
            )
        values = found.values.mean(1) if "head" in found.axes else found.values
        rolled = contributions.rollout(values, residual)
        return TokenMap(rolled, f"rollout of {kind}", ("layer", "target", "source"), found.error)

    def freedom(self, value_bias: bool = True, tolerance: float | None = None) -> Freedom:
        """How far the attention of every head is determined by what it does (Brunner et al. 2020).

        Of the row that sees most tokens: of all tokens, or of those in a sliding window.

        Parameters
        ----------
        value_bias
            Whether value vectors are taken as the model uses them, or without their bias.
        tolerance
            Singular values below this share of the largest count as zero; by default the rounding
            error of the model's precision.

        Raises
        ------
        ProsectError
            If the tolerance is no share.
        """
        _check_ranking(value_bias, tolerance)
        return self._maps.freedom(value_bias, tolerance)

    def nullspace(
        self, layer: int, head: int, *, value_bias: bool = True, tolerance: float | None = None
    ) -> NullSpace:
        """The directions in which one head's attention can move without changing its output.

        Each row moves within the tokens that it sees: those before it in a causal model, those near
        it in a sliding window.

        Parameters
        ----------
        layer, head
            From 0.
        value_bias, tolerance
            As in :meth:`freedom`.

        Raises
        ------
        ProsectError
            If there is no such layer or head, or the tolerance is no share.
        """
        layer, head = self._head(layer, head)
        _check_ranking(value_bias, tolerance)
        return self._maps.nullspace(layer, head, value_bias, tolerance)

    def effective_correlation(self, value_bias: bool = True, seed: int = 0) -> EffectiveCorrelation:
        """How alike attention and effective attention are, beside random matrices of the same size.

        Parameters
        ----------
        value_bias
            Whether value vectors are taken with their bias.
        seed
            Of the random baseline.

        Raises
        ------
        ProsectError
            If an argument is not one of these.
        """
        check_flag(value_bias, "value_bias")
        seed = whole_number(seed, "seed")
        kept, _, _ = self._maps.effective(value_bias)
        special = [i for i, token in enumerate(self.tokens) if token.special]
        d_head = self.run.stream.layers[0].attention.value.shape[-1]
        return correlate(self.attention, kept, special, d_head, self._maps.visible(), seed)

    def attribution(
        self,
        probes: int | None = None,
        layers: Sequence[int] | None = None,
        targets: Sequence[int] | None = None,
        *,
        start: int = 0,
        times_input: bool = False,
        head: tuple[int, int] | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Attribution:
        """Hidden Token Attribution: how much each input token moves each vector (Brunner et al. 2020).

        c_ij = |∂e_j/∂x_i|_F / Σ_k |∂e_j/∂x_k|_F with nothing frozen: softmax, norms and activations
        move too. Causal models have zeros right of the diagonal.

        Parameters
        ----------
        probes
            Nothing: exact, by every dimension of every source token. Else an estimate from so many
            random probes a token, with a standard error beside each value.
        layers
            After which layers, from 0; all by default. Not with a head, which writes in its own.
        targets
            The positions of the vectors; all by default.
        start
            The hidden state whose tokens are changed: 0 is the input embeddings.
        times_input
            The change along the input vector itself, so that its size counts; exact, without probes.
        head
            (layer, head): of what one head writes, instead of the hidden vectors. Where a norm
            follows attention before it is added (Gemma 2, OLMo 2), through that norm, with its
            derivative at what all heads of the layer write together.
        seed
            Of the probes.
        progress
            Whether to show a bar with the time left; by default if it takes more than a few seconds.
            It can be interrupted.

        Raises
        ------
        UnsupportedModelError
            If the architecture's scores have no derivative here (DeBERTa).
        ProsectError
            If an argument is out of range.
        """
        if probes is not None and times_input:
            raise ProsectError("times_input needs no probes: it is exact. Leave one of them out.")
        if probes is not None and whole_number(probes, "probes") < 2:
            raise ProsectError(f"probes must be at least 2, for the standard error, not {probes}.")
        count = len(self.anatomy.blocks)
        if not 0 <= whole_number(start, "start") < count:
            raise ProsectError(f"start counts hidden states from 0 to {count - 1}, not {start}.")
        if layers is not None and head is not None:
            raise ProsectError("A head writes in its own layer: give head or layers, not both.")
        wanted = list(range(start, count)) if layers is None else listed(layers, "layers")
        if not wanted:
            raise ProsectError("There are no layers: name at least one, or leave layers out.")
        for layer in wanted:
            if not start <= layer < count:
                raise ProsectError(f"layers count from {start} to {count - 1} here, not {layer}.")
        if head is not None:
            if isinstance(head, str) or not hasattr(head, "__len__") or len(head) != 2:
                raise ProsectError(f"head is a layer and a head, such as (3, 5), not {head!r}.")
            head = self._head(*head)
        found = self._maps.attribution(
            probes=probes,
            layers=wanted,
            start=start,
            times_input=times_input,
            head=head,
            seed=whole_number(seed, "seed"),
            progress=progress,
        )
        return found if targets is None else found.at(self._positions(targets))

    def _head(self, layer: int, head: int) -> tuple[int, int]:
        layers, heads = len(self.anatomy.blocks), self.anatomy.heads
        layer, head = whole_number(layer, "layer"), whole_number(head, "head")
        if not (0 <= layer < layers and 0 <= head < heads):
            raise ProsectError(
                f"There is no head {head} in layer {layer}: "
                f"layers count from 0 to {layers - 1}, heads from 0 to {heads - 1}."
            )
        return layer, head

    def identify(
        self,
        k: int = 10,
        metric: nearest.Metric = "cosine",
        candidates: Literal["sentence", "vocabulary"] = "sentence",
        *,
        positions: bool = False,
        stem: bool = True,
    ) -> Identity:
        """Find the input embeddings nearest to every hidden state (Brunner et al. 2020, section 3).

        Computed once and kept.

        Parameters
        ----------
        k
            How many neighbours, at most as many as there are candidates.
        metric
            "cosine", "l2" or "dot".
        candidates
            "sentence": the embeddings of this text's own tokens, as they enter the first block.
            "vocabulary": the word embeddings of all tokens, searched exactly.
        positions
            With the vocabulary: add to each candidate the position and type embeddings of the token
            that is being identified.
        stem
            With the vocabulary: take candidates through the embedding norm (and projection), as
            tokens are before the first block, or leave them before it.

        Raises
        ------
        ProsectError
            If an argument is not one of these.
        """
        if metric not in nearest.METRICS:
            known = ", ".join(nearest.METRICS)
            raise ProsectError(f"There is no metric {metric!r}: choose one of {known}.")
        if candidates not in ("sentence", "vocabulary"):
            raise ProsectError(
                f"There are no candidates {candidates!r}: choose 'sentence' or 'vocabulary'."
            )
        check_count(k, "k")
        if candidates == "sentence" and (positions or not stem):
            raise ProsectError(
                "positions and stem are of the vocabulary: the text's own tokens are compared as "
                "they enter the first block."
            )
        asked = (k, metric, candidates, positions, stem)
        if asked not in self._identities:
            self._identities[asked] = (
                self._among_vocabulary(k, metric, positions, stem)
                if candidates == "vocabulary"
                else self._among_sentence(k, metric)
            )
        return self._identities[asked]

    def identified(
        self,
        k: int = 10,
        metric: nearest.Metric = "cosine",
        candidates: Literal["sentence", "vocabulary"] = "sentence",
    ) -> bool:
        """Whether :meth:`identify` has found these neighbours before."""
        return (k, metric, candidates, False, True) in self._identities

    @cached_property
    def _identities(self) -> dict[tuple[object, ...], Identity]:
        return {}

    def _among_sentence(self, k: int, metric: nearest.Metric) -> Identity:
        scores = nearest.similarity(self.hidden, self.hidden[0], metric)
        ids, best = nearest.nearest(scores, k)
        own = torch.arange(len(self.tokens), device=ids.device)
        return Identity(
            ids=ids,
            scores=-best if metric == "l2" else best,
            recovered=ids[..., 0] == own,
            ties=(scores == best[..., :1]).sum(-1),
            metric=metric,
            candidates="sentence",
            name=partial(_placed, self.tokens),
        )

    def _among_vocabulary(
        self, k: int, metric: nearest.Metric, positions: bool, stem: bool
    ) -> Identity:
        ids = torch.tensor([token.id for token in self.tokens], device=self.hidden.device)
        start = self.run.stream.start
        if not stem and self.anatomy.words.embedding_dim != self.hidden.shape[-1]:
            raise ProsectError(
                "This model's word embeddings are narrower than its hidden states: use stem=True."
            )
        embedded = start.output if positions else None
        found, best, recovered, ties = search(
            self.anatomy, self.hidden, embedded, ids, k, metric, stem=stem
        )
        return Identity(
            ids=found,
            scores=-best if metric == "l2" else best,
            recovered=recovered,
            ties=ties,
            metric=metric,
            candidates="vocabulary",
            name=partial(vocabulary_labels, tokenizer=self.lens.tokenizer),
        )

    def explore(self, **traits: int | str) -> Explorer:
        """Open the linked views of this trace in one widget.

        Parameters
        ----------
        **traits
            Where to start: ``layer``, ``head``, ``target``, ``source``, ``kind``; ``candidates``
            ("sentence" or "vocabulary") and ``metric`` ("cosine" or "l2") of the neighbours;
            ``theme`` ("auto", "light" or "dark").
        """
        from prosect.views import Explorer  # views look down on traces, not the other way round

        return Explorer(self, **traits)


def _placed(tokens: Sequence[Token], positions: Sequence[int]) -> list[str]:
    return [f"{tokens[position].label} ({position})" for position in positions]


def _check_ranking(value_bias: bool, tolerance: float | None) -> None:
    check_flag(value_bias, "value_bias")
    if tolerance is not None:
        check_share(tolerance, "tolerance", below_one=True)
