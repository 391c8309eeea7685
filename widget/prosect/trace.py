"""Trace: everything that one forward pass computed, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args, overload

import torch
from jaxtyping import Float
from torch import Tensor

from prosect.anatomy.stream import Fed, Wrote
from prosect.anatomy.vocabulary import Anatomy, Term
from prosect.capture import Run
from prosect.engines import identity, maps
from prosect.engines.finer import By
from prosect.engines.parts import Centring
from prosect.errors import ProsectError
from prosect.predict import logits_of
from prosect.results import Identity, Neurons, Parts, Prediction, Terms, TokenMap
from prosect.tokens import Token, token_label

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
        return f"Trace({self.lens.name}: {len(self.tokens)} tokens, {self.texts[0][:40]!r})"

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
        (position,) = self._positions([token])
        if not 0 <= layer < len(self.anatomy.blocks):
            last = len(self.anatomy.blocks) - 1
            raise ProsectError(f"There is no layer {layer}: layers count from 0 to {last}.")
        _check_count(k, "k counts neurons")
        for record in self.run.stream:
            if not isinstance(record, Wrote) or record.layer != layer + 1:
                continue
            if isinstance(record.detail, Fed):
                return Neurons.of(record, record.detail, position, k)
        raise AssertionError("every layer has a feed-forward")

    def predict(
        self, terms: Sequence[Term] | None = None, position: int = -1, k: int = 10
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
        names = self.anatomy.terms if terms is None else tuple(terms)
        unknown = [name for name in names if name not in self.anatomy.terms]
        if unknown:
            known = ", ".join(self.anatomy.terms)
            raise ProsectError(f"There is no term {unknown[0]!r}: choose from {known}.")
        _check_count(k, "k counts predictions")
        if self.encoder is None and self.lens.decoder is not None:
            raise ProsectError(
                "The head of this model sits on its decoder: "
                "trace with a target, lens.trace(text, target=...), and predict from that."
            )
        (place,) = self._positions([position])
        split = self.terms()
        chosen = [split.names.index(name) for name in names]
        vector = split.values[chosen, -1, place].sum(0)
        start = None if self.encoder is None else self.tokens[0].id
        logits = logits_of(self.lens.model, self.anatomy, vector, start)
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

    def _state(self, state: int) -> int:
        count = len(self.hidden)
        if not -count <= state < count:
            raise ProsectError(f"There is no state {state}: states count from 0 to {count - 1}.")
        return state % count

    def _positions(self, targets: Sequence[int] | None) -> list[int]:
        count = len(self.tokens)
        if targets is None:
            return list(range(count))
        if len(targets) == 0:
            raise ProsectError("There are no targets: name at least one, or leave targets out.")
        for target in targets:
            if not -count <= target < count:
                raise ProsectError(
                    f"There is no token {target}: positions count from 0 to {count - 1}."
                )
        return [target % count for target in targets]

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

    def map(self, kind: str = "attention") -> TokenMap:
        """How much each source token passes to each target token, by one of the kinds of map.

        Raises
        ------
        ProsectError
            If there is no such kind; the message lists those that there are.
        """
        if kind not in maps.KINDS:
            known = ", ".join(maps.KINDS)
            raise ProsectError(f"There is no kind of map {kind!r}: choose one of {known}.")
        return TokenMap.of(maps.KINDS[kind], self.attention)

    def identify(
        self, k: int = 10, metric: identity.Metric = "cosine", candidates: str = "sentence"
    ) -> Identity:
        """Find the input embeddings nearest to every hidden state (Brunner et al. 2020, section 3).

        Parameters
        ----------
        k
            How many neighbours; at most the number of tokens are returned.
        metric
            "cosine" or "l2".
        candidates
            "sentence": the embeddings of this text's own tokens, as they enter the first block.

        Raises
        ------
        ProsectError
            If an argument is not one of these.
        """
        if metric not in identity.METRICS:
            known = ", ".join(identity.METRICS)
            raise ProsectError(f"There is no metric {metric!r}: choose one of {known}.")
        if candidates != "sentence":
            raise ProsectError(f"There are no candidates {candidates!r}: choose 'sentence'.")
        _check_count(k, "k counts neighbours")
        scores = identity.similarity(self.hidden, self.hidden[0], metric)
        ids, best = identity.nearest(scores, k)
        own = torch.arange(len(self.tokens), device=ids.device)
        return Identity(
            ids=ids,
            scores=-best if metric == "l2" else best,
            recovered=ids[..., 0] == own,
            metric=metric,
        )

    def explore(self, **traits: int | str) -> Explorer:
        """Open the linked views of this trace in one widget.

        Parameters
        ----------
        **traits
            Where to start: ``layer``, ``head``, ``target``, ``source``, ``kind``, ``theme``.
        """
        from prosect.views import Explorer  # views look down on traces, not the other way round

        return Explorer(self, **traits)


def _check_count(k: int, what: str) -> None:
    if k < 1:
        raise ProsectError(f"{what} and must be at least 1, not {k}.")
