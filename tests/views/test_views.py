"""What the widgets promise in Python: their traits, their arrays, their answers, their links."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
import transformers

import prosect
from prosect.tokens import vocabulary_labels
from prosect.views import payload
from prosect.views.neighbors import Identifying
from prosect.views.payload import MAX_EAGER_FLOPS, MAX_INITIAL_BYTES
from prosect.views.registry import PANES
from prosect.views.view import PLACE, View
from support.arrays import decode
from support.families import STACKS, TEXTS, random_lens, sample, word_pieces

VIEWS = [*PANES, prosect.Explorer]


@pytest.fixture(scope="module")
def trace() -> prosect.Trace:
    return random_lens("bert").trace(TEXTS[0])


@pytest.fixture(scope="module")
def long_trace() -> prosect.Trace:
    """512 tokens, 6 layers of 12 heads: more than is sent at once."""
    trace = prosect.load().trace("a" + "," * 509)
    assert 2 * trace.attention.numel() > MAX_INITIAL_BYTES
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
    assert all(name.startswith(("map/", "identifiability")) for name in names[prosect.Heatmap])
    assert names[prosect.TermBars] == {"importance"}
    assert all(n.startswith(("neighbors/", "recovered/")) for n in names[prosect.Neighbors])
    assert names[prosect.Explorer] == set().union(*names.values())


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_vocabularys_words_travel_with_their_neighbours(family: str, metric: Any) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    view = prosect.Neighbors(trace)
    found = trace.identify(10, metric, "vocabulary")
    place = f"neighbors/vocabulary/{metric}"
    words = array(view, f"{place}/tokens")
    assert words.tolist() == sorted(set(found.ids.flatten().tolist()))
    assert (words[array(view, f"{place}/ids")] == found.ids.numpy()).all()
    labels = json.loads(bytes(array(view, f"{place}/words")))
    assert labels == vocabulary_labels(words.tolist(), trace.lens.tokenizer)
    np.testing.assert_allclose(array(view, f"{place}/scores"), found.scores.numpy(), rtol=1e-3)
    recovered = array(view, f"recovered/vocabulary/{metric}")
    assert (recovered == found.recovered.numpy()).all()
    assert [token["id"] for token in view._tokens] == [token.id for token in trace.tokens]


def test_tens_of_thousands_of_words_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    found = trace.identify(10, "cosine", "vocabulary")
    many = replace(found, ids=torch.arange(70_000).view(7, 1000, 10))
    monkeypatch.setattr("prosect.analyses.identity.identify", lambda *_: many)
    arrays = {array.name: array for array in payload.neighbors(trace)}
    ids = arrays["neighbors/vocabulary/cosine/ids"].compute()
    assert ids.dtype == np.uint32
    assert (ids.flatten() == np.arange(70_000)).all()


def test_the_identifiability_of_every_head_travels_with_its_map(trace: prosect.Trace) -> None:
    free = trace.attention_identifiability()
    for view in (prosect.Heatmap(trace), trace.explore()):
        rank, dimension, with_sums = array(view, "identifiability")
        assert (rank == free.rank.numpy()).all()
        assert (dimension == free.dimension.numpy()).all()
        assert (with_sums == free.dimension_with_sums.numpy()).all()


@pytest.mark.parametrize("view", VIEWS)
def test_places_start_where_they_are_asked_to(view: type[View], trace: prosect.Trace) -> None:
    made = view(trace, layer=2, head=-1, target=3, source=0, theme="dark")
    assert [getattr(made, name) for name in PLACE] == [2, -1, 3, 0, -1, "attention", "dark"]


@pytest.mark.parametrize("view", [view for view in VIEWS if issubclass(view, Identifying)])
def test_candidates_and_metric_start_where_they_are_asked_to(
    view: type[View], trace: prosect.Trace
) -> None:
    made: Any = view(trace)
    assert (made.candidates, made.metric) == ("sentence", "cosine")
    made = view(trace, candidates="vocabulary", metric="l2")
    assert (made.candidates, made.metric) == ("vocabulary", "l2")
    made.candidates = "sentence"
    assert made.candidates == "sentence"


@pytest.mark.parametrize("view", [view for view in VIEWS if not issubclass(view, Identifying)])
def test_views_without_neighbours_refuse_their_traits(
    view: type[View], trace: prosect.Trace
) -> None:
    with pytest.raises(TypeError, match="has no argument 'candidates': choose from layer"):
        view(trace, candidates="vocabulary")


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("layer", 3, "layer must be from -1 to 2"),
        ("layer", -2, "layer must be from -1 to 2"),
        ("head", 4, "head must be from -1 to 3"),
        ("target", 99, "target must be from -1 to "),
        ("source", -2, "source must be from -1 to "),
        ("hovered", 99, "hovered must be from -1 to "),
        ("kind", "ATBX", "kind must be one of attention"),
        ("theme", "pink", "theme"),
        ("candidates", "world", "candidates must be 'sentence' or 'vocabulary', got"),
        ("metric", "dot", "metric must be 'cosine' or 'l2' in views, got 'dot'"),
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
    assert len(view._data) < MAX_INITIAL_BYTES
    maps = [f"map/{kind}/{layer}" for kind in long_trace.kinds for layer in range(6)]
    costly = [f"overview/{name}" for name, kind in long_trace.kinds.items() if kind.cost]
    searched = [name for name in view._table if "vocabulary" in name]
    assert set(view._remote) == {*maps, *costly, *searched}
    content, buffers = ask(view, "map/attention/4")
    assert content["reply"] == "7"
    back = decode(content["spec"], buffers[0])
    np.testing.assert_allclose(back, long_trace.attention[4].numpy(), rtol=1e-3, atol=1e-38)


SEARCHED = [
    *(f"neighbors/vocabulary/cosine/{part}" for part in ("ids", "scores", "tokens", "words")),
    "recovered/vocabulary/cosine",
]


def large_vocabulary(words: int) -> prosect.Trace:
    """Every word of a large vocabulary with 64 tokens, at four states."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=words,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    lens = prosect.Lens(transformers.BertModel(config).eval(), word_pieces())
    return lens.trace("a" + "," * 61)


def test_a_huge_vocabulary_is_searched_when_it_is_asked_for() -> None:
    trace = large_vocabulary(256_000)
    assert trace.hidden.numel() * 256_000 > MAX_EAGER_FLOPS
    view = prosect.Neighbors(trace, candidates="vocabulary")
    assert set(SEARCHED) <= set(view._remote)
    assert not trace.identified(candidates="vocabulary")
    answers = {name: ask(view, name) for name in SEARCHED}
    values = {n: decode(content["spec"], data[0]) for n, (content, data) in answers.items()}
    ids, scores, words, labels, recovered = (values[name] for name in SEARCHED)
    found = trace.identify(candidates="vocabulary")
    assert (words[ids] == found.ids.numpy()).all()
    np.testing.assert_allclose(scores, found.scores.numpy(), rtol=1e-3)
    assert (recovered == found.recovered.numpy()).all()
    shown = json.loads(bytes(labels))
    assert len(shown) == len(words)
    assert f"⟨{words[-1]}⟩" == shown[-1]  # the tokenizer has no name for it
    # what is found is sent at once from then on
    assert not set(SEARCHED) & set(prosect.Neighbors(trace)._remote)


def test_a_search_that_takes_too_long_says_how_to_have_it(
    trace: prosect.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = random_lens("bert").trace(TEXTS[1])
    monkeypatch.setattr(payload, "MAX_EAGER_FLOPS", 1.0)
    view = prosect.Neighbors(trace)
    monkeypatch.setattr(payload, "MAX_ANSWER_FLOPS", 1.0)
    content, buffers = ask(view, SEARCHED[0])
    assert not buffers
    call = "trace.identify(metric='cosine', candidates='vocabulary')"
    assert f"A search among 400 words takes long for {len(trace.tokens)} tokens" in content["error"]
    assert f"run {call} in a cell" in content["error"]
    exec(call)
    content, buffers = ask(view, SEARCHED[0])
    assert buffers


@pytest.mark.parametrize(
    ("name", "call", "hint"),
    [
        (
            "identifiability",
            "trace.attention_identifiability()",
            "The identifiability of attention takes long for",
        ),
        ("map/ATBFF/1", "trace.map('ATBFF')", "ATBFF takes long for"),
        ("map/attribution/0", "trace.map('attribution')", "Attribution takes long for"),
    ],
)
def test_an_array_that_takes_too_long_says_how_to_have_it(
    name: str, call: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = random_lens("bert").trace("a river")
    monkeypatch.setattr(payload, "MAX_EAGER_FLOPS", 1.0)
    view = prosect.Explorer(trace)
    assert name in view._remote
    monkeypatch.setattr(payload, "MAX_ANSWER_FLOPS", 1.0)
    content, buffers = ask(view, name)
    assert not buffers
    assert content["error"].startswith(hint)
    assert f"run {call} in a cell" in content["error"]
    exec(call)
    content, buffers = ask(view, name)
    assert buffers


@pytest.mark.parametrize("family", ["bert", "gptj", "gemma2"])
def test_the_kinds_that_are_shown_say_what_those_of_the_trace_say(family: str) -> None:
    trace = random_lens(family).trace("a river")
    shown = prosect.Heatmap(trace)._kinds
    assert json.loads(json.dumps(shown)) == shown
    for kind, sent in zip(trace.kinds.values(), shown, strict=True):
        assert sent["hint"].startswith(kind.hint.rstrip("."))
        fields = ("name", "label", "group", "reading", "reference", "per_head", "signed")
        assert {name: sent[name] for name in fields} == {n: getattr(kind, n) for n in fields}


@pytest.mark.parametrize(
    "mode",
    [
        torch.inference_mode,
        torch.enable_grad,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
)
def test_a_view_sends_the_same_numbers_in_every_mode_of_torch(mode: Any) -> None:
    lens = random_lens("bert", torch.float32)
    expected = prosect.Explorer(lens.trace("a river"))._data
    trace = lens.trace("a river")
    with mode():
        assert prosect.Explorer(trace)._data == expected


def test_an_estimate_is_called_one_until_the_map_is_exact() -> None:
    trace = random_lens("bert").trace("a river")

    def hint() -> str:
        return {kind["name"]: kind["hint"] for kind in prosect.Heatmap(trace)._kinds}["attribution"]

    assert hint().endswith(", as shares, estimated from 16 probes per token.")
    trace.map("attribution")
    assert hint() == trace.kinds["attribution"].hint


@pytest.mark.parametrize("family", STACKS)
def test_every_architecture_shows_its_vocabulary(family: str) -> None:
    view = prosect.Neighbors(sample(family))
    found = sample(family).identify(10, "cosine", "vocabulary")
    words = array(view, SEARCHED[2])
    assert (words[array(view, SEARCHED[0])] == found.ids.numpy()).all()


def test_one_token_has_neighbours_in_the_vocabulary() -> None:
    view = prosect.Neighbors(random_lens("gpt2").trace("a"), candidates="vocabulary")
    assert array(view, SEARCHED[0]).shape == (4, 1, 10)
    assert array(view, "neighbors/cosine/ids").shape == (4, 1, 1)


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


@pytest.mark.parametrize("name", [None, 5, ["importance"], {}])
def test_a_request_that_names_no_array_is_answered_with_a_sentence(
    name: Any, trace: prosect.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, sent = prosect.TermBars(trace), []
    monkeypatch.setattr(view, "send", lambda content, buffers=None: sent.append(content))
    view._answer(view, {"request": "7", "array": name}, [])
    assert [one["error"] for one in sent] == [f"This view has no array {name!r}."]


@pytest.mark.parametrize("content", [None, 5, "request", ["request"], {}])
def test_a_message_that_is_no_request_is_left_alone(content: Any, trace: prosect.Trace) -> None:
    view = prosect.TermBars(trace)
    view._answer(view, content, [])


def test_nothing_is_linked_where_one_of_the_views_cannot_be(trace: prosect.Trace) -> None:
    first, second = prosect.Heatmap(trace), prosect.Heatmap(trace)
    other = prosect.Heatmap(random_lens("bert").trace("The river"))
    with pytest.raises(ValueError, match="link views of the same size"):
        prosect.link(first, second, other)
    first.layer = 2
    assert second.layer == 0


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


@pytest.mark.parametrize("wrong", ["hi", None, 3])
def test_what_is_no_trace_is_not_shown(wrong: Any) -> None:
    for view in VIEWS:
        with pytest.raises(prosect.ProsectError, match="trace must be a Trace, got"):
            view(wrong)
    with pytest.raises(
        prosect.ProsectError, match="trace must be a Trace, got Lens: make one with"
    ):
        prosect.Neighbors(random_lens("gpt2"))


def test_what_cannot_be_linked_is_refused(trace: prosect.Trace) -> None:
    with pytest.raises(ValueError, match="views must be views or figures, got 3"):
        prosect.link(prosect.TermBars(trace), 3)
    with pytest.raises(ValueError, match="at least two"):
        prosect.link(prosect.Heatmap(trace))
    other = random_lens("bert").trace("The river")
    with pytest.raises(ValueError, match="tokens: link views of the same size"):
        prosect.link(prosect.Heatmap(trace), prosect.Heatmap(other))
    causal = random_lens("gpt2")
    texts = ("a" + " a" * count for count in range(20))
    alike = next(t for t in map(causal.trace, texts) if len(t.tokens) == len(other.tokens))
    with pytest.raises(ValueError, match="Only one of the views has the kind of map 'AT"):
        prosect.link(prosect.Heatmap(other), prosect.Heatmap(alike))
    with pytest.raises(ValueError, match="no trait in common"):
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
    with pytest.raises(traitlets.TraitError, match="layer must be between -1 and 2"):
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
