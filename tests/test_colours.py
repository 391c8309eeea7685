"""The colours of the terms are the same in figures and in the front end."""

from __future__ import annotations

from prosect import frontend
from prosect.colours import TERM_COLOURS
from support.families import STACKS, sample


def test_every_term_has_a_colour_of_its_own() -> None:
    terms = {term for family in STACKS for term in sample(family).terms().names}
    assert set(TERM_COLOURS) == terms
    assert len(set(TERM_COLOURS.values())) == len(terms)


def test_the_built_style_sheet_has_the_colours_of_figures() -> None:
    style = frontend.source("widget.css")
    for term, colour in TERM_COLOURS.items():
        assert f"--prosect-{term.replace('_', '-')}: {colour}" in style
