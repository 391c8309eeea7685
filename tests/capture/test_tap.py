"""The tapped run computes what the model itself computes with ``eager`` attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from support.families import (
    FAMILIES,
    PAIRS,
    STACKS,
    TEXTS,
    family_of,
    random_lens,
    random_model,
    sample,
    word_pieces,
)


def eager(lens: prosect.Lens, family: str, model: Any, pair: str | None = None) -> Any:
    """What the model itself returns for the texts; a decoder starts by the model's own rule."""
    model.set_attn_implementation("eager")
    inputs = lens.tokenizer(TEXTS[0], pair, return_tensors="pt")
    run = model.base_model
    if family == "distilbert":
        inputs.pop("token_type_ids")
    if family in PAIRS:
        run = model
        inputs["labels"] = lens.tokenizer(text_target=TEXTS[1], return_tensors="pt").input_ids
    with torch.no_grad():
        return run(**inputs, output_hidden_states=True, output_attentions=True)


def assert_same(got: Tensor, batched: tuple[Tensor, ...], tolerance: float) -> None:
    expected = torch.cat(batched)
    assert got.shape == expected.shape
    if tolerance == 0:
        assert torch.equal(got, expected)
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stack", STACKS)
def test_the_tapped_run_equals_the_models_own_eager_run(stack: str, dtype: torch.dtype) -> None:
    trace, family = sample(stack, dtype), family_of(stack)
    output = eager(trace.lens, family, random_model(family, dtype))
    rounded = dtype == torch.float64 and FAMILIES[family].float32_eager_softmax
    tolerance = 1e-6 if rounded else 0.0
    if family not in PAIRS:
        hidden, attention = output.hidden_states, output.attentions
    elif trace.encoder is None:
        hidden, attention = output.encoder_hidden_states, output.encoder_attentions
    else:
        hidden, attention = output.decoder_hidden_states, output.decoder_attentions
        assert trace.cross_attention is not None
        assert_same(trace.cross_attention, output.cross_attentions, tolerance)
    assert_same(trace.attention, attention, tolerance)
    if stack == "opt-post-norm":  # it reports its last state after the projection to its head
        project: Any = trace.lens.model.base_model.decoder.project_out
        assert_same(project(trace.hidden[-1:]), hidden[-1:], 2 * tolerance)
        assert_same(trace.hidden[:-1], hidden[:-1], tolerance)
    else:
        assert_same(trace.hidden, hidden, tolerance)


def test_the_demo_models_run_equals_its_own_eager_run() -> None:
    lens = prosect.load()
    trace = lens.trace(TEXTS[3])
    model: Any = prosect.load().model
    model.set_attn_implementation("eager")
    inputs = lens.tokenizer(TEXTS[3], return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True, output_attentions=True)
    assert_same(trace.hidden, output.hidden_states, 0.0)
    assert_same(trace.attention, output.attentions, 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_of_texts_runs_as_the_models_own(family: str) -> None:
    lens = random_lens(family, torch.float32)
    inputs = lens.tokenizer("The river bank.", "Its rates.", return_tensors="pt")
    if family == "distilbert":
        inputs.pop("token_type_ids")
    model: Any = random_model(family, torch.float32)
    model.set_attn_implementation("eager")
    run = model.get_encoder() if family in PAIRS else model.base_model
    with torch.no_grad():
        expected = run(**inputs).last_hidden_state[0]
    got = lens.trace("The river bank.", "Its rates.").hidden[-1]
    if lens.anatomy.outlet is not None:
        got = lens.anatomy.outlet(got)
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("family", "window", "local"),
    [
        # how many tokens a token sees, itself included, and the layers that see no more
        ("mistral", 6, (0, 1, 2)),
        ("gemma2", 6, (0, 2)),
        ("gpt-neo", 4, (1, 3)),
    ],
)
def test_local_attention_ends_at_its_window(
    family: str, window: int, local: tuple[int, ...]
) -> None:
    attention = sample(family).attention
    n = attention.shape[-1]
    assert n > window + 2
    distance = torch.arange(n)[:, None] - torch.arange(n)
    for layer, weights in enumerate(attention):
        assert (weights[:, distance < 0] == 0).all()
        assert (weights[:, (distance >= 0) & (distance < window)] > 0).all()
        assert (weights[:, distance >= window] == 0).all() == (layer in local)


def test_local_attention_of_an_encoder_looks_both_ways() -> None:
    attention = sample("modernbert").attention
    distance = torch.arange(attention.shape[-1])[:, None] - torch.arange(attention.shape[-1])
    assert distance.max() > 5
    for layer, weights in enumerate(attention):
        assert (weights[:, distance.abs() <= 4] > 0).all()
        assert (weights[:, distance.abs() > 4] == 0).all() == (layer > 0)


def test_a_gemma_that_looks_both_ways_is_not_causal() -> None:
    causal, both = (
        random_lens("gemma3", use_bidirectional_attention=flag).trace(TEXTS[0])
        for flag in (False, True)
    )
    assert causal.anatomy.causal
    assert not both.anatomy.causal
    distance = torch.arange(len(both.tokens))[:, None] - torch.arange(len(both.tokens))
    for attention in both.attention:  # all layers have a window of 6, of which it keeps 4 each side
        assert torch.equal(attention > 0, (distance.abs() < 4).expand_as(attention))
    assert both.map("effective").error <= 1e-12


def test_soft_capped_scores_stay_within_the_cap() -> None:
    cap = 2.0
    weights = sample("gemma2").attention
    seen = torch.where(weights > 0, weights, weights.amax(-1, keepdim=True))
    ratio = (seen.amax(-1) / seen.amin(-1)).log()
    assert ratio.max() <= 2 * cap
    assert ratio.max() > cap  # so the cap is what holds them: random scores are far apart


def test_relative_positions_reach_t5s_attention() -> None:
    """Two equal tokens differ in T5 only by their distance from the token that looks at them."""
    lens = random_lens("t5", torch.float32)
    trace = lens.trace(",,,,,,")
    commas = [i for i, token in enumerate(trace.tokens) if token.span is not None]
    assert len({trace.tokens[i].id for i in commas}) == 1
    weights = trace.attention[0, :, commas[0], commas]
    assert (weights.log().std(-1) > 0.01).all()


def test_every_layer_and_head_of_attention_sums_to_one() -> None:
    for stack in STACKS:
        trace = sample(stack, torch.float32)
        maps = [
            trace.attention,
            *([] if trace.cross_attention is None else [trace.cross_attention]),
        ]
        for weights in maps:
            assert (weights.sum(-1) - 1).abs().max() < 1e-5, stack
            assert (weights >= 0).all(), stack


def test_a_bert_tokenizer_with_types_reaches_the_type_embedding() -> None:
    lens = prosect.Lens(random_model("bert", torch.float32), word_pieces())
    one = lens.trace("the river", "the bank").hidden[0]
    types = lens.tokenizer("the river", "the bank").token_type_ids
    assert 1 in types
    table: Any = lens.model.base_model.embeddings.token_type_embeddings
    with torch.no_grad():
        table.weight[1] += 1.0
    other = lens.trace("the river", "the bank").hidden[0]
    changed = (one != other).any(-1)
    assert changed.tolist() == [bool(kind) for kind in types]


def test_an_attention_that_takes_what_is_not_known_is_refused() -> None:
    lens = random_lens("bert")
    core = lens.anatomy.blocks[0].attention.core

    def with_sinks(_module: object, args: object, kwargs: dict[str, object]) -> object:
        return args, {**kwargs, "s_aux": torch.zeros(4)}

    core.register_forward_pre_hook(with_sinks, with_kwargs=True)
    with pytest.raises(
        prosect.UnsupportedModelError, match="takes 's_aux', which prosect does not"
    ):
        lens.trace(TEXTS[0])
