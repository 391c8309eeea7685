"""Maps as readers ask for them: by kind, compared, with their pairs named, or refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats

import prosect
from prosect.analyses.comparison import pair_kinds
from prosect.anatomy.vocabulary import looking_back
from prosect.tokens import Token
from support.families import FAMILIES, TEXTS, WINDOWS, random_lens, random_model, within_window

CAUSAL = ("bert-decoder", "gpt2", "gpt-neox", "gptj", "bloom", "opt-post-norm", "mistral", "gemma2")


def test_an_unknown_kind_baseline_or_measure_is_refused_in_one_sentence() -> None:
    trace = random_lens("gpt2").trace(TEXTS[0])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"kind": "ATBFF"}, "kind must be one of attention, "),
        ({"kind": "ATB", "baseline": "mean"}, "baseline must be one of zero, bias, got 'mean'."),
        ({"kind": "ATB", "measure": "l2"}, "measure must be one of norm, alti, got 'l2'."),
        (
            {"kind": "norm", "measure": "alti"},
            "measure has no effect on the kind 'norm': leave it out, or",
        ),
        ({"kind": "attention", "rest": True}, "'attention' has no part that belongs to no token."),
        ({"kind": "value_zeroing", "rest": True}, "has no part that belongs to no token."),
    ]
    for options, sentence in refused:
        with pytest.raises(prosect.ProsectError) as caught:
            trace.map(**options)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(prosect.ProsectError, match="'attention' has no mixing ratio"):
        trace.map("attention").mixing()
    with pytest.raises(prosect.ProsectError, match="not both maps of whole layers"):
        trace.compare("attention", "norm")
    with pytest.raises(prosect.ProsectError, match="between 0 and 1, got 2"):
        trace.rollout("ATB", residual=2)
    with pytest.raises(prosect.ProsectError, match="between 0 and 1, got 'a'"):
        trace.rollout("ATB", "a")
    with pytest.raises(prosect.ProsectError, match=r"kind must be one of .*, got \['attention'\]"):
        trace.map(["attention"])
    with pytest.raises(prosect.ProsectError, match="value_bias must be True or False, got 'no'"):
        trace.map("ATB", value_bias="no")


def test_options_without_effect_on_a_kind_are_refused() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    for name, kind in trace.kinds.items():
        for option, value in (("value_bias", False), ("baseline", "bias"), ("measure", "alti")):
            chosen: dict[str, Any] = {option: value}
            if option not in kind.options:
                with pytest.raises(
                    prosect.ProsectError, match=f"{option} has no effect on the kind"
                ):
                    trace.map(name, **chosen)
            else:
                assert not torch.equal(trace.map(name, **chosen).values, trace.map(name).values)


def test_only_maps_of_single_layers_that_are_not_negative_roll_out() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    names = trace.kinds.keys() - {"null", "norm", "effective", "contribution", "attribution"}
    names = {name for name in names if not name.startswith("change")}
    assert {"attention", "ATTN", "ATBFFRESLN", "value_zeroing"} <= names
    for kind in trace.kinds:
        if kind in names:
            assert torch.isfinite(trace.rollout(kind).values).all()
        else:
            with pytest.raises(
                prosect.ProsectError, match="choose one of attention, ATTN, ATTNRES"
            ):
                trace.rollout(kind)


def _silenced(family: str) -> prosect.Trace:
    """The second layer's attention writes nothing, as in models that were grown by empty blocks."""
    lens = random_lens(family)
    output = lens.anatomy.blocks[1].attention.output
    with torch.no_grad():
        output.module.weight.zero_()
        if output.module.bias is not None:
            output.module.bias.zero_()
    return lens.trace(TEXTS[0])


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "gemma2"])
def test_where_attention_writes_nothing_nothing_is_mixed(family: str) -> None:
    trace = _silenced(family)
    for kind, described in trace.kinds.items():
        found = trace.map(kind)
        assert torch.isfinite(found.values).all(), kind
        if found.own is not None and not described.whole:
            assert torch.isfinite(found.mixing()).all(), kind
            assert (found.mixing()[1] == 0).all(), kind
        if described.rolls_out:
            assert torch.isfinite(trace.rollout(kind).values).all(), kind
    assert all(torch.isfinite(share).all() for share in trace.cancellation().values())
    # nothing has no order that could change
    assert trace.compare("ATTN", "ATB").change.isnan().tolist() == [False, True, False]
    assert trace.compare("ATTN", "ATTN").change.tolist() == [0, 0, 0]
    correlation = trace.effective_correlation()
    assert correlation.pearson[1].isnan().all()  # A⊥ is zero there: it has no correlation
    assert "nan" not in repr(correlation)


def test_a_model_of_zeros_has_maps_of_zeros() -> None:
    for family in ("bert", "llama"):
        lens = prosect.Lens(random_model(family), FAMILIES[family].tokenizer())
        with torch.no_grad():
            for parameter in lens.model.parameters():
                parameter.zero_()
        trace = lens.trace("a river")
        for kind in trace.kinds:
            found = trace.map(kind)
            assert found.error == 0 or kind == "attention", kind
            assert torch.isfinite(found.values).all(), kind
        assert (trace.terms().importance() == 0).all()
        assert (trace.terms().norm() == 0).all()
        assert trace.logit_contributions(3).error == 0


def test_one_token_has_nothing_to_take_back_and_is_its_own_effective_attention() -> None:
    trace = random_lens("gpt2").trace("a")
    assert [share.tolist() for share in trace.cancellation().values()] == [[0.0] * 3]
    found = trace.effective_correlation()
    assert (found.pearson == 1).all()
    assert (found.spearman == 1).all()
    assert (found.baseline == 1).all()


def test_the_rest_is_one_more_column() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    n = len(trace.tokens)
    for kind in ("ATTN", "ATBFFRESLN", "contribution"):
        plain, wide = trace.map(kind), trace.map(kind, rest=True)
        assert wide.values.shape == (*plain.values.shape[:2], n + 1)
        assert torch.equal(wide.values[..., :n], plain.values)
        assert plain.rest is not None
        assert torch.equal(wide.values[..., n], plain.rest)
        assert (plain.rest > 0).any()


@pytest.mark.parametrize("family", CAUSAL)
def test_in_causal_models_no_token_gets_anything_from_those_after_it(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    for kind in trace.kinds:
        values = trace.map(kind).values
        assert values.triu(1).abs().max() <= 1e-12 * values.abs().max(), kind
        # a window narrower than its heads leaves nothing that could be otherwise
        nothing = (kind, family) == ("null", "mistral")
        assert (values == 0).all() == nothing


@pytest.mark.parametrize("family", ["gpt2", "llama", "gptj", "gemma2"])
def test_a_single_token_has_maps_of_itself(family: str) -> None:
    trace = random_lens(family).trace("a")
    assert len(trace.tokens) == 1
    for kind in trace.kinds:
        baselines = ("zero", "bias") if "baseline" in trace.kinds[kind].options else ("zero",)
        for baseline in baselines:
            found = trace.map(kind, baseline=baseline)
            assert found.error < 1e-6
            assert found.values.shape[-2:] == (1, 1)
            assert torch.isfinite(found.values).all()
            if found.own is not None:
                assert (found.mixing() < 1e-9).all()
    assert trace.map("ATB", measure="alti").values.flatten().tolist() == pytest.approx([1.0] * 3)
    assert trace.compare("ATTN", "ATB").pairs() == []


def test_a_map_is_computed_once_and_never_requires_gradients() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    for kind in trace.kinds:
        assert torch.equal(trace.map(kind).values, trace.map(kind).values)
        assert not trace.map(kind).values.requires_grad


def test_maps_in_half_precision_are_computed_in_float32() -> None:
    for family in ("bert", "llama"):
        trace = random_lens(family, torch.bfloat16).trace(TEXTS[0])
        for kind in trace.kinds:
            found = trace.map(kind)
            assert found.values.dtype == torch.float32
            assert found.error < 5e-2, kind


def test_a_comparison_is_the_difference_and_its_rank_correlation() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    found = trace.compare("ATB", "ATBFF")
    before, after = trace.map("ATB").values, trace.map("ATBFF").values
    assert torch.equal(found.values, after - before)
    for layer, change in enumerate(found.change.tolist()):
        rho = stats.spearmanr(before[layer].flatten(), after[layer].flatten()).statistic
        assert change == pytest.approx(1 - rho, abs=1e-6)


@pytest.mark.parametrize("family", ["mistral", "modernbert"])
def test_a_comparison_is_of_the_pairs_that_a_layer_sees(family: str) -> None:
    """Beyond the window both are zero, which is no agreement; through all layers there is no window."""
    trace = random_lens(family, **WINDOWS[family][0]).trace(" ".join(TEXTS[:2]))
    names = ("ATB", "ATBLN")
    before, after = (trace.map(name).values for name in names)
    for layer, change in enumerate(trace.compare(*names).change.tolist()):
        seen = within_window(family, layer, len(trace.tokens))
        rho = stats.spearmanr(before[layer][seen], after[layer][seen]).statistic
        assert change == pytest.approx(1 - rho, abs=1e-6)
    change = trace.compare("ATB", "contribution").change[-1]
    seen = looking_back(len(trace.tokens)) if family == "mistral" else before[-1] > -1
    rho = stats.spearmanr(before[-1][seen], trace.map("contribution").values[-1][seen]).statistic
    assert float(change) == pytest.approx(1 - rho, abs=1e-6)


def test_the_pairs_of_a_comparison_are_the_most_amplified_of_different_tokens() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    found = trace.compare("ATB", "ATBFF")
    pairs = found.pairs(k=4)
    n, grew = len(trace.tokens), 0
    for layer, change in enumerate(found.values):
        ranked = sorted(
            ((float(change[i, j]), i, j) for i in range(n) for j in range(n) if i != j),
            reverse=True,
        )
        grew += sum(amount > 0 for amount, _, _ in ranked)
        own = [p for p in pairs if p.layer == layer]
        assert [(p.change, p.target, p.source) for p in own] == ranked[:4]
        kinds = pair_kinds(trace.tokens)
        assert all(p.kind == kinds[p.target][p.source] for p in own)
    assert len(found.pairs(k=10_000)) == grew < len(found.values) * n * (n - 1)


@pytest.mark.parametrize("family", ["gpt2", "mistral", "modernbert"])
def test_the_pairs_of_a_comparison_can_be_seen_and_grew(family: str) -> None:
    options = WINDOWS[family][0] if family in WINDOWS else {}
    trace = random_lens(family, **options).trace(" ".join(TEXTS[:2]))
    n = len(trace.tokens)
    kinds = (("ATBLN", "ATB"), ("ATB", "ATBLN"), ("ATB", "value_zeroing"))
    pairs = [pair for names in kinds for pair in trace.compare(*names).pairs(10_000)]
    assert pairs
    for pair in pairs:
        seen = looking_back(n) if family == "gpt2" else within_window(family, pair.layer, n)
        assert seen[pair.target, pair.source]
        assert pair.change > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": -1}, "k must be at least 1, got -1"),
        ({"k": 1.5}, "k must be an integer, got 1.5"),
        ({"labels": 3}, "labels must be a list with one label per word, got 3"),
    ],
)
def test_pairs_are_asked_for_in_whole_numbers(options: dict[str, Any], sentence: str) -> None:
    comparison = random_lens("bert").trace("a river").compare("ATB", "ATBFF")
    with pytest.raises(prosect.ProsectError, match=sentence):
        comparison.pairs(**options)


def test_cancellation_is_by_scope_after_the_feed_forward() -> None:
    names = {
        "bert": ["ATBFFRES", "ATBFFRESLN"],
        "gpt2": ["ATBLNFFRES"],
        "gptj": [],
        "gemma2": ["ATBLNFFLN", "ATBLNFFLNRES"],
    }
    for family, expected in names.items():
        trace = random_lens(family).trace(TEXTS[0])
        found = trace.cancellation()
        assert list(found) == expected
        assert all(share.shape == (3,) for share in found.values())
    maps = [
        _rows(prosect.load().trace(TEXTS[0]).map(k).values[2]) for k in ("ATB", "ATBFF", "ATBFFRES")
    ]
    change, answer = (maps[1] - maps[0]).flatten(), (maps[2] - maps[1]).flatten()
    share = float(-(answer @ change) / (change @ change))
    found = prosect.load().trace(TEXTS[0]).cancellation()
    assert float(found["ATBFFRES"][2]) == pytest.approx(share, rel=1e-4)
    assert share > 0.5  # the residual connection takes most of it back


def _rows(values: torch.Tensor) -> torch.Tensor:
    return (values / values.sum(-1, keepdim=True)).double()


def test_gains_are_held_against_the_size_of_what_the_feed_forward_writes() -> None:
    lens = random_lens("bert")
    trace = lens.trace(TEXTS[0])
    seen = []
    modules: list[Any] = [block.module for block in lens.anatomy.blocks]
    for module in modules:
        module.output.dense.register_forward_hook(lambda _m, _a, out: seen.append(out[0]))
    with torch.no_grad():
        lens.model(**lens.tokenizer(TEXTS[0], return_tensors="pt"))
    found = trace.gains()
    assert [relation.layer for relation in found] == [0, 1, 2]
    for relation, output, module in zip(found, seen, modules, strict=True):
        size, gain = output.abs().mean(0), module.output.LayerNorm.weight.detach()
        torch.testing.assert_close(relation.size, size)
        torch.testing.assert_close(relation.gain, gain)
        expected = stats.pearsonr(gain.abs().numpy(), size.numpy()).statistic
        assert relation.correlation == pytest.approx(expected)
    assert [r.layer for r in random_lens("gemma2").trace(TEXTS[0]).gains()] == [0, 1, 2]
    assert random_lens("gpt2").trace(TEXTS[0]).gains() == []
    assert repr(found[0]).startswith("GainRelation(layer 0: correlation ")
    assert "tensor" not in repr(found[0])


def test_rollout_multiplies_the_maps_of_a_kind() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    for kind, residual in (("ATB", 0.0), ("attention", 0.5)):
        values = trace.map(kind).values
        values = values.mean(1) if kind == "attention" else values
        eye = torch.eye(values.shape[-1]).double()
        expected = eye
        for layer, found in zip(values, trace.rollout(kind, residual).values, strict=True):
            rows = layer / layer.sum(-1, keepdim=True)
            expected = ((1 - residual) * rows + residual * eye) @ expected
            torch.testing.assert_close(found, expected)


# --- kinds of pair --------------------------------------------------------------------------------


def _token(id: int, word: int | None) -> Token:
    return Token("", id, None, word, word is None, "")


# [CLS] kick -ed the bucket the [SEP]
TOKENS = [
    _token(1, None),
    _token(10, 0),
    _token(11, 0),
    _token(12, 1),
    _token(13, 2),
    _token(12, 3),
    _token(1, None),
]


def test_pairs_are_pieces_of_a_word_the_same_token_neighbours_or_others() -> None:
    kinds = pair_kinds(TOKENS)
    assert kinds[1][2] == kinds[2][1] == "piece"
    assert kinds[3][5] == "same"
    assert kinds[0][6] == "same"  # control tokens are of no word, yet may be equal
    assert kinds[2][3] == "neighbour"
    assert kinds[1][3] == "other"
    assert kinds[1][4] == "other"


def test_words_with_the_same_label_are_one_expression() -> None:
    kinds = pair_kinds(TOKENS, ["idiom", "idiom", "idiom", None])
    assert kinds[1][4] == kinds[2][3] == "expression"
    assert kinds[1][2] == "piece"  # what is closer comes first
    assert kinds[3][5] == "same"
    assert kinds[4][5] == "neighbour"
    two = pair_kinds(TOKENS, [1, None, 2, None])
    assert two[1][4] == "other"
    assert two[3][5] == "same"  # no label is not a label


def test_labels_that_do_not_match_the_words_are_counted() -> None:
    with pytest.raises(
        prosect.ProsectError,
        match=r"labels must have one label per word, got 2 labels for 4 words\.",
    ):
        pair_kinds(TOKENS, ["a", "b"])
    trace = random_lens("bert").trace("The river bank.")
    with pytest.raises(prosect.ProsectError, match="got 3 labels for 4 words"):
        trace.compare("ATB", "ATBFF").pairs(labels=[None, 1, 1])
    pairs = trace.compare("ATB", "ATBFF").pairs(k=1000, labels=[None, 1, 1, None])
    assert "expression" in {pair.kind for pair in pairs}


def test_a_change_is_the_map_after_a_step_minus_the_map_before_it() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    for name, before, after in (
        ("change_FF", "ATB", "ATBFF"),
        ("change_FFRES", "ATBFF", "ATBFFRES"),
        ("change_FFRESLN", "ATBFFRES", "ATBFFRESLN"),
    ):
        found = trace.map(name)
        assert torch.equal(found.values, trace.map(after).values - trace.map(before).values)
        assert trace.kinds[name].signed
        assert found.error == max(trace.map(before).error, trace.map(after).error)


def test_change_is_of_the_pairs_that_a_causal_model_sees() -> None:
    trace = random_lens("gpt2").trace(TEXTS[0])
    found = trace.compare("ATB", "ATBLNFF")
    before, after = trace.map("ATB").values, trace.map("ATBLNFF").values
    rows, columns = torch.tril_indices(len(trace.tokens), len(trace.tokens))
    for layer, change in enumerate(found.change.tolist()):
        x, y = (m[layer, rows, columns].numpy() for m in (before, after))
        assert change == pytest.approx(1 - stats.spearmanr(x, y).statistic, abs=1e-6)


def test_a_single_token_has_no_order_to_change() -> None:
    assert random_lens("gpt2").trace("a").compare("ATB", "ATBLNFF").change.tolist() == [0, 0, 0]
