"""The input embeddings nearest to hidden states, among those of the text or of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from prosect.analyses.cache import Analyses, Sizes
from prosect.anatomy.vocabulary import Anatomy, Norm
from prosect.capture.weights import lift
from prosect.engines import nearest
from prosect.engines.nearest import Metric
from prosect.errors import ProsectError
from prosect.modes import in_plain_arithmetic
from prosect.tokens import Token, vocabulary_labels
from prosect.validation import check_count, check_known

Candidates = Literal["sentence", "vocabulary"]
"""The embeddings to search: those of the text's own tokens, or of the whole vocabulary."""
BLOCK = 2**23
"""How many numbers a block of candidates may take."""
VECTORS = 2**10
"""How many hidden vectors are compared with a block of candidates at once."""


@in_plain_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Identity:
    """The input embeddings nearest to every hidden state.

    Attributes
    ----------
    ids
        [layer+1, token, k], the neighbours, nearest first: positions in the text, or indices in the
        vocabulary. Where candidates are equally near, the token itself comes first.
    scores
        [layer+1, token, k], cosine similarities or inner products, or Euclidean distances for the
        metric "l2".
    recovered
        [layer+1, token], whether the token's own input embedding is the nearest, or as near as it.
    ties
        [layer+1, token], how many candidates are as near as the nearest; 1 where it is alone.
    metric, candidates
        The arguments of the search.
    name
        A function from the ids of candidates to their labels.
    """

    ids: Int[Tensor, "layer+1 token k"]
    scores: Float[Tensor, "layer+1 token k"]
    recovered: Bool[Tensor, "layer+1 token"]
    ties: Int[Tensor, "layer+1 token"]
    metric: str
    candidates: str
    name: Callable[[Sequence[int]], list[str]]

    @cached_property
    def labels(self) -> list[list[list[str]]]:
        """[layer+1][token][k], the neighbours to read.

        Tokens of the text with their positions, as in "bank (2)"; words of the vocabulary with the
        marks of its tokenizer.
        """
        numbers, places = self.ids.unique(return_inverse=True)
        names = self.name(numbers.tolist())
        return [[[names[i] for i in near] for near in layer] for layer in places.tolist()]

    def __repr__(self) -> str:
        share = self.recovered.float().mean(-1)
        first, last = f"{float(share[0]):.0%}", f"{float(share[-1]):.0%}"
        return (
            f"Identity({self.metric}: {first} of tokens recovered at layer 0, {last} at the last)"
        )


def search(
    anatomy: Anatomy,
    hidden: Float[Tensor, "layer+1 token d"],
    embedded: Float[Tensor, "token d"] | None,
    ids: Int[Tensor, "token"],
    k: int,
    metric: Metric,
    *,
    stem: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The k words of the vocabulary nearest to every hidden vector, searched exactly.

    Some tokens at a time, so that the scores of long texts fit in memory. The arguments are those of
    :func:`candidates`, what is returned is that of :func:`~prosect.engines.nearest.nearest_of_many`.
    """
    found = []
    for part in torch.arange(len(ids)).split(max(1, VECTORS // len(hidden))):
        own = ids[part]
        sums = None if embedded is None else embedded[part]
        blocks = candidates(anatomy, sums, own, stem=stem)
        found.append(nearest.nearest_of_many(hidden[:, part], blocks, own, k, metric))
    numbers, scores, recovered, ties = (torch.cat(x, dim=1) for x in zip(*found, strict=True))
    return numbers, scores, recovered, ties


def candidates(
    anatomy: Anatomy,
    embedded: Float[Tensor, "token d"] | None,
    ids: Int[Tensor, "token"],
    *,
    stem: bool,
) -> Iterator[tuple[int, Tensor]]:
    """The word embeddings of the vocabulary, block by block, as tokens enter the first block.

    Parameters
    ----------
    anatomy
        Whose.
    embedded
        The summed embeddings of a text, whose positions and types each candidate gets; every token
        then has candidates of its own, [token, candidate, d]. None: words alone, [candidate, d].
    ids
        The tokens of that text.
    stem
        Whether to take them through the embedding norm and projection.

    Yields
    ------
    The index of a block's first candidate, and the block.
    """
    words = anatomy.words.weight
    others = None if embedded is None else embedded - _word_embeddings(anatomy, words[ids])
    width = words.shape[1] if embedded is None else embedded.numel()
    size = max(1, BLOCK // width)
    for first in range(0, len(words), size):
        block = _word_embeddings(anatomy, words[first : first + size])
        if others is not None:
            block = block + others[:, None]
        yield first, _through_stem(anatomy, block) if stem else block


def _word_embeddings(anatomy: Anatomy, rows: Float[Tensor, "row d"]) -> Float[Tensor, "row d"]:
    """What rows of the embedding matrix add to the sum of embeddings."""
    word = next(embedding for embedding in anatomy.embeddings if embedding.name == "word")
    scale = word.scale * anatomy.words.embed_scale
    with torch.no_grad():
        projected = rows if word.module is anatomy.words.module else word.module(rows)
    return scale * lift(projected)


def _through_stem(anatomy: Anatomy, x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
    with torch.no_grad():
        for step in anatomy.stem:
            module = step.module if isinstance(step, Norm) else step.dense.module
            x = lift(module(x.to(module.weight.dtype)))
    return x


# --- of a run -----------------------------------------------------------------------------------


def identify(
    analyses: Analyses,
    tokens: Sequence[Token],
    tokenizer: PreTrainedTokenizerBase,
    k: int = 10,
    metric: Metric = "cosine",
    candidates: Candidates = "sentence",
    positions: bool = False,
    stem: bool = True,
) -> Identity:
    """Find the input embeddings nearest to every hidden state (Brunner et al. 2020, section 3).

    Computed once and kept.

    Parameters
    ----------
    tokens, tokenizer
        Of the text.
    k
        How many neighbours, at most as many as there are candidates.
    metric
        "cosine", "l2" or "dot".
    candidates
        "sentence": the embeddings of this text's own tokens, as they enter the first block.
        "vocabulary": the word embeddings of all tokens, searched exactly.
    positions
        With the vocabulary: add to each candidate the position and type embeddings of the token that
        is being identified.
    stem
        With the vocabulary: take candidates through the embedding norm (and projection), as tokens
        are before the first block, or leave them before it.

    Raises
    ------
    ProsectError
        If an argument is invalid.
    StaleTraceError
        With the vocabulary, if the model is no longer what it was in the run.
    """
    check_known(metric, nearest.METRICS, "metric")
    check_known(candidates, get_args(Candidates), "candidates")
    check_count(k, "k")
    if candidates == "sentence" and (positions or not stem):
        raise ProsectError(
            "positions and stem need candidates='vocabulary': the candidates of the sentence are "
            "always the vectors that enter the first block."
        )

    def compute() -> Identity:
        if candidates == "sentence":
            return _among_sentence(analyses, tokens, k, metric)
        return _among_vocabulary(analyses, tokens, tokenizer, k, metric, positions, stem)

    return analyses.once(_key(k, metric, candidates, positions, stem), compute)


def is_identified(analyses: Analyses, k: int, metric: Metric, candidates: Candidates) -> bool:
    """Whether the result of :func:`identify` is already computed."""
    return analyses.known(_key(k, metric, candidates)) is not None


def cost_of_search(sizes: Sizes, metric: Metric) -> float:
    """The multiplications of a search in the vocabulary: every hidden vector with every word."""
    precision = 2.0 if metric == "l2" else 1.0  # distances take doubles
    return precision * (sizes.layers + 1) * sizes.tokens * sizes.d * sizes.words


def _key(
    k: int, metric: Metric, candidates: Candidates, positions: bool = False, stem: bool = True
) -> tuple[Hashable, ...]:
    return ("identity", k, metric, candidates, positions, stem)


def _among_sentence(
    analyses: Analyses, tokens: Sequence[Token], k: int, metric: Metric
) -> Identity:
    hidden = analyses.run.hidden
    scores = nearest.similarity(hidden, hidden[0], metric)
    ids, best = nearest.nearest(scores, k)
    own = torch.arange(len(tokens), device=ids.device)
    return Identity(
        ids=ids,
        scores=-best if metric == "l2" else best,
        recovered=ids[..., 0] == own,
        ties=(scores == best[..., :1]).sum(-1),
        metric=metric,
        candidates="sentence",
        name=partial(_labels_with_positions, tokens),
    )


def _among_vocabulary(
    analyses: Analyses,
    tokens: Sequence[Token],
    tokenizer: PreTrainedTokenizerBase,
    k: int,
    metric: Metric,
    positions: bool,
    stem: bool,
) -> Identity:
    analyses.run.whole.check()
    anatomy, hidden = analyses.anatomy, analyses.run.hidden
    ids = torch.tensor([token.id for token in tokens], device=hidden.device)
    if not stem and anatomy.words.embedding_dim != hidden.shape[-1]:
        raise ProsectError(
            "stem must be True for this model: its word embeddings and hidden states differ in size."
        )
    embedded = analyses.run.stream.start.output if positions else None
    found, best, recovered, ties = search(anatomy, hidden, embedded, ids, k, metric, stem=stem)
    return Identity(
        ids=found,
        scores=-best if metric == "l2" else best,
        recovered=recovered,
        ties=ties,
        metric=metric,
        candidates="vocabulary",
        name=partial(vocabulary_labels, tokenizer=tokenizer),
    )


def _labels_with_positions(tokens: Sequence[Token], positions: Sequence[int]) -> list[str]:
    return [f"{tokens[position].label} ({position})" for position in positions]
