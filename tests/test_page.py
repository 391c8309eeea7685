"""The page holds the view whole, and nothing in it can break out."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import prosect
from prosect.views import payload
from support.arrays import decode
from support.families import random_lens


class Reader(HTMLParser):
    """The elements of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: dict[str, str] = {}
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self.inside] = self.texts.get(self.inside, "") + data


HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> <!-- &amp; 日本語"


def test_hostile_text_adds_no_element(tmp_path: Path) -> None:
    lens = prosect.load()
    lens.trace(HOSTILE).explore().to_html(tmp_path / "hostile.html")
    lens.trace("A river.").explore().to_html(tmp_path / "plain.html")
    hostile = Reader((tmp_path / "hostile.html").read_text(encoding="utf-8"))
    plain = Reader((tmp_path / "plain.html").read_text(encoding="utf-8"))
    assert hostile.tags == plain.tags
    assert hostile.texts["title"].strip() == f"{HOSTILE} – prosect"
    tokens = json.loads(hostile.texts["prosect-state"])["state"]["_tokens"]
    written = "".join(token["text"] for token in tokens if not token["special"])
    assert written == HOSTILE.replace(" ", "")


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    prosect.load().trace("A river.").explore().to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"'\s)<\\]+", page))
    assert all(address.startswith("http://www.w3.org/") for address in addresses)
    assert "@import" not in page


def test_the_page_holds_every_array_of_the_view(tmp_path: Path) -> None:
    trace = prosect.load().trace("a" + "," * 509)
    view = trace.explore(layer=3, target=5)
    view.to_html(tmp_path / "deep" / "long.html")
    content = json.loads(
        Reader((tmp_path / "deep" / "long.html").read_text(encoding="utf-8")).texts["prosect-state"]
    )
    assert content["state"]["layer"] == 3
    assert content["state"]["target"] == 5
    assert gzip.decompress(b64decode(content["buffers"]["_data"])) == view._data
    kept = [kind["name"] for kind in content["state"]["_kinds"]]
    assert kept == [name for name in trace.kinds if name in kept]
    assert "attention" in kept
    assert "attribution" not in kept  # hours, for a text of that length
    wanted = {f"map/{kind}/{layer}" for kind in kept for layer in range(6)}
    wanted |= {name for name in view._table if "vocabulary" in name}
    assert set(content["remote"]) == set(content["state"]["_remote"]) == wanted
    spec = content["remote"]["map/attention/5"]
    back = decode(spec, gzip.decompress(b64decode(spec["data"])))
    np.testing.assert_allclose(back, trace.attention[5].numpy(), rtol=1e-3, atol=1e-38)


def test_a_page_keeps_the_search_that_is_open_and_those_that_take_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload, "MAX_EAGER_FLOPS", 1.0)
    monkeypatch.setattr(payload, "MAX_PAGE_FLOPS", 1.0)
    trace = random_lens("bert").trace("a river")

    def searched(view: prosect.Neighbors) -> set[str]:
        view.to_html(tmp_path / "page.html")
        page = Reader((tmp_path / "page.html").read_text("utf-8"))
        content = json.loads(page.texts["prosect-state"])
        assert content["state"]["candidates"] == view.candidates
        assert content["state"]["metric"] == view.metric
        assert set(content["remote"]) == set(content["state"]["_remote"])
        return {name.split("vocabulary/")[1].split("/")[0] for name in content["remote"]}

    assert searched(prosect.Neighbors(trace)) == set()
    near = prosect.Neighbors(trace, candidates="vocabulary", metric="l2")
    assert searched(near) == {"l2"}
    monkeypatch.setattr(payload, "MAX_PAGE_FLOPS", 1e12)
    other = random_lens("bert").trace("a river")
    assert searched(prosect.Neighbors(other)) == {"cosine", "l2"}


@pytest.mark.parametrize("view", ["Heatmap", "TermBars", "Neighbors", "Explorer"])
def test_every_view_has_a_page(view: str, tmp_path: Path) -> None:
    getattr(prosect, view)(random_lens("gpt2").trace("a river")).to_html(tmp_path / "page.html")
    content = json.loads(Reader((tmp_path / "page.html").read_text("utf-8")).texts["prosect-state"])
    assert content["state"]["_arrays"]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    prosect.TermBars(random_lens("gpt2").trace("a river")).to_html("~/pages/a.html")
    assert (tmp_path / "pages" / "a.html").exists()
    assert not (tmp_path / "~").exists()
