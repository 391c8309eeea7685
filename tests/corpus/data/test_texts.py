from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import prosect
from prosect.corpus.data.texts import hash_fraction, read


class Dataset:
    """As much of a dataset of the datasets library as is read: columns by name."""

    column_names = ["text", "label"]

    def __getitem__(self, column: str) -> list[str]:
        assert column == "text"
        return ["one", "", "two"]


def test_texts_come_from_iterables_files_and_datasets(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\n\n  \ntwo\n")  # with a byte order mark
    for source in (["one", " ", "two"], (t for t in ("one", "two")), file, Dataset()):
        assert read(source) == ["one", "two"]


def test_what_is_not_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"list of strings or a file .* pathlib\.Path"):
        read("europarl.en")
    with pytest.raises(TypeError, match="Text 1 must be a string, got int"):
        read(["one", 2])
    with pytest.raises(prosect.ProsectError, match="at least one text"):
        read(["", " "])
    with pytest.raises(prosect.ProsectError, match=r"Cannot read texts from .*missing"):
        read(tmp_path / "missing")
    with pytest.raises(
        prosect.ProsectError,
        match="one of text, label of the dataset, got 'sentence'",
    ):
        read(Dataset(), "sentence")
    splits = Dataset()
    splits.column_names = {"train": ["text"], "test": ["text"]}
    with pytest.raises(prosect.ProsectError, match="got the splits train, test"):
        read(splits)


def test_a_line_ends_where_the_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("one\u2028still one\ntwo", encoding="utf-8")
    assert read(file) == ["one\u2028still one", "two"]


def test_tables_are_not_taken_for_their_columns() -> None:
    for table in ({"text": ["one"]}, pd.DataFrame({"text": ["one"]})):
        with pytest.raises(TypeError, match=r"must be one column of the .*, got all of it"):
            read(table)
    assert read(pd.Series(["one"])) == ["one"]
    with pytest.raises(TypeError, match="got NoneType"):
        read(None)


def test_copies_draw_the_same_lot_whatever_their_white_space() -> None:
    assert (
        hash_fraction("one two", 0) == hash_fraction(" one  two ", 0) != hash_fraction("one two", 1)
    )


def test_a_lot_depends_on_the_text_and_the_seed_alone() -> None:
    drawn = np.array([[hash_fraction(f"text {i}", seed) for i in range(2000)] for seed in (0, 1)])
    assert (drawn >= 0).all()
    assert (drawn < 1).all()
    np.testing.assert_allclose(drawn.mean(1), 0.5, atol=0.02)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.1
    assert hash_fraction("text 3", 1) == drawn[1, 3]
