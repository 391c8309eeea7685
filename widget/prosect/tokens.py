"""Tokens of an input: their text, position in the text, word and label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import regex
from transformers import BatchEncoding, PreTrainedTokenizerBase

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})

_PRINTED = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + i): b for i, b in enumerate(_OTHERS)}
"""The characters by which byte-level tokenizers represent bytes; printable ones are unchanged."""


@dataclass(frozen=True)
class Token:
    """One position of the model's input.

    Attributes
    ----------
    text
        The characters of the text that the token covers; for a special token, its string; for a
        replacement, its label.
    id
        The vocabulary id.
    span
        Start and end in the text, or in the second text of a pair for its tokens, without
        surrounding white space; None for tokens that the tokenizer added.
    word
        Index of the word, counted over the whole input; None for tokens that the tokenizer added.
    special
        True for the control tokens of the model, such as [CLS] or <|endoftext|>.
    label
        The displayed string: the token after the tokenizer's normalisation, without its marks. A
        token that is a part of a character shows the character and the number of the part: 日¹⁄₃.
    """

    text: str
    id: int
    span: tuple[int, int] | None
    word: int | None
    special: bool
    label: str


@dataclass(frozen=True)
class Pieces:
    """The output of a tokenizer for one text or pair, token by token.

    Attributes
    ----------
    ids, strings
        The vocabulary ids and vocabulary strings.
    sequences
        The index of the text to which each token belongs; None for tokens that the tokenizer added.
    spans
        Start and end in that text, or None if unknown.
    words
        The tokenizer's own word indices, or None.
    """

    ids: Sequence[int]
    strings: Sequence[str]
    sequences: Sequence[int | None]
    spans: Sequence[tuple[int, int] | None]
    words: Sequence[int | None]

    @classmethod
    def of(cls, encoding: BatchEncoding, number: int) -> Pieces:
        """Read a fast tokenizer's encoding of one text, given by its index in the batch."""
        fast = encoding.encodings
        assert fast is not None
        one = fast[number]
        kept = [i for i, shown in enumerate(one.attention_mask) if shown]
        sequences = [one.sequence_ids[i] for i in kept]
        offsets = [one.offsets[i] for i in kept]
        return cls(
            ids=[one.ids[i] for i in kept],
            strings=[one.tokens[i] for i in kept],
            sequences=sequences,
            spans=[None if s is None else o for s, o in zip(sequences, offsets, strict=True)],
            words=[one.word_ids[i] for i in kept],
        )

    @classmethod
    def by_search(
        cls, ids: Sequence[int], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
    ) -> Pieces:
        """Locate the tokens of a tokenizer without offsets by searching the texts in order.

        A token whose string does not occur in the text (normalised or unknown) has no span.
        """
        strings = [str(tokenizer.convert_ids_to_tokens(i)) for i in ids]
        added = _special_ids(tokenizer)
        sequences = _sequences(ids, texts, tokenizer)
        spans: list[tuple[int, int] | None] = [None] * len(ids)
        ends = [0] * len(texts)
        for i, (id, sequence) in enumerate(zip(ids, sequences, strict=True)):
            if sequence is None:
                continue
            lower = texts[sequence].lower()
            # lower case may change the length, and with it the offsets
            text = lower if len(lower) == len(texts[sequence]) else texts[sequence]
            bare = strings[i] if id in added else _bare(strings[i])
            start = text.find(bare.lower() if text is lower else bare, ends[sequence])
            if bare and start >= 0:
                ends[sequence] = start + len(bare)
                spans[i] = start, start + len(bare)
        return cls(ids, strings, sequences, spans, [None] * len(ids))


def read_tokens(
    pieces: Pieces, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[Token]:
    """Describe the tokens of one encoded text or pair of texts.

    Parameters
    ----------
    pieces
        The output of the tokenizer.
    texts
        The text, or the two texts of the pair.
    """
    specials = _special_ids(tokenizer)
    sequences = pieces.sequences
    spans = [
        None if sequence is None or span is None else _trim(texts[sequence], *span)
        for sequence, span in zip(sequences, pieces.spans, strict=True)
    ]
    words = _words(pieces.words, sequences, spans, texts)
    labels = _labels(spans, sequences, texts, tokenizer)
    tokens = []
    for i, id in enumerate(pieces.ids):
        span, sequence, special = spans[i], sequences[i], id in specials
        if special or sequence is None:
            text = label = pieces.strings[i]
        elif span is None:
            text = label = _bare(pieces.strings[i]) or pieces.strings[i]
        else:
            text = texts[sequence][slice(*span)]
            # an unknown token has no normalised form
            label = text if id == tokenizer.unk_token_id else labels[i]
            label = label if label.strip() else token_label(id, tokenizer)
        tokens.append(Token(text, id, span, words[i], special, label))
    return tokens


def in_place_of(token: Token, id: int, tokenizer: PreTrainedTokenizerBase) -> Token:
    """A vocabulary entry as a token at the position of another token."""
    label = token_label(id, tokenizer)
    special = id in _special_ids(tokenizer)
    return Token(label, id, token.span, token.word, special, label)


def token_label(id: int, tokenizer: PreTrainedTokenizerBase) -> str:
    """The label of a vocabulary entry on its own, without the marks of the tokenizer.

    Models may predict ids that their tokenizer does not know; their label is the number.
    """
    known = tokenizer.convert_ids_to_tokens(id)
    if known is None:
        return f"⟨{id}⟩"
    string = str(known)
    decoded = str(tokenizer.decode([id])).removeprefix("##")
    shown = _unmarked(decoded) or decoded.translate(_VISIBLE)
    return string if id in _special_ids(tokenizer) or not shown else shown


def vocabulary_labels(ids: Iterable[int], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    r"""Distinct labels of vocabulary entries, for lists.

    They are those of :func:`token_label` with marks added: ## before a piece that continues a word,
    ␣ for the space before a word. Invisible characters are shown by number, as the byte \xe6 or the
    character \u200b.
    """
    specials = _special_ids(tokenizer)
    labels = []
    for id in ids:
        known = tokenizer.convert_ids_to_tokens(id)
        string = "" if known is None else str(known)
        shown = string if id in specials or not string else _marked(string, id, tokenizer)
        labels.append(shown or f"⟨{id}⟩")
    return labels


def _marked(string: str, id: int, tokenizer: PreTrainedTokenizerBase) -> str:
    # decoders drop the mark of the space before the first word
    shown = string.replace("▁", " ") if "▁" in string else str(tokenizer.decode([id]))
    if "�" in shown and all(character in _BYTES for character in string):
        data = bytes(_BYTES[character] for character in string)
        shown = data.decode(errors="backslashreplace")
    shown = shown.translate(_VISIBLE)
    if not any(character.isprintable() for character in shown):
        shown = "".join(f"\\u{ord(character):04x}" for character in shown)
    return shown


def _unmarked(string: str) -> str:
    """A token's string without the mark of the start of a word."""
    return string.replace("▁", " ").strip()


def _bare(string: str) -> str:
    """A token's string without marks of the start or the continuation of a word."""
    bare = _unmarked(string)
    return bare.removeprefix("##").removesuffix("@@") or bare


def _sequences(
    ids: Sequence[int], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[int | None]:
    """The index of the text of each token, found by tokenizing each text alone.

    If that gives different tokens (Marian's targets), all tokens but control tokens belong to it.
    """
    sequences: list[int | None] = [None] * len(ids)
    added = _special_ids(tokenizer)
    end = 0
    for number, text in enumerate(texts):
        own = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])  # pyright: ignore
        last = len(ids) - len(own)
        start = next((i for i in range(end, last + 1) if list(ids[i : i + len(own)]) == own), None)
        if start is not None:
            end = start + len(own)
            sequences[start:end] = [number] * len(own)
        else:
            sequences[end:] = [None if id in added else number for id in ids[end:]]
            end = len(ids)
    return sequences


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The ids of control tokens; the unknown token only if it has another role too (GPT-2)."""
    named = tokenizer.special_tokens_map.items()
    controls = {str(value) for name, value in named if name != "unk_token"}
    controls |= set(tokenizer.all_special_tokens) - {str(tokenizer.unk_token)}
    return set(tokenizer.convert_tokens_to_ids(sorted(controls)))  # pyright: ignore


def ordinary_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The vocabulary ids in order, without control tokens and the unknown token."""
    special, unknown = _special_ids(tokenizer), tokenizer.unk_token_id
    ids = tokenizer.get_vocab().values()
    return sorted(id for id in ids if id not in special and id != unknown)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its ends, which byte-level tokens include."""
    piece = text[start:end]
    if not piece.strip():
        return start, end
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def _words(
    word_ids: Sequence[int | None],
    sequences: Sequence[int | None],
    spans: Sequence[tuple[int, int] | None],
    texts: Sequence[str],
) -> list[int | None]:
    """Number the words over the whole input.

    A word starts where the tokenizer's word index changes, or after white space: some tokenizers do
    not split texts into words.
    """
    words: list[int | None] = []
    count = -1
    before: tuple[int, int | None, int] | None = None  # sequence, word and end of the last token
    for word, sequence, span in zip(word_ids, sequences, spans, strict=True):
        if sequence is None or span is None:
            words.append(None)
            before = None
            continue
        if (
            before is None
            or before[:2] != (sequence, word)
            or any(character.isspace() for character in texts[sequence][before[2] : span[0]])
        ):
            count += 1
        words.append(count)
        before = (sequence, word, span[1])
    return words


def _labels(
    spans: Sequence[tuple[int, int] | None],
    sequences: Sequence[int | None],
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
) -> list[str]:
    """The label of every token of the texts; empty for tokens that the tokenizer added.

    The visible unit is a grapheme: an emoji may consist of several code points, and a token may be
    a few bytes of one. If several tokens share a grapheme, each label shows the whole grapheme and
    the number of the part.
    """
    edges = [_graphemes(text) for text in texts]
    covered: list[list[tuple[int, int, int]]] = []  # per token: (sequence, start, end) of graphemes
    for span, sequence in zip(spans, sequences, strict=True):
        if span is None or sequence is None:
            covered.append([])
            continue
        covered.append(
            [(sequence, a, b) for a, b in edges[sequence] if a < span[1] and b > span[0]]
        )
    total = Counter(grapheme for graphemes in covered for grapheme in graphemes)
    seen: Counter[tuple[int, int, int]] = Counter()
    labels = []
    for span, sequence, graphemes in zip(spans, sequences, covered, strict=True):
        if span is None or sequence is None:
            labels.append("")
            continue
        text = texts[sequence]
        seen.update(graphemes)
        if any(total[grapheme] > 1 for grapheme in graphemes):
            label = "".join(
                text[g[1] : g[2]] + (_fraction(seen[g], total[g]) if total[g] > 1 else "")
                for g in graphemes
            ).strip()
        else:
            label = _as_the_model_reads(text[slice(*span)], tokenizer)
        labels.append(label if label.strip() else text[slice(*span)].translate(_VISIBLE))
    return labels


def _graphemes(text: str) -> list[tuple[int, int]]:
    lengths = [len(grapheme) for grapheme in regex.findall(r"\X", text)]
    return list(pairwise(accumulate(lengths, initial=0)))


def _fraction(piece: int, pieces: int) -> str:
    return f"{piece}".translate(_SUPERSCRIPT) + "⁄" + f"{pieces}".translate(_SUBSCRIPT)


def _as_the_model_reads(piece: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The piece after the tokenizer's normalisation (case, accents), without its space mark."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    normal = piece if normalizer is None else normalizer.normalize_str(piece)
    return _unmarked(normal) or piece.strip()
