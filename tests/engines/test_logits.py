"""Contributions to a logit, held against the model's own logits."""

from __future__ import annotations

import pytest
import torch

import prosect
from prosect.analyses.maps import last_parts
from prosect.analyses.predictions import logits_of_one
from support.families import (
    PAIRS,
    PREDICTING,
    TEXTS,
    random_lens,
    random_model,
    word_pieces,
)


@pytest.mark.parametrize("family", PREDICTING)
def test_the_parts_of_all_tokens_and_the_rest_sum_to_the_models_own_logit(family: str) -> None:
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0])
    if family in PAIRS:
        trace = lens.trace(TEXTS[0], target=TEXTS[1])
    start = trace.tokens[0].id if family in PAIRS else None
    found = trace.logit_contributions(7, -2)
    own = logits_of_one(lens.model, trace.anatomy, trace.hidden[-1, -2], start)[7]
    cap = getattr(lens.model.config, "final_logit_softcapping", None)
    logit = torch.tensor(found.logit, dtype=own.dtype)
    logit = logit if cap is None else cap * torch.tanh(logit / cap)
    assert float(logit) == pytest.approx(float(own), rel=1e-5, abs=1e-6)
    assert float(found.values.sum()) + found.rest == pytest.approx(found.logit, abs=1e-5)
    assert found.values.shape == (len(trace.tokens),)
    assert found.error < 1e-6


def test_a_linear_head_reads_each_part_by_itself() -> None:
    lens = random_lens("gpt2")
    trace = lens.trace(TEXTS[0])
    found = trace.logit_contributions(5, 3)
    weight = lens.model.lm_head.weight[5]
    blocks = last_parts(trace.analyses, 3)
    for source, part in enumerate(blocks[0]):
        assert float(found.values[source]) == pytest.approx(float(part @ weight), abs=1e-10)
    assert (found.values[4:] == 0).all()  # tokens after it have no part in it


def test_without_a_head_or_a_token_the_sentence_says_so() -> None:
    with pytest.raises(prosect.UnsupportedModelError, match="no head that predicts tokens"):
        prosect.load().trace("a").logit_contributions(3)
    lens = prosect.Lens(random_model("bert"), word_pieces())
    with pytest.raises(prosect.ProsectError, match="token must be from 0 to 399"):
        lens.trace("a").logit_contributions(400)
    trace = lens.trace("a river")
    for token in ("the", 1.5, True):
        with pytest.raises(prosect.ProsectError, match="token must be an integer"):
            trace.logit_contributions(token)
    with pytest.raises(prosect.ProsectError, match="baseline must be one of zero, bias, got 'x'"):
        trace.logit_contributions(3, baseline="x")


def test_a_prediction_is_taken_for_its_token() -> None:
    trace = prosect.Lens(random_model("bert"), word_pieces()).trace("a river")
    first = trace.predict()[0]
    assert trace.logit_contributions(first).logit == trace.logit_contributions(first.id).logit
