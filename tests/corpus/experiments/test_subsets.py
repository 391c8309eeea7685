from __future__ import annotations

import pytest
import torch

import prosect
from prosect.anatomy.vocabulary import TERMS
from prosect.corpus.experiments import paper
from prosect.corpus.experiments.subsets import chosen_subsets, indicator, label_of, subsets_of

FIVE = (*TERMS, "source")


def test_the_fifteen_subsets_are_in_the_papers_order() -> None:
    labels = [label_of(subset, TERMS) for subset in subsets_of(TERMS)]
    assert labels == [*paper.SUBSETS[:-1], "all"]


def test_decoders_with_a_source_have_thirty_one() -> None:
    labels = [label_of(subset, FIVE) for subset in subsets_of(FIVE)]
    assert len(set(labels)) == 31
    assert labels[4] == "s"
    assert "i+h+f+c" in labels
    assert labels[-1] == "all"


def test_labels_choose_subsets_whatever_the_order_of_letters() -> None:
    chosen = chosen_subsets(["all", "f+i", "h", "i+f", "i+h+f+c"], TERMS)
    assert [label_of(subset, TERMS) for subset in chosen] == ["h", "i+f", "all"]
    assert len(chosen_subsets(None, TERMS)) == 15


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("h", r"subsets must be a list of labels, such as \['h'\]"),
        (["i+x"], r"some of i, h, f, c joined by \+, got 'i\+x'"),
        (["s"], "got 's'"),
        (["i+"], r"got 'i\+'"),
        ([], "at least one label"),
    ],
)
def test_labels_of_no_subset_are_refused(wanted: list[str], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        chosen_subsets(wanted, TERMS)


def test_the_indicator_times_the_terms_gives_their_sums() -> None:
    values = torch.randn(4, 3, 5)
    sums = torch.einsum("st,tnd->snd", indicator(subsets_of(TERMS), TERMS), values)
    for subset, found in zip(subsets_of(TERMS), sums, strict=True):
        plainly = sum(values[TERMS.index(term)] for term in subset)
        torch.testing.assert_close(found, plainly)
