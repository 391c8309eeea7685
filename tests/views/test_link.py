"""The hovered token: it stays in the browser until Python has a use for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets
import pytest
import traitlets

import prosect
from prosect.views.view import View
from support.families import TEXTS, random_lens

VIEWS = [prosect.Heatmap, prosect.TermBars, prosect.Neighbors, prosect.Explorer]


@pytest.fixture(scope="module")
def trace() -> prosect.Trace:
    return random_lens("bert").trace(TEXTS[0])


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_on_its_own_keeps_the_hover_in_the_browser(
    view: type[View], trace: prosect.Trace
) -> None:
    made = view(trace, hovered=3)
    assert (made.hovered, made.source) == (3, -1)
    made.observe(print, "layer")
    made.observe(print, ["source", "target"])
    assert not made.get_state()["_shares_hover"]


def test_linked_views_share_the_hover(trace: prosect.Trace) -> None:
    heatmap, bars = prosect.Heatmap(trace), prosect.TermBars(trace)
    links = prosect.link(heatmap, bars)
    assert heatmap.get_state()["_shares_hover"]
    assert bars.get_state()["_shares_hover"]
    bars.hovered = 2
    assert (heatmap.hovered, heatmap.source) == (2, -1)
    bars.source = 1
    assert (heatmap.hovered, heatmap.source) == (2, 1)
    for one in links:
        one.unlink()
    bars.hovered = -1
    assert heatmap.hovered == 2


class Follower(traitlets.HasTraits):
    hovered = traitlets.Int()


OBSERVED: dict[str, Callable[[View], Any]] = {
    "by its name": lambda view: view.observe(print, "hovered"),
    "with others": lambda view: view.observe(print, names=["layer", "hovered"]),
    "with all traits": lambda view: view.observe(print),
    "as one of a list": lambda view: view.observe(print, [traitlets.All]),
    "by a link": lambda view: traitlets.dlink((view, "hovered"), (Follower(), "hovered")),
}


@pytest.mark.parametrize("how", OBSERVED)
def test_an_observed_hover_is_sent(how: str, trace: prosect.Trace) -> None:
    view = prosect.Heatmap(trace)
    OBSERVED[how](view)
    assert view.get_state()["_shares_hover"]


def test_a_view_may_observe_its_own_hover(trace: prosect.Trace) -> None:
    class Counting(prosect.Heatmap):
        seen = 0

        @traitlets.observe("hovered")
        def _count(self, _: Any) -> None:
            self.seen += 1

    view = Counting(trace)
    assert view.get_state()["_shares_hover"]
    view.hovered = 2
    assert view.seen == 1


def test_a_front_end_link_of_the_hover_needs_no_kernel(trace: prosect.Trace) -> None:
    heatmap, bars = prosect.Heatmap(trace), prosect.TermBars(trace)
    ipywidgets.jslink((heatmap, "hovered"), (bars, "hovered"))
    assert not heatmap.get_state()["_shares_hover"]
    assert not bars.get_state()["_shares_hover"]


def test_a_page_opens_without_a_hover(
    trace: prosect.Trace, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, Any] = {}
    monkeypatch.setattr("prosect.page.write", lambda path, **content: written.update(content))
    prosect.TermBars(trace, source=1, hovered=3).to_html(tmp_path / "page.html")
    assert (written["state"]["source"], written["state"]["hovered"]) == (1, -1)
