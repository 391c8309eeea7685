"""Annotated sentences, read from tables, from NLTK and from CoNLL files.

Words are kept apart; the text that a model reads is the words with a space between them, so every
word has a known place in it, whatever the tokenizer.
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
Source = str | os.PathLike[str]


class Sentence(Protocol):
    """What the experiments need of a sentence."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words, in order; one may have spaces in it."""
        ...


@dataclass(frozen=True)
class SenseSentence:
    """A sentence whose words may have a sense.

    Attributes
    ----------
    words
        The words; an expression of several ("took place") is one of them.
    lemmas
        The lemma of each word, None where none is given.
    senses
        The sense of each word, such as "say%2:32:00::"; None where it has none.

    Raises
    ------
    ProsectError
        If the three are not of one length, or a word with a sense has no lemma.
    """

    words: tuple[str, ...]
    lemmas: tuple[str | None, ...]
    senses: tuple[str | None, ...]

    def __post_init__(self) -> None:
        _check_words(self.words)
        if not len(self.words) == len(self.lemmas) == len(self.senses):
            raise ProsectError(
                f"The sentence {_shown(self.words)} has {len(self.words)} words, "
                f"{len(self.lemmas)} lemmas and {len(self.senses)} senses: give one of each a word."
            )
        for word, lemma, sense in zip(self.words, self.lemmas, self.senses, strict=True):
            if sense is not None and lemma is None:
                raise ProsectError(f"The word {word!r} has the sense {sense!r} but no lemma.")


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence whose words have a tag each: O, or B-type and I-type for the words of a name.

    Attributes
    ----------
    words
        The words.
    tags
        Their tags; E, S, L, U of other schemes are understood too (:func:`bio`).

    Raises
    ------
    ProsectError
        If the two are not of one length, or a tag is of another kind.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_words(self.words)
        if len(self.words) != len(self.tags):
            raise ProsectError(
                f"The sentence {_shown(self.words)} has {len(self.words)} words "
                f"and {len(self.tags)} tags: give one tag a word."
            )
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise ProsectError(
                    f"The tag {tag!r} is neither O nor B-type, I-type (or E, S, L, U)."
                )


def text_of(sentence: Sentence) -> str:
    """The words with a space between them."""
    return " ".join(sentence.words)


def spans_of(sentence: Sentence) -> tuple[tuple[int, int], ...]:
    """Where each word starts and ends in :func:`text_of`."""
    ends = list(accumulate(len(word) + 1 for word in sentence.words))
    return tuple(
        (end - 1 - len(word), end - 1) for word, end in zip(sentence.words, ends, strict=True)
    )


# --- tables ---------------------------------------------------------------------------------------


def sense_table(
    path: Source,
    *,
    token: str = "token",
    lemma: str = "lemma",
    sense: str = "lexical_key",
    sentence: str | Sequence[str] = ("doc", "sent"),
    separator: str = "\t",
    missing: str = "_",
) -> list[SenseSentence]:
    """Read a table with a header and a row a word, as SemCor is often passed on.

    The sense of a word is lemma%key, as in WordNet; a key that has the lemma in it already stays as
    it is. Words joined by _ are one expression. Where several senses are given (a;b) the annotators
    did not choose, so the word is read as one without a sense.

    Parameters
    ----------
    path
        The file, in UTF-8. Fields are not quoted.
    token, lemma, sense
        The names of the columns, wherever they are.
    sentence
        The column, or columns, that change where a sentence ends; an empty line ends one too.
    separator
        What is between two fields.
    missing
        What stands where a word has no lemma or no sense.

    Raises
    ------
    ProsectError
        If the file has no such column, a row has another number of fields than the header, a token
        is empty or a sense has no lemma; the message names the line.
    """
    if not isinstance(separator, str) or not separator:
        raise ProsectError(f"separator is what is between two fields, not {separator!r}.")
    sentence = (sentence,) if isinstance(sentence, str) else sentence
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise ProsectError(f"{path} is empty: a table starts with the names of its columns.")
    header = first[1].split(separator)
    for name in (token, lemma, sense, *sentence):
        if name not in header:
            raise ProsectError(
                f"{path}, line 1: there is no column {name!r} among {', '.join(header)}: "
                "say what it is called there."
            )
    read = [header.index(name) for name in (token, lemma, sense)]
    place = [header.index(name) for name in sentence]
    found: list[SenseSentence] = []
    rows: list[tuple[str, str | None, str | None]] = []
    before: list[str] | None = None
    for number, line in lines:
        fields = line.split(separator)
        blank = not line.strip()
        now = None if blank else [fields[i] for i in place if i < len(fields)]
        if rows and (blank or now != before):
            found.append(_sensed(rows))
            rows = []
        before = now
        if blank:
            continue
        if len(fields) != len(header):
            raise ProsectError(
                f"{path}, line {number}: {len(fields)} fields, but the header has {len(header)}."
            )
        word, *rest = (fields[i] for i in read)
        lemma_, key = (None if field in (missing, "") else field for field in rest)
        if not word:
            raise ProsectError(f"{path}, line {number}: the token is empty.")
        key = None if key is not None and ";" in key else key
        if key is not None and lemma_ is None:
            raise ProsectError(f"{path}, line {number}: the sense {key!r} has no lemma.")
        whole = key if key is None or "%" in key else f"{lemma_}%{key}"
        rows.append((_spaced(word), lemma_, whole))
    if rows:
        found.append(_sensed(rows))
    return found


# --- NLTK -----------------------------------------------------------------------------------------


def nltk_semcor(reader: Any) -> list[SenseSentence]:
    """Read sentences from NLTK's SemCor reader, as in ``nltk_semcor(nltk.corpus.semcor)``.

    A chunk is one word. Its sense is the key of NLTK's Lemma, or the name that NLTK gives where
    WordNet has no such key ("such.s.00"); where the annotators gave several it has none. A named
    entity is a word whose lemma is its class ("person").

    Parameters
    ----------
    reader
        What has ``tagged_sents(tag="sem")``, or some of the sentences that it gives, with the tag
        "sem" or "both". NLTK itself is not needed here.

    Raises
    ------
    ProsectError
        If it is neither, or a chunk is none that NLTK makes.
    """
    sentences = reader.tagged_sents(tag="sem") if hasattr(reader, "tagged_sents") else reader
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise ProsectError(
            f"nltk_semcor takes NLTK's SemCor reader, not {type(reader).__name__}: "
            "pass nltk.corpus.semcor."
        )
    found = []
    for number, chunks in enumerate(sentences):
        rows = []
        for chunk in chunks:
            words = _leaves(chunk)
            if words is None:
                raise ProsectError(
                    f"Sentence {number}: {chunk!r} is not a chunk that NLTK's SemCor reader makes."
                )
            if word := " ".join(filter(None, words)):
                rows.append((word, *_nltk_sense(chunk)))
        if rows:
            found.append(_sensed(rows))
    return found


def _nltk_sense(chunk: Any) -> tuple[str | None, str | None]:
    """Lemma and sense of a chunk: a tree labelled by a Lemma or a name, or a list of words."""
    label: Any = chunk.label() if hasattr(chunk, "label") else None
    if hasattr(label, "key"):
        key = str(label.key())
        return key.partition("%")[0], key
    if not isinstance(label, str) or label.count(".") < 2 or ";" in label:
        return None, None  # without a sense: a list, an entity of no class ("NE"), undecided
    return label.rsplit(".", 2)[0], label


def _leaves(chunk: Any) -> list[str] | None:
    """The words below a tree or in a list; None if something else is there."""
    if isinstance(chunk, str):
        return [chunk]
    if not isinstance(chunk, Iterable):
        return None
    leaves = [_leaves(child) for child in chunk]
    return None if None in leaves else [word for words in leaves if words for word in words]


# --- CoNLL ----------------------------------------------------------------------------------------


def conll(path: Source, *, token: int = 0, tag: int = -1) -> list[TaggedSentence]:
    """Read a file with a word a line and an empty line after each sentence.

    Columns are separated by tabs where the file's first row has one, else by white space. A line
    that starts with # and is no row (another number of columns, or no tag) is a comment; comments
    and -DOCSTART- lines are left out. All other rows have as many columns as the first.

    Tags may be BIO (IOB2), IOB1, IOBES or BILOU: they are returned as BIO.

    Parameters
    ----------
    path
        The file, in UTF-8.
    token, tag
        The number of the column, from 0; negative from the end.

    Raises
    ------
    ProsectError
        If a line has no such columns, or more or fewer than those before, or its tag is none of
        these; the message names the line.
    """
    token, tag = whole_number(token, "column"), whole_number(tag, "column")
    found: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    separator: str | None = None
    columns: int | None = None
    for number, line in (*_lines(path), (0, "")):
        if not line.strip():
            if words:
                found.append(TaggedSentence(tuple(words), bio(tags)))
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
                f"{path}, line {number}: {len(fields)} columns, but the rows before have {columns}."
            )
        if not all(-columns <= i < columns for i in (token, tag)) or columns < 2:
            raise ProsectError(
                f"{path}, line {number}: {columns} columns, so no token in {token} and tag in {tag}."
            )
        if not fields[token]:
            raise ProsectError(f"{path}, line {number}: the token is empty.")
        if not _TAG.fullmatch(fields[tag]):
            raise ProsectError(
                f"{path}, line {number}: the tag {fields[tag]!r} is neither O nor B-type, I-type "
                "(or E, S, L, U): say which column has the tags."
            )
        words.append(fields[token])
        tags.append(fields[tag])
    return found


def _is_row(fields: Sequence[str], columns: int | None, tag: int) -> bool:
    """Whether a line that starts with # is a row, such as "#duck<tab>O", and not a comment."""
    if len(fields) < 2 or columns not in (None, len(fields)):
        return False
    return -len(fields) <= tag < len(fields) and bool(_TAG.fullmatch(fields[tag]))


def bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags of any of the schemes as BIO: a name starts at B, S, U, or where its type begins."""
    found = []
    before: str | None = None  # the type of the name that may go on
    for tag in tags:
        mark, kind = tag[0], tag[1:]
        if mark == "O":
            found.append(tag)
            before = None
        else:
            found.append(f"{'B' if mark in 'BSU' or kind != before else 'I'}{kind}")
            before = None if mark in "ESLU" else kind
    return tuple(found)


# --- shared ---------------------------------------------------------------------------------------


def _lines(path: Source) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file; only line feeds separate them."""
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


def _sensed(rows: Sequence[tuple[str, str | None, str | None]]) -> SenseSentence:
    words, lemmas, senses = zip(*rows, strict=True)
    return SenseSentence(words, lemmas, senses)


def _spaced(word: str) -> str:
    """An expression written with _ as its words; a word of nothing else stays."""
    return " ".join(filter(None, word.split("_"))) or word


def _check_words(words: Sequence[str]) -> None:
    if not words:
        raise ProsectError("A sentence has at least one word.")
    if isinstance(words, str) or not all(isinstance(word, str) and word for word in words):
        raise ProsectError("The words of a sentence are a tuple of strings, none of them empty.")


def _shown(words: Sequence[str]) -> str:
    return repr(" ".join(words)[:40])
