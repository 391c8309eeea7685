"""What the widgets promise in Python: their traits, their arrays, their answers, their links."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import traitlets

import prosect
from families import TEXTS, random_lens
from prosect.views.sources import BUDGET
from prosect.views.view import PLACE, View
from views.test_arrays import decode

VIEWS = [prosect.Heatmap, prosect.TermBars, prosect.Neighbors, prosect.Explorer]


@pytest.fixture(scope="module")
def trace() -> prosect.Trace:
    return random_lens("bert").trace(TEXTS[0])


@pytest.fixture(scope="module")
def long_trace() -> prosect.Trace:
    """512 tokens, 6 layers of 12 heads: more than is sent at once."""
    trace = prosect.load().trace("a" + "," * 509)
    assert 2 * trace.attention.numel() > BUDGET
    return trace


def array(view: View, name: str) -> Any:
    spec = view._arrays[name]
    return decode(spec, view._data[spec["offset"] : spec["offset"] + spec["nbytes"]])


def test_a_view_shows_the_numbers_of_its_trace(trace: prosect.Trace) -> None:
    view = trace.explore()
    for layer, expected in enumerate(trace.attention.numpy()):
        np.testing.assert_allclose(array(view, f"map/attention/{layer}"), expected, rtol=1e-3)
    np.testing.assert_allclose(
        array(view, "importance"), trace.terms().importance().numpy(), rtol=1e-3
    )
    for metric in ("cosine", "l2"):
        found = trace.identify(10, metric)
        assert (array(view, f"neighbors/{metric}/ids") == found.ids.numpy()).all()
        assert (array(view, f"recovered/{metric}") == found.recovered.numpy()).all()
        np.testing.assert_allclose(
            array(view, f"neighbors/{metric}/scores"), found.scores.numpy(), rtol=1e-3
        )


def test_each_view_carries_only_what_it_shows(trace: prosect.Trace) -> None:
    names = {view: set(view(trace)._arrays) for view in VIEWS}
    assert all(name.startswith("map/") for name in names[prosect.Heatmap])
    assert names[prosect.TermBars] == {"importance"}
    assert all(n.startswith(("neighbors/", "recovered/")) for n in names[prosect.Neighbors])
    assert names[prosect.Explorer] == set().union(*names.values())


@pytest.mark.parametrize("view", VIEWS)
def test_places_start_where_they_are_asked_to(view: type[View], trace: prosect.Trace) -> None:
    made = view(trace, layer=2, head=-1, target=3, source=0, theme="dark")
    assert [getattr(made, name) for name in PLACE] == [2, -1, 3, 0, "attention", "dark"]


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("layer", 3, "layer counts from 0 to 2"),
        ("layer", -2, "layer counts from 0 to 2"),
        ("head", 4, "head counts from 0 to 3"),
        ("target", 99, "target counts from 0 to "),
        ("source", -2, "source counts from 0 to "),
        ("kind", "ATBX", "choose one of attention"),
        ("theme", "pink", "theme"),
    ],
)
def test_a_place_out_of_range_is_refused_and_nothing_moves(
    trace: prosect.Trace, trait: str, value: object, message: str
) -> None:
    view = trace.explore()
    before = getattr(view, trait)
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(view, trait, value)
    assert getattr(view, trait) == before


def test_an_unknown_argument_is_refused_by_name(trace: prosect.Trace) -> None:
    with pytest.raises(
        TypeError, match="Explorer has no argument 'heads': choose from layer, head"
    ):
        trace.explore(heads=3)


def test_tokens_travel_with_their_text_and_their_words() -> None:
    view = random_lens("gpt2").trace("</script> river").explore()
    assert "".join(token["text"] for token in view._tokens) == "</script>river"
    words = [token["word"] for token in view._tokens]
    expected = [False] + [a == b for a, b in pairwise(words)]
    assert [token["continues"] for token in view._tokens] == expected
    assert any(expected)


def ask(view: View, name: object) -> tuple[dict[str, Any], list[bytes]]:
    """What the view answers when its front end asks for an array."""
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    view.send = lambda content, buffers=None: sent.append((content, buffers or []))
    view._handle_custom_msg({"request": "7", "array": name}, [])
    *working, answer = sent
    assert all(content["working"] for content, _ in working)
    return answer


def test_maps_over_the_budget_are_sent_when_asked_for(long_trace: prosect.Trace) -> None:
    view = prosect.Explorer(long_trace)
    assert len(view._data) < BUDGET
    maps = [f"map/{kind}/{layer}" for kind in long_trace.kinds for layer in range(6)]
    costly = [f"overview/{name}" for name, kind in long_trace.kinds.items() if kind.costly]
    assert set(view._remote) == {*maps, *costly}
    content, buffers = ask(view, "map/attention/4")
    assert content["reply"] == "7"
    back = decode(content["spec"], buffers[0])
    np.testing.assert_allclose(back, long_trace.attention[4].numpy(), rtol=1e-3, atol=1e-38)


def test_long_texts_have_thumbnails_that_keep_the_largest_values(
    long_trace: prosect.Trace, trace: prosect.Trace
) -> None:
    view = prosect.Explorer(long_trace)
    small = array(view, "overview/attention")
    blocks = long_trace.attention.numpy().reshape(6, 12, 32, 16, 32, 16)
    np.testing.assert_allclose(small, blocks.max((3, 5)), rtol=1e-3)
    assert not any(name.startswith("overview/") for name in trace.explore()._arrays)


def test_an_array_that_there_is_not_is_answered_with_a_sentence(trace: prosect.Trace) -> None:
    content, buffers = ask(trace.explore(), "map/attention/77")
    assert content["reply"] == "7"
    assert "no array 'map/attention/77'" in content["error"]
    assert not buffers


def test_link_keeps_places_the_same_both_ways(trace: prosect.Trace) -> None:
    heatmap, bars = prosect.Heatmap(trace, layer=2), prosect.TermBars(trace)
    links = prosect.link(heatmap, bars)
    assert bars.layer == 2
    bars.target = 4
    heatmap.head = -1
    assert (heatmap.target, bars.head) == (4, -1)
    for one in links:
        one.unlink()
    heatmap.layer = 0
    assert bars.layer == 2


def test_what_cannot_be_linked_is_refused(trace: prosect.Trace) -> None:
    with pytest.raises(ValueError, match="at least two"):
        prosect.link(prosect.Heatmap(trace))
    other = random_lens("bert").trace("The river")
    with pytest.raises(ValueError, match="tokens: link views of the same size"):
        prosect.link(prosect.Heatmap(trace), prosect.Heatmap(other))
    with pytest.raises(ValueError, match="nothing to link"):
        prosect.link(prosect.Heatmap(trace), traitlets.HasTraits())


def test_a_figure_links_by_its_layer(trace: prosect.Trace) -> None:
    figure, view = prosect.figures.importance(trace), trace.explore(layer=1)
    prosect.link(view, figure)
    assert figure.layer == 1
    figure.layer = 2
    assert view.layer == 2
    assert list(figure.marks[0].selected) == [3]
    figure.marks[0]._handle_custom_msgs(None, {"event": "hover", "data": {"x": 0}}, None)
    assert view.layer == -1
    with pytest.raises(traitlets.TraitError, match="layer counts from 0 to 2"):
        figure.layer = 3


def test_the_figure_shows_the_mean_importance(trace: prosect.Trace) -> None:
    bars = prosect.figures.importance(trace).marks[0]
    np.testing.assert_allclose(bars.y, trace.terms().importance().mean(-1).numpy())
    np.testing.assert_allclose(bars.y.sum(0), 1.0)
    assert bars.labels == ["input", "attention", "feed-forward", "bias"]


def test_a_closed_view_lets_its_trace_go() -> None:
    view = random_lens("gpt2").trace("a river").explore()
    gone = weakref.ref(view._trace)
    view.close()
    del view
    gc.collect()
    assert gone() is None
