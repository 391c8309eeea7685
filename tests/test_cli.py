"""The command line: a page, a certificate, and one sentence where something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import prosect
from prosect.cli import main


def test_the_command_writes_a_page_and_prints_the_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "bank.html"
    assert main(["The bank raised its rates.", "-o", str(page)]) == 0
    printed = capsys.readouterr().out
    error = re.search(r"sum to every hidden state within (\S+) \(relative\)", printed)
    assert error
    assert float(error[1]) <= 1e-5
    assert str(page) in printed
    assert page.stat().st_size > 1000


def test_the_command_estimates_attribution_as_the_views_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exactly(*_: object, **__: object) -> None:
        raise AssertionError("every dimension of every token")

    monkeypatch.setattr("prosect.engines.jacobian.exact", exactly)
    page = str(tmp_path / "page.html")
    assert main(["The bank.", "-o", page, "--kind", "attribution"]) == 0
    assert main(["The bank.", "-o", page, "--kind", "ATBX"]) == 1
    assert "got 'ATBX'" in capsys.readouterr().err


def test_the_command_says_in_one_sentence_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["", "-o", str(tmp_path / "page.html")]) == 1
    assert capsys.readouterr().err == "prosect: The text is empty: give at least one word.\n"
    assert not (tmp_path / "page.html").exists()
    assert main(["a", "--model", "/no/such/folder"]) == 1
    assert capsys.readouterr().err.startswith("prosect: Cannot load '/no/such/folder'")


def test_the_module_is_the_command() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "prosect", "--version"], capture_output=True, text=True, check=False
    )
    assert (asked.returncode, asked.stdout) == (0, f"prosect {prosect.__version__}\n")
