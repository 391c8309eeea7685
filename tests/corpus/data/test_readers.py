from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prosect
from prosect.corpus import readers
from prosect.corpus.data.readers import SenseSentence, TaggedSentence, bio, spans_of, text_of

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "some.file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_words_are_where_their_spans_say() -> None:
    words = ("Fulton County", "'s", "naïve", "👩‍👩‍👧", "_", "end", ".")
    sentence = TaggedSentence(words, ("O",) * len(words))
    text = text_of(sentence)
    assert text == "Fulton County 's naïve 👩‍👩‍👧 _ end ."
    assert tuple(text[start:end] for start, end in spans_of(sentence)) == words


# --- tables -----------------------------------------------------------------------------------

TABLE = """doc\tsent\ttoken\tlemma\tpos\tlexical_key\tsynset
a\t1\tThe\tthe\tDT\t_\t_
a\t1\told_bank\told_bank\tNN\t1:14:00::\tx
a\t1\t"\t"\t''\t_\t_
a\t2\tbanks\tbank\tNN\t1:17:01::;1:17:00::\tx
b\t2\t_\t_\t:\t_\t_
b\t2\tran\trun\tVB\trun%2:38:00::\tx
"""


def test_a_table_is_read_by_the_names_of_its_columns(write: Write) -> None:
    first, second, third = readers.sense_table(write(TABLE))
    assert first.words == ("The", "old bank", '"')  # one quotation mark quotes nothing
    assert first.lemmas == ("the", "old_bank", '"')
    assert first.senses == (None, "old_bank%1:14:00::", None)
    assert second == SenseSentence(("banks",), ("bank",), (None,))  # two senses are none
    assert third == SenseSentence(("_", "ran"), (None, "run"), (None, "run%2:38:00::"))


def test_the_order_of_columns_and_line_ends_do_not_matter(write: Write) -> None:
    rows = [line.split("\t")[::-1] for line in TABLE.splitlines()]
    turned = "\r\n".join("\t".join(row) for row in rows)
    assert readers.sense_table(write("\ufeff" + turned)) == readers.sense_table(write(TABLE))


def test_other_names_separators_and_marks_can_be_given(write: Write) -> None:
    path = write("key;form;base\n-;We;we\nx;ran;run\n\nx;run;run\n")
    found = readers.sense_table(
        path, token="form", lemma="base", sense="key", sentence=(), separator=";", missing="-"
    )
    assert found == [
        SenseSentence(("We", "ran"), ("we", "run"), (None, "run%x")),
        SenseSentence(("run",), ("run",), ("run%x",)),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: the first line of a table must name its columns"),
        ("doc\tsent\ttoken\n", "line 1: the column 'lemma' is not among doc, sent, token"),
        (TABLE + "b\t3\tx\n", "line 8: 3 fields, but the header has 7"),
        (TABLE + "b\t3\t\tx\tNN\t_\t_\n", "line 8: the token is empty"),
        (TABLE + "b\t3\tx\t_\tNN\t1:1\t_\n", "line 8: the sense '1:1' has no lemma"),
        (TABLE.encode() + b"b\t3\t\xff\tx\tNN\t_\t_\n", "line 8 is not UTF-8"),
    ],
)
def test_a_table_that_cannot_be_read_is_told_by_line(
    write: Write, content: Any, message: str
) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        readers.sense_table(write(content))


def test_one_column_may_tell_where_a_sentence_ends(write: Write) -> None:
    path = write("doc\tsent\ttoken\tlemma\tlexical_key\na\t1\tx\t_\t_\nb\t1\ty\t_\t_\n")
    assert [s.words for s in readers.sense_table(path, sentence="sent")] == [("x", "y")]
    assert [s.words for s in readers.sense_table(path)] == [("x",), ("y",)]


def test_wrong_arguments_get_a_sentence(write: Write) -> None:
    with pytest.raises(prosect.ProsectError, match="separator must be a non-empty string, got ''"):
        readers.sense_table(write(TABLE), separator="")
    with pytest.raises(prosect.ProsectError, match="must be an integer, got 'x'"):
        readers.conll(write("a O\n"), token="x")


def test_a_path_may_begin_at_home(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write("a O\n").parent
    monkeypatch.setenv("HOME", str(home))
    assert readers.conll("~/some.file") == [TaggedSentence(("a",), ("O",))]


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for read in (readers.sense_table, readers.conll):
        with pytest.raises(prosect.ProsectError, match=r"Cannot read .*nowhere: No such file"):
            read(tmp_path / "nowhere")


# --- NLTK -------------------------------------------------------------------------------------


class Tree(list):
    """As nltk.tree.Tree: a list of children with a label."""

    def __init__(self, node: object, children: list[Any]) -> None:
        super().__init__(children)
        self._label = node

    def label(self) -> object:
        return self._label


class Lemma:
    """As nltk's WordNet Lemma: name and key are methods, and the key is in lower case."""

    def __init__(self, name: str, key: str) -> None:
        self._name, self._key = name, key

    def name(self) -> str:
        return self._name

    def key(self) -> str:
        return self._key


class SemCor:
    """As nltk's SemcorCorpusReader with sense tags: a sentence is a list of chunks."""

    def __init__(self, *sentences: list[Any]) -> None:
        self.sentences = sentences

    def tagged_sents(self, fileids: object = None, tag: str = "pos") -> list[list[Any]]:
        assert (fileids, tag) == (None, "sem")
        return list(self.sentences)


def test_nltks_chunks_are_words_with_their_senses() -> None:
    group, friday = Lemma("group", "group%1:03:00::"), Lemma("Friday", "friday%1:28:00::")
    reader = SemCor(
        [
            ["The"],
            Tree(group, [Tree("NE", ["Fulton", "County"])]),
            Tree(friday, ["Friday"]),
            Tree("such.s.00", ["such"]),
            Tree("St._Louis.n.01", ["St.", "Louis"]),
            Tree("man.n.2;1", ["men"]),
            Tree("NE", ["Ivan"]),
            [""],
            ["."],
        ],
        [[""]],
    )
    (sentence,) = readers.nltk_semcor(reader)
    assert sentence.words == (
        *("The", "Fulton County", "Friday", "such", "St. Louis", "men", "Ivan", "."),
    )
    assert sentence.lemmas == (None, "group", "friday", "such", "St._Louis", None, None, None)
    assert sentence.senses == (
        *(None, "group%1:03:00::", "friday%1:28:00::", "such.s.00", "St._Louis.n.01"),
        *(None, None, None),
    )


def test_trees_with_parts_of_speech_below_are_read_too() -> None:
    chunk = Tree(Lemma("say", "say%2:32:00::"), [Tree("VB", ["said"])])
    both = [[chunk, Tree(None, ["."])]]  # some of tagged_sents(tag="both")
    (sentence,) = readers.nltk_semcor(both)
    assert sentence.words == ("said", ".")
    assert sentence.senses == ("say%2:32:00::", None)


def test_what_is_not_nltks_is_refused() -> None:
    for wrong, kind in ((3, "int"), ("text", "str")):
        with pytest.raises(prosect.ProsectError, match=f"NLTK's SemCor reader, .*, got {kind}"):
            readers.nltk_semcor(wrong)
    with pytest.raises(prosect.ProsectError, match="Sentence 0: 3 is not a chunk"):
        readers.nltk_semcor(SemCor([3]))


# --- CoNLL ------------------------------------------------------------------------------------


def test_tabs_empty_lines_and_hashes(write: Write) -> None:
    path = write(
        "# global.columns = token tag\n#duck\tO\n#\tO\n# a remark\nNew York\tB-place\n\u200b\tO\n"
        "\t\n\n\n\xa0\tO\n \nEnd\tO"
    )
    first, second, third = readers.conll(path)
    assert first.words == ("#duck", "#", "New York", "\u200b")
    assert first.tags == ("O", "O", "B-place", "O")
    assert second.words == ("\xa0",)
    assert third == TaggedSentence(("End",), ("O",))


def test_white_space_and_columns(write: Write) -> None:
    path = write(
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP B-ORG\n# id = 7\nrejects VBZ I-VP O\n# NN I-NP O\n"
        "\nIt PRP I-NP O\n"
    )
    first, second = readers.conll(path)
    assert (first.words, first.tags) == (("EU", "rejects", "#"), ("B-ORG", "O", "O"))
    assert second.words == ("It",)
    chunks = readers.conll(path, tag=2)
    assert chunks[0].tags == ("B-NP", "B-VP", "B-NP")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tO\nb\n", "line 2: 1 columns, but previous rows have 2"),
        ("a\nb\n", "line 1: the row has 1 columns, but the token is in column 0"),
        ("a O\nNew York B-LOC\n", "line 2: 3 columns, but previous rows have 2"),
        ("-DOCSTART-\n\na X O\nb O\n", "line 4: 2 columns, but previous rows have 3"),
        ("a\tO\n\tO\n", "line 2: the token is empty"),
        ("a\tO\nb\tNOUN\n", "line 2: tags must be O, or B or I .*, got 'NOUN'"),
        (b"a\tO\n\xe9\tO\n", "line 2 is not UTF-8"),
    ],
)
def test_a_conll_file_that_cannot_be_read_is_told_by_line(
    write: Write, content: Any, message: str
) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        readers.conll(write(content))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-x I-x B-x O I-y I-x", "O B-x I-x B-x O B-y B-x"),  # BIO, with a stray I
        ("I-x I-x B-x I-x I-y O I-y", "B-x I-x B-x I-x B-y O B-y"),  # IOB1
        ("S-x B-x E-x B-x I-x E-x S-x I-x", "B-x B-x I-x B-x I-x I-x B-x B-x"),  # IOBES
        ("U-x B-x L-x I-x", "B-x B-x I-x B-x"),  # BILOU
        ("B I O I", "B I O B"),  # names of no type
        ("B-a-b I-a-b I-a", "B-a-b I-a-b B-a"),
    ],
)
def test_every_scheme_becomes_bio(tags: str, expected: str) -> None:
    assert " ".join(bio(tags.split())) == expected
    assert bio(expected.split()) == tuple(expected.split())


# --- sentences --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaggedSentence((), ()), "at least one word"),
        (lambda: TaggedSentence(("a", ""), ("O", "O")), "tuple of non-empty strings"),
        (lambda: TaggedSentence("ab", ("O", "O")), "tuple of non-empty strings"),
        (lambda: TaggedSentence(("a",), ("O", "O")), "'a' has 1 words and 2 tags"),
        (lambda: TaggedSentence(("a",), ("NN",)), "Tags must be O, .*, got 'NN'"),
        (lambda: SenseSentence(("a",), (None,), ()), "1 words, 1 lemmas and 0 senses"),
        (lambda: SenseSentence(("a",), (None,), ("x",)), "sense 'x' but no lemma"),
    ],
)
def test_sentences_that_do_not_fit_together_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        make()
