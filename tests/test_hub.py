"""Without a network a model id gets its answer after one attempt; what is cached still opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import get_session

import prosect
from prosect import hub
from support.families import random_model, word_pieces


class ConnectTimeoutError(Exception):
    """What the hub's client raises where nobody answers."""


class ReadTimeoutError(Exception):
    """What it raises where somebody takes long to answer."""


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request to the hub; each of them fails to connect."""
    made: list[str] = []

    def refuse(request: Any, **_options: Any) -> Any:
        made.append(str(request.url))
        raise httpx2.ConnectError("no network")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(get_session(), "send", refuse)
    return made


def test_an_id_without_a_network_is_answered_after_one_attempt(attempts: list[str]) -> None:
    with pytest.raises(prosect.ProsectError, match="Cannot load 'nobody/has-this-model'") as raised:
        prosect.load("nobody/has-this-model")
    assert "\n" not in str(raised.value)
    assert attempts.count(constants.ENDPOINT) == 1
    assert not [url for url in attempts if "has-this-model" in url]


def test_a_cached_model_opens_without_a_network(
    attempts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0" * 40
    repository = tmp_path / "models--somebody--small-bert"
    snapshot = repository / "snapshots" / commit
    model = random_model("bert", torch.float32)
    model.save_pretrained(snapshot)
    word_pieces().save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    lens = prosect.load("somebody/small-bert", cache_dir=tmp_path)
    assert type(lens.model).__name__ == "BertForMaskedLM"
    assert attempts.count(constants.ENDPOINT) == 1
    assert not [url for url in attempts if "small-bert" in url]


def test_a_local_folder_asks_nobody(attempts: list[str], tmp_path: Path) -> None:
    random_model("bert", torch.float32).save_pretrained(tmp_path)
    word_pieces().save_pretrained(tmp_path)
    prosect.load(tmp_path)
    assert attempts == []


@pytest.mark.parametrize(
    ("error", "answers"), [(ConnectTimeoutError, False), (ReadTimeoutError, True)]
)
def test_a_slow_answer_is_an_answer(
    error: type[Exception], answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(get_session(), "head", fail)
    assert hub.hub_answers() is answers


def test_a_reachable_hub_is_asked_for_the_model(
    monkeypatch: pytest.MonkeyPatch, attempts: list[str]
) -> None:
    monkeypatch.setattr("prosect.lens.hub_answers", lambda: True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _seconds: None)
    with pytest.raises(prosect.ProsectError, match="Cannot load"):
        prosect.load("nobody/has-this-model")
    assert any("nobody/has-this-model" in url for url in attempts)


def test_in_offline_mode_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, attempts: list[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub.hub_answers()
    assert attempts == []
