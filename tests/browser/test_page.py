"""The exported page, opened from disk with no network at all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import prosect
from browser.hosts import BUILD, Window
from browser.view import (
    FIRST_BANK,
    HOSTILE,
    HOSTILE_LENS,
    LAST_BANK,
    TEXT,
    ShownView,
    check_hostile,
    check_selection,
)
from prosect.tokens import vocabulary_labels
from prosect.views.registry import PANES
from prosect.views.view import View

OpenPage = Callable[..., Window]


@pytest.fixture(scope="module")
def lens() -> prosect.Lens:
    return prosect.load()


@pytest.fixture(scope="module")
def hostile() -> prosect.Lens:
    names: dict[str, Any] = {}
    exec(HOSTILE_LENS, names)
    return names["hostile_lens"]


def shown(window: Window) -> ShownView:
    """Wait for the view of a page."""
    read = "(name) => globalThis.prosect.model.get(name)"
    root = window.page.locator("#prosect .prosect")
    return ShownView(root, lambda trait: window.page.evaluate(read, trait))


def test_the_page_works_as_the_notebook_does(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    lens.trace(TEXT).explore().to_html(tmp_path / "page.html")
    window = open_page(tmp_path / "page.html")
    check_selection(shown(window))
    expect(window.page).to_have_title(f"{TEXT} – prosect")


def test_the_page_opens_at_the_readers_place(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    view = lens.trace(TEXT).explore()
    view.layer, view.head, view.target, view.source = 4, 9, LAST_BANK, FIRST_BANK
    view.to_html(tmp_path / "page.html")
    page = shown(open_page(tmp_path / "page.html"))
    page.shows_head(4, 9)
    page.shows_target(LAST_BANK)
    page.shows_source(FIRST_BANK)


def test_traits_of_the_page_can_be_set(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    lens.trace(TEXT).explore().to_html(tmp_path / "page.html")
    window = open_page(tmp_path / "page.html")
    view = shown(window)
    window.page.evaluate("prosect.model.set('layer', 2); prosect.model.set('target', 13)")
    window.page.evaluate("prosect.model.save_changes()")
    view.shows_head(2, 0)
    view.shows_target(LAST_BANK)


@pytest.mark.parametrize("pane", PANES)
def test_each_view_has_its_page(
    pane: type[View], lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    pane(lens.trace(TEXT)).to_html(tmp_path / "page.html")
    view = shown(open_page(tmp_path / "page.html"))
    view.token(LAST_BANK).click()
    view.shows_target(LAST_BANK)
    view.reads(target=LAST_BANK)
    view.nothing_sticks_out()


@pytest.mark.parametrize("candidates", ["sentence", "vocabulary"])
def test_hostile_tokens_are_only_text(
    candidates: str, hostile: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    trace = hostile.trace("|".join(HOSTILE))
    trace.explore(candidates=candidates).to_html(tmp_path / "page.html")
    window = open_page(tmp_path / "page.html")
    check_hostile(shown(window))
    assert window.page.title().startswith(HOSTILE[0])


def test_one_single_token(hostile: prosect.Lens, open_page: OpenPage, tmp_path: Path) -> None:
    hostile.trace("👩‍👩‍👧").explore().to_html(tmp_path / "page.html")
    view = shown(open_page(tmp_path / "page.html"))
    assert view.labels == ["👩‍👩‍👧"]
    view.nothing_sticks_out()


def test_a_long_text_needs_no_kernel(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    view = lens.trace(" ".join(["bank"] * 300)).explore()
    assert view._remote
    view.to_html(tmp_path / "page.html")
    page = shown(open_page(tmp_path / "page.html"))
    page.click_thumbnail(5, 2)
    page.shows_head(5, 2)
    page.point_at_cell(150, 10)
    expect(page.part("readout")).to_contain_text("of 302")
    page.nothing_sticks_out()


@pytest.mark.parametrize("width", [1240, 700, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_readers_theme(
    scheme: str, width: int, lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    view = lens.trace(TEXT).explore()
    view.layer, view.head, view.target = 2, 4, LAST_BANK
    view.to_html(tmp_path / "page.html")
    size = {"width": width, "height": 900}
    window = open_page(tmp_path / "page.html", color_scheme=scheme, viewport=size)
    page = shown(window)
    expect(page.root).to_have_attribute("data-theme", scheme)
    page.nothing_sticks_out()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert window.page.evaluate(wide) <= 0
    path = BUILD / "screenshots" / f"page-{width}-{scheme}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    window.page.screenshot(path=path, full_page=True)
    # The page is painted as a whole, not only where the view stands.
    brightness = window.page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    )
    assert (sum(brightness) > 3 * 128) == (scheme == "light")


def test_the_command_writes_the_page(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "bank.html"
    command = [sys.executable, "-m", "prosect.cli", TEXT, "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "sum to" in done.stdout
    check_selection(shown(open_page(path)))


def test_every_kind_of_map_opens(lens: prosect.Lens, open_page: OpenPage, tmp_path: Path) -> None:
    trace = lens.trace(TEXT)
    trace.explore(layer=2, head=4, target=FIRST_BANK).to_html(tmp_path / "page.html")
    view = shown(open_page(tmp_path / "page.html"))
    switch = view.part("kind")
    assert switch.count() == len(trace.kinds)
    for name, kind in trace.kinds.items():
        view.root.locator(f"[data-testid=kind][data-kind={name}]").click()
        view.reads(kind=name)
        expect(view.part("map-title")).to_contain_text(kind.label)
        expect(view.part("map-canvas")).to_be_visible()
        expect(view.part("map-empty")).to_have_count(0)
        view.point_at_cell(FIRST_BANK, LAST_BANK)
        expect(view.part("readout")).to_contain_text("rank")
        view.rest()
        view.nothing_sticks_out()


def test_neighbors_are_found_in_the_vocabulary(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    trace = lens.trace(TEXT)
    trace.explore(target=LAST_BANK).to_html(tmp_path / "page.html")
    view = shown(open_page(tmp_path / "page.html"))
    expect(view.neighbors(0).first).to_have_attribute("data-token", str(LAST_BANK))
    view.choose("candidates", "vocabulary")
    view.reads(candidates="vocabulary")
    expect(view.part("neighbors-title")).to_contain_text("Nearest words of the vocabulary")
    for metric in ("l2", "cosine"):
        view.choose("metric", metric)
        view.reads(metric=metric)
        found = trace.identify(10, metric, "vocabulary")
        for row in range(7):
            words = view.neighbors(row)
            ids = found.ids[row, LAST_BANK, : words.count()].tolist()
            assert [word.get_attribute("data-token") for word in words.all()] == list(map(str, ids))
            labels = vocabulary_labels(ids, lens.tokenizer)
            assert words.locator("bdi").all_text_contents() == labels
        rows = view.root.locator("[data-testid=neighbor-row][data-recovered]")
        expect(rows).to_have_count(int(found.recovered[:, LAST_BANK].sum()))
        expect(view.part("recovered")).to_contain_text("of 30,522 words")
        view.nothing_sticks_out()
    # a word lights up at every layer where it stands, and the token itself in the sentence too
    lit = view.root.locator("[data-testid=neighbor][data-lit]")
    view.neighbors(0).nth(1).hover()
    expect(lit.first).to_have_attribute("data-token", str(found.ids[0, LAST_BANK, 1].item()))
    view.neighbors(0).first.hover()
    expect(lit).to_have_count(7)
    view.shows_source(LAST_BANK)
    view.rest()
    view.token(LAST_BANK).click()
    counts = [str(n) for n in found.recovered.sum(-1).tolist()]
    expect(view.part("identity-count")).to_have_text(counts)
    view.nothing_sticks_out()


def test_the_line_under_the_map_says_what_is_determined(
    lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    trace = lens.trace(f"{TEXT} {TEXT} {TEXT}")
    free, n = trace.attention_identifiability(), len(trace.tokens)
    trace.explore(layer=3, head=7).to_html(tmp_path / "page.html")
    view = shown(open_page(tmp_path / "page.html"))
    line = view.part("identifiability")
    rank, directions = int(free.rank[3, 7]), int(free.dimension[3, 7])
    assert 1 < directions == n - rank
    expect(line).to_have_text(
        f"n {n} · rank {rank} · {directions} directions leave the output unchanged, "
        f"{int(free.dimension_with_sums[3, 7])} with rows summing to one: not identifiable"
    )
    expect(line).to_have_attribute("title", re.compile("Brunner et al. 2020"))
    for kind in ("norm", "effective", "null"):
        view.root.locator(f"[data-testid=kind][data-kind={kind}]").click()
        expect(line).to_contain_text(f"n {n} · rank")
        view.nothing_sticks_out()
    view.part("all-heads").click()
    expect(line).to_have_text(f"n {n} · 0 of 12 heads identifiable")
    view.root.locator("[data-testid=kind][data-kind=ATB]").click()
    expect(line).to_have_count(0)
    lens.trace(TEXT).explore(layer=3, head=7).to_html(tmp_path / "short.html")
    view = shown(open_page(tmp_path / "short.html"))
    line = view.part("identifiability")
    expect(line).to_have_text("n 16 · rank 16 · nothing can change: identifiable")


@pytest.mark.parametrize("width", [1440, 1000, 700])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_the_vocabulary(
    scheme: str, width: int, lens: prosect.Lens, open_page: OpenPage, tmp_path: Path
) -> None:
    """What is new to the eye at once: words of the vocabulary, and what is not determined."""
    trace = lens.trace(f"{TEXT} {TEXT} {TEXT}")
    trace.explore(layer=5, head=2, target=LAST_BANK, candidates="vocabulary").to_html(
        tmp_path / "page.html"
    )
    size = {"width": width, "height": 900}
    window = open_page(tmp_path / "page.html", color_scheme=scheme, viewport=size)
    view = shown(window)
    expect(view.neighbors(0).first.locator("bdi")).to_have_text("bank")
    expect(view.part("identifiability")).to_contain_text("not identifiable")
    view.nothing_sticks_out()
    path = BUILD / "screenshots" / f"vocabulary-{width}-{scheme}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    window.page.screenshot(path=path, full_page=True)
