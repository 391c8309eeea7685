"""The kinds of map that each family has."""

from __future__ import annotations

import re

import pytest

from prosect.analyses.kinds import kinds_of
from support.families import FAMILIES, PAIRS, TEXTS, Layout, random_lens

POST = "ATTN ATTNRES ATB ATBFF ATBFFRES ATBFFRESLN"
PRE = "ATTN ATB ATBLN ATBLNFF ATBLNFFRES"
PARALLEL = "ATTN ATB ATBFF"
SANDWICH = "ATTN ATTNLN ATB ATBLN ATBLNFF ATBLNFFLN ATBLNFFLNRES"
NORMED_OUTPUTS = "ATTN ATTNLN ATB ATBFF ATBFFLN ATBFFLNRES"

SCOPES: dict[Layout, str] = {
    "post-norm": POST,
    "pre-norm": PRE,
    "parallel": PARALLEL,
    "sandwich": SANDWICH,
    "normed outputs": NORMED_OUTPUTS,
}
CHANGES = {
    POST: "change_FF change_FFRES change_FFRESLN",
    PRE: "change_FF change_FFRES",
    PARALLEL: "",
    SANDWICH: "change_FF change_FFLN change_FFLNRES",
    NORMED_OUTPUTS: "change_FF change_FFLN change_FFLNRES",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_scopes_of_its_layers_in_order(family: str) -> None:
    lens = random_lens(family)
    traces = [lens.trace(TEXTS[0])]
    if family in PAIRS:
        traces.append(lens.trace(TEXTS[0], target=TEXTS[1]))
    for trace in traces:
        scopes = SCOPES[FAMILIES[family].layout]
        names = [
            "attention",
            "norm",
            *scopes.split(),
            "contribution",
            *CHANGES[scopes].split(),
            "effective",
            "null",
            *(["attribution"] if FAMILIES[family].known_scores else []),
            "value_zeroing",
        ]
        assert list(trace.kinds) == names
        for name in set(names) - {"attribution"}:  # each of them has a map; that one takes long
            found = trace.map(name)
            assert found.kind == name
            assert ("head" in found.axes) == trace.kinds[name].per_head
            assert found.values.ndim == len(found.axes)


@pytest.mark.parametrize("family", ["bert", "gpt2", "gptj", "gemma2", "olmo2"])
def test_every_kind_says_what_it_shows_how_to_read_it_and_where_it_comes_from(family: str) -> None:
    kinds = kinds_of(random_lens(family).anatomy)
    assert len({kind.hint for kind in kinds.values()}) == len(kinds)
    for name, kind in kinds.items():
        assert kind.name == name
        assert kind.label
        assert kind.hint.endswith(".")
        assert ". " not in kind.hint
        assert kind.reading.endswith(".")
        assert kind.certificate.endswith(".")
        assert re.match(r"[A-Z][^,]* \d{4}\b", kind.reference)
        assert str(kind) == f"{kind.label}: {kind.hint} {kind.reading} ({kind.reference})"


def test_a_map_has_a_cost_only_behind_a_feed_forward_that_mixes() -> None:
    costly = {
        family: [name for name, kind in kinds_of(random_lens(family).anatomy).items() if kind.cost]
        for family in ("bert", "gpt2", "gptj")
    }
    others = ["contribution", "attribution", "value_zeroing"]
    assert costly == {
        "bert": [
            "ATBFF",
            "ATBFFRES",
            "ATBFFRESLN",
            *others[:1],
            *CHANGES[POST].split(),
            *others[1:],
        ],
        "gpt2": ["ATBLNFF", "ATBLNFFRES", *others[:1], *CHANGES[PRE].split(), *others[1:]],
        "gptj": others,
    }
