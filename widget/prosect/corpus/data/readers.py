"""Read annotated sentences from tables, from NLTK and from CoNLL files.

The text that a model reads is the words joined by single spaces, so that the span of every word is
known, whatever the tokenizer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from prosect.errors import ProsectError
from prosect.validation import whole_number

_TAG = re.compile(r"O|[BIESLUM](-.+)?")
_TAG_FORMAT = "O, or B or I (or E, S, L, M, U) with an optional -type"
InputPath = str | os.PathLike[str]


class Sentence(Protocol):
    """A sequence of words, as the experiments need it."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words in order; a word may contain spaces."""
        ...


@dataclass(frozen=True)
class SenseSentence:
    """A sentence with a sense for some of its words.

    Attributes
    ----------
    words
        The words; a multi-word expression ("took place") is one word.
    lemmas
        The lemma of each word, or None.
    senses
        The sense of each word, such as "say%2:32:00::", or None.

    Raises
    ------
    ProsectError
        If the three differ in length, or a word with a sense has no lemma.
    """

    words: tuple[str, ...]
    lemmas: tuple[str | None, ...]
    senses: tuple[str | None, ...]

    def __post_init__(self) -> None:
        _check_words(self.words)
        if not len(self.words) == len(self.lemmas) == len(self.senses):
            raise ProsectError(
                f"The sentence {_shown(self.words)} has {len(self.words)} words, "
                f"{len(self.lemmas)} lemmas and {len(self.senses)} senses: give one of each per word."
            )
        for word, lemma, sense in zip(self.words, self.lemmas, self.senses, strict=True):
            if sense is not None and lemma is None:
                raise ProsectError(f"The word {word!r} has the sense {sense!r} but no lemma.")


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with one tag per word: O, or B-type and I-type for the words of an entity.

    Attributes
    ----------
    words
        The words.
    tags
        The tag of each word; E, S, L and U of other schemes are accepted too (:func:`bio`).

    Raises
    ------
    ProsectError
        If the two differ in length, or a tag belongs to none of the schemes.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_words(self.words)
        if len(self.words) != len(self.tags):
            raise ProsectError(
                f"The sentence {_shown(self.words)} has {len(self.words)} words "
                f"and {len(self.tags)} tags: give one tag per word."
            )
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise ProsectError(f"Tags must be {_TAG_FORMAT}, got {tag!r}.")


def text_of(sentence: Sentence) -> str:
    """The words joined by single spaces."""
    return " ".join(sentence.words)


def spans_of(sentence: Sentence) -> tuple[tuple[int, int], ...]:
    """The start and end of each word in :func:`text_of`."""
    ends = list(accumulate(len(word) + 1 for word in sentence.words))
    return tuple(
        (end - 1 - len(word), end - 1) for word, end in zip(sentence.words, ends, strict=True)
    )


# --- tables ---------------------------------------------------------------------------------------


def sense_table(
    path: InputPath,
    *,
    token: str = "token",
    lemma: str = "lemma",
    sense: str = "lexical_key",
    sentence: str | Sequence[str] = ("doc", "sent"),
    separator: str = "\t",
    missing: str = "_",
) -> list[SenseSentence]:
    """Read a table with a header and one row per word, a common format of SemCor.

    The sense of a word is lemma%key, as in WordNet; a key that already contains its lemma is kept.
    Words joined by _ are one multi-word expression. A word with several senses (a;b), among which
    the annotators did not choose, is read without a sense.

    Parameters
    ----------
    path
        The file, in UTF-8. Fields are not quoted.
    token, lemma, sense
        The names of the columns, in any order.
    sentence
        The column, or columns, whose value changes from one sentence to the next; an empty line
        ends a sentence too.
    separator
        The string between two fields.
    missing
        The string that stands for a missing lemma or sense.

    Raises
    ------
    ProsectError
        If the file has no such column, the number of fields in a row differs from the header, a
        token is empty or a sense has no lemma. The message gives the line number.
    """
    if not isinstance(separator, str) or not separator:
        raise ProsectError(f"separator must be a non-empty string, got {separator!r}.")
    sentence = (sentence,) if isinstance(sentence, str) else sentence
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise ProsectError(f"{path} is empty: the first line of a table must name its columns.")
    header = first[1].split(separator)
    for name in (token, lemma, sense, *sentence):
        if name not in header:
            raise ProsectError(
                f"{path}, line 1: the column {name!r} is not among {', '.join(header)}: "
                "give its name as token=, lemma=, sense= or sentence=."
            )
    word_columns = [header.index(name) for name in (token, lemma, sense)]
    sentence_columns = [header.index(name) for name in sentence]
    sentences: list[SenseSentence] = []
    rows: list[tuple[str, str | None, str | None]] = []
    previous: list[str] | None = None
    for number, line in lines:
        fields = line.split(separator)
        blank = not line.strip()
        current = None if blank else [fields[i] for i in sentence_columns if i < len(fields)]
        if rows and (blank or current != previous):
            sentences.append(_sense_sentence(rows))
            rows = []
        previous = current
        if blank:
            continue
        if len(fields) != len(header):
            raise ProsectError(
                f"{path}, line {number}: {len(fields)} fields, but the header has {len(header)}."
            )
        word, *rest = (fields[i] for i in word_columns)
        lemma_, key = (None if field in (missing, "") else field for field in rest)
        if not word:
            raise ProsectError(f"{path}, line {number}: the token is empty.")
        key = None if key is not None and ";" in key else key
        if key is not None and lemma_ is None:
            raise ProsectError(f"{path}, line {number}: the sense {key!r} has no lemma.")
        full_key = key if key is None or "%" in key else f"{lemma_}%{key}"
        rows.append((_with_spaces(word), lemma_, full_key))
    if rows:
        sentences.append(_sense_sentence(rows))
    return sentences


# --- NLTK -----------------------------------------------------------------------------------------


def nltk_semcor(reader: Any) -> list[SenseSentence]:
    """Read sentences from NLTK's SemCor reader, as in ``nltk_semcor(nltk.corpus.semcor)``.

    A chunk is one word. Its sense is the key of NLTK's Lemma, or NLTK's own name if WordNet has no
    such key ("such.s.00"); a chunk with several senses is read without one. A named entity is a
    word whose lemma is its class ("person").

    Parameters
    ----------
    reader
        An object with ``tagged_sents(tag="sem")``, or sentences that it returned for the tag "sem"
        or "both". NLTK itself is not imported.

    Raises
    ------
    ProsectError
        If ``reader`` is neither, or a chunk is not one of NLTK's.
    """
    sentences = reader.tagged_sents(tag="sem") if hasattr(reader, "tagged_sents") else reader
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise ProsectError(
            "reader must be NLTK's SemCor reader, such as nltk.corpus.semcor, "
            f"got {type(reader).__name__}."
        )
    sense_sentences = []
    for number, chunks in enumerate(sentences):
        rows = []
        for chunk in chunks:
            words = _leaves(chunk)
            if words is None:
                raise ProsectError(
                    f"Sentence {number}: {chunk!r} is not a chunk of NLTK's SemCor reader."
                )
            if word := " ".join(filter(None, words)):
                rows.append((word, *_nltk_sense(chunk)))
        if rows:
            sense_sentences.append(_sense_sentence(rows))
    return sense_sentences


def _nltk_sense(chunk: Any) -> tuple[str | None, str | None]:
    """Lemma and sense of a chunk: a tree labelled with a Lemma or a name, or a list of words."""
    label: Any = chunk.label() if hasattr(chunk, "label") else None
    if hasattr(label, "key"):
        key = str(label.key())
        return key.partition("%")[0], key
    if not isinstance(label, str) or label.count(".") < 2 or ";" in label:
        return None, None  # no sense: a list, an entity without a class ("NE"), several senses
    return label.rsplit(".", 2)[0], label


def _leaves(chunk: Any) -> list[str] | None:
    """The words below a tree or in a list; None if it contains anything else."""
    if isinstance(chunk, str):
        return [chunk]
    if not isinstance(chunk, Iterable):
        return None
    leaves = [_leaves(child) for child in chunk]
    return None if None in leaves else [word for words in leaves if words for word in words]


# --- CoNLL ----------------------------------------------------------------------------------------


def conll(path: InputPath, *, token: int = 0, tag: int = -1) -> list[TaggedSentence]:
    """Read a file with one word per line and an empty line after each sentence.

    Columns are separated by tabs if the first row contains one, else by white space. A line that
    starts with # and is not a row (a different number of columns, or no tag) is a comment. Comments
    and -DOCSTART- lines are skipped. All other rows must have as many columns as the first.

    Tags in BIO (IOB2), IOB1, IOBES or BILOU are returned as BIO.

    Parameters
    ----------
    path
        The file, in UTF-8.
    token, tag
        The index of the column, from 0; negative indices count from the end.

    Raises
    ------
    ProsectError
        If a row has no such column, the number of columns changes, or a tag belongs to none of the
        schemes. The message gives the line number.
    """
    token, tag = whole_number(token, "token"), whole_number(tag, "tag")
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    separator: str | None = None
    columns: int | None = None
    for number, line in (*_lines(path), (0, "")):
        if not line.strip():
            if words:
                sentences.append(TaggedSentence(tuple(words), bio(tags)))
            words, tags = [], []
            continue
        if columns is None:
            separator = "\t" if "\t" in line else None
        fields = line.split(separator)
        if line.startswith("#") and not _is_row(fields, columns, tag):
            continue
        if fields[0] == "-DOCSTART-":
            continue
        columns = columns or len(fields)
        if len(fields) != columns:
            raise ProsectError(
                f"{path}, line {number}: {len(fields)} columns, but previous rows have {columns}."
            )
        if not all(-columns <= i < columns for i in (token, tag)) or columns < 2:
            raise ProsectError(
                f"{path}, line {number}: the row has {columns} columns, "
                f"but the token is in column {token} and the tag in column {tag}."
            )
        if not fields[token]:
            raise ProsectError(f"{path}, line {number}: the token is empty.")
        if not _TAG.fullmatch(fields[tag]):
            raise ProsectError(
                f"{path}, line {number}: tags must be {_TAG_FORMAT}, got {fields[tag]!r}: "
                "give the column of the tags as tag=."
            )
        words.append(fields[token])
        tags.append(fields[tag])
    return sentences


def _is_row(fields: Sequence[str], columns: int | None, tag: int) -> bool:
    """Whether a line that starts with # is a row, such as "#duck<tab>O", rather than a comment."""
    if len(fields) < 2 or columns not in (None, len(fields)):
        return False
    return -len(fields) <= tag < len(fields) and bool(_TAG.fullmatch(fields[tag]))


def bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Convert tags of any scheme to BIO: an entity starts at B, S or U, or where the type changes."""
    converted = []
    open_type: str | None = None  # the type of the entity that may continue
    for tag in tags:
        mark, entity_type = tag[0], tag[1:]
        if mark == "O":
            converted.append(tag)
            open_type = None
        else:
            starts = mark in "BSU" or entity_type != open_type
            converted.append(f"{'B' if starts else 'I'}{entity_type}")
            open_type = None if mark in "ESLU" else entity_type
    return tuple(converted)


# --- shared ---------------------------------------------------------------------------------------


def _lines(path: InputPath) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file; only a line feed ends a line."""
    try:
        with Path(path).expanduser().open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ProsectError(f"{path}, line {number} is not UTF-8: {error}.") from error
                yield number, line.rstrip("\r\n")
    except OSError as error:
        raise ProsectError(f"Cannot read {path}: {error.strerror or error}.") from error


def _sense_sentence(rows: Sequence[tuple[str, str | None, str | None]]) -> SenseSentence:
    words, lemmas, senses = zip(*rows, strict=True)
    return SenseSentence(words, lemmas, senses)


def _with_spaces(word: str) -> str:
    """Replace _ in a multi-word expression by spaces; a word of underscores alone is kept."""
    return " ".join(filter(None, word.split("_"))) or word


def _check_words(words: Sequence[str]) -> None:
    if not words:
        raise ProsectError("words must contain at least one word, got none.")
    if isinstance(words, str) or not all(isinstance(word, str) and word for word in words):
        raise ProsectError(f"words must be a tuple of non-empty strings, got {words!r}.")


def _shown(words: Sequence[str]) -> str:
    return repr(" ".join(words)[:40])
