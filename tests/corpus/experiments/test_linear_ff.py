from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import nn

import prosect
from corpus.sentences import sentences
from prosect import corpus
from prosect.corpus.data.texts import hash_fraction
from prosect.corpus.experiments.linear_ff import FeedForwardProducts, feed_forward_pairs
from support.families import FAMILIES, STACKS, random_lens, sample

TEXTS = sentences(30)
SHARE = 0.3


def close(family: str) -> float:
    """How much of float32 is left in a family's float64 model."""
    return 1e-5 if FAMILIES[family].rounds or FAMILIES[family].float32_scores else 1e-10


def linear_ff(lens: Any, texts: Any = TEXTS, **settings: Any) -> corpus.LinearFFResult:
    return corpus.linear_ff(lens, texts, **{"held_out": SHARE, "progress": False, **settings})


def pairs(lens: prosect.Lens, special: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every text's inputs and outputs, [layer, token, d]."""
    return [feed_forward_pairs(lens.trace(text), special) for text in TEXTS]


def standardised(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return (x - like.mean(0)) / like.std(0)


def plainly(x: np.ndarray, y: np.ndarray, at: np.ndarray, true: np.ndarray) -> np.ndarray:
    """R² by dimension at other inputs, everything in memory and standardised as in the paper."""
    inputs, outputs = standardised(x, x), standardised(y, y)
    # LayerNorm leaves a direction without any variance
    weight = np.linalg.lstsq(inputs, outputs, rcond=1e-5)[0]
    predicted = standardised(at, x) @ weight
    return np.asarray(r2_score(standardised(true, y), predicted, multioutput="raw_values"))


@pytest.mark.parametrize("stack", STACKS)
def test_a_feed_forward_makes_its_output_of_what_it_reads(stack: str) -> None:
    trace = sample(stack)
    steps = trace.run.stream.feed_forwards
    assert len(steps) == len(trace.anatomy.blocks)
    for step in steps:
        neurons = step.activation(step.inner(step.read))
        if step.gate is not None:
            neurons = neurons * step.gate(step.read)
        expected = neurons @ step.output_map.weight(neurons)
        expected = expected + (0 if step.bias is None else step.bias)
        torch.testing.assert_close(step.output, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("family", "inner", "outer"),
    [
        ("bert", "intermediate.dense", "output.dense"),
        ("gpt2", "mlp", "mlp"),
        ("gptj", "mlp", "mlp"),
        ("gemma2", "mlp", "mlp"),
        ("llama-biases", "mlp", "mlp"),
        ("olmo2", "mlp", "mlp"),
        ("modernbert", "mlp", "mlp"),
    ],
)
def test_inputs_and_outputs_are_those_of_the_models_own_modules(
    family: str, inner: str, outer: str
) -> None:
    lens = random_lens(family)
    seen: dict[str, list[torch.Tensor]] = {"in": [], "out": []}

    def enters(_: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        seen["in"].append(args[0][0])

    def leaves(_: nn.Module, __: Any, output: torch.Tensor) -> None:
        seen["out"].append(output[0])

    for name, module in lens.model.named_modules():
        if name.endswith(f".{inner}") and "attention" not in name:
            module.register_forward_pre_hook(enters)
        if name.endswith(f".{outer}") and "attention" not in name:
            module.register_forward_hook(leaves)
    x, y = feed_forward_pairs(lens.trace(TEXTS[0]), special=True)
    np.testing.assert_array_equal(x, torch.stack(seen["in"]).numpy())
    np.testing.assert_array_equal(y, torch.stack(seen["out"]).numpy())


@pytest.mark.parametrize("family", FAMILIES)
def test_r2_is_that_of_all_activations_in_memory(family: str) -> None:
    lens = random_lens(family)
    found = linear_ff(lens, batch=4, shard=8, worst=0)
    own = pairs(lens)
    held = np.array([hash_fraction(text, 0) < SHARE for text in TEXTS])
    assert 0 < held.sum() < len(held)
    fitted, apart = ([p for p, h in zip(own, held, strict=True) if h == side] for side in (0, 1))
    everything, fit, rest = (
        [np.concatenate(side, 1) for side in zip(*part, strict=True)]
        for part in (own, fitted, apart)
    )
    for layer in range(len(lens.anatomy.blocks)):
        x, y = everything[0][layer], everything[1][layer]
        expected = plainly(x, y, x, y)
        np.testing.assert_allclose(found.in_sample[family][layer], expected, atol=close(family))
        expected = plainly(fit[0][layer], fit[1][layer], rest[0][layer], rest[1][layer])
        np.testing.assert_allclose(
            found.held_out[family][layer], expected, rtol=close(family), atol=close(family)
        )
    assert found.about.tokens == {
        "tokens": everything[0].shape[1],
        "of them held out": rest[0].shape[1],
    }


def test_r2_is_that_of_scikit_learn() -> None:
    """Where no direction is left out: in an RMSNorm model."""
    lens = random_lens("llama")
    found = linear_ff(lens, worst=0)
    x, y = (np.concatenate(side, 1) for side in zip(*pairs(lens), strict=True))
    table = found.to_frame()
    for layer in range(len(x)):
        model = LinearRegression().fit(x[layer], y[layer])
        expected = r2_score(y[layer], model.predict(x[layer]))
        assert table.in_sample[layer] == pytest.approx(expected, abs=1e-5)
    assert table["rank"].eq(32).all()


@pytest.mark.parametrize("family", ["bert", "gptj", "albert"])
def test_nothing_depends_on_how_the_work_was_cut(family: str) -> None:
    lens = random_lens(family)
    whole = linear_ff(lens, batch=30, shard=30)
    with ThreadPoolExecutor(1) as executor:
        cut = linear_ff(lens, batch=1, shard=1, executor=executor)
    for name in ("in_sample", "held_out", "in_sample_error", "held_out_error"):
        expected = getattr(whole, name)[family]
        np.testing.assert_allclose(getattr(cut, name)[family], expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(cut.rank[family], whole.rank[family])
    for name, column in whole.worst[family].items():
        other = cut.worst[family][name]
        if column.dtype.kind == "f":
            np.testing.assert_allclose(other, column, rtol=1e-9)
        else:
            np.testing.assert_array_equal(other, column)


def test_a_norm_without_a_mean_leaves_one_direction_less() -> None:
    for family, rank in (("bert", 31), ("gpt2", 31), ("llama", 32)):
        assert (linear_ff(random_lens(family), worst=0).rank[family] == rank).all()


def test_outputs_that_do_not_vary_are_left_out_and_counted() -> None:
    lens = random_lens("bert")
    before = linear_ff(lens)
    last = lens.model.bert.encoder.layer[2].output.dense  # nothing after it is a feed-forward
    with torch.no_grad():
        last.weight[5] = 0.0  # only the bias is written there
        last.weight[7] = 0.0
        last.bias[7] = 0.0
    found = linear_ff(lens, worst=5)
    assert found.to_frame().left_out.tolist() == [0, 0, 2]
    rest = np.delete(before.in_sample["bert"][2], [5, 7])
    assert np.isnan(found.in_sample["bert"][2, [5, 7]]).all()
    np.testing.assert_allclose(found.to_frame().in_sample[2], rest.mean(), rtol=1e-10)
    assert not {5, 7} & set(found.failures().query("layer == 3").dimension)
    assert np.isfinite(found.in_sample_error["bert"]).all()


def test_inputs_that_do_not_vary_are_no_input() -> None:
    lens = random_lens("gpt2")
    with torch.no_grad():
        norm = lens.model.transformer.h[1].ln_2
        norm.weight[3] = 0.0
    x, y = (np.concatenate(side, 1)[1] for side in zip(*pairs(lens), strict=True))
    found = linear_ff(lens, worst=0)
    # what the norm took away with the mean can be told from the others no more
    assert found.rank["gpt2"].tolist() == [31, 31, 31]
    weight = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=1e-9)[0]
    left = np.square(y - np.column_stack([x, np.ones(len(x))]) @ weight).sum(0)
    expected = 1 - left / np.square(y - y.mean(0)).sum(0)
    np.testing.assert_allclose(found.in_sample["gpt2"][1], expected, atol=1e-10)


def test_fewer_tokens_than_dimensions_leave_nothing_unexplained() -> None:
    lens = random_lens("bert")
    with pytest.warns(UserWarning, match="bert: in-sample R² is not informative.*give more texts"):
        found = linear_ff(lens, TEXTS[:1], worst=3)
    n = len(lens.trace(TEXTS[0]).tokens)
    assert n <= 32
    assert (found.rank["bert"] == min(n - 1, 31)).all()
    np.testing.assert_allclose(found.in_sample["bert"], 1.0, atol=1e-10)
    assert np.isnan(found.held_out["bert"]).all()
    assert np.isnan(found.in_sample_error["bert"]).all()  # one text
    assert found.to_frame().held_out.isna().all()


def test_a_part_without_texts_has_no_figure() -> None:
    lens = random_lens("bert")
    only = [text for text in TEXTS if hash_fraction(text, 0) < SHARE]
    assert only
    assert np.isnan(linear_ff(lens, only).held_out["bert"]).all()  # none to fit to
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there are enough tokens, and none was to be held out
        found = linear_ff(lens, held_out=0)
    (axes,) = found.figure().axes
    assert [text.get_text() for text in axes.figure.legends[0].texts] == ["in-sample"]
    assert [mark.labels for mark in found.plot().marks] == [["in-sample"]]
    apart = [text for text in TEXTS if text not in only]
    with pytest.warns(UserWarning, match="bert: no text is held out"):
        linear_ff(lens, apart)
    assert np.isnan(found.held_out["bert"]).all()
    assert np.isnan(found.held_out_error["bert"]).all()
    np.testing.assert_allclose(
        found.in_sample["bert"], linear_ff(lens).in_sample["bert"], atol=1e-12
    )


@pytest.mark.parametrize("family", ["bert", "gemma2", "gpt-neox", "albert"])
def test_the_worst_failures_are_those_of_a_search_through_everything(family: str) -> None:
    lens = random_lens(family)
    found = linear_ff(lens, worst=7, batch=4, shard=8).failures()
    traces = [lens.trace(text) for text in TEXTS]
    x, y = (np.concatenate(side, 1) for side in zip(*pairs(lens), strict=True))
    places = [(t, p) for t, trace in enumerate(traces) for p in range(len(trace.tokens))]
    for layer in range(len(x)):
        inputs = standardised(x[layer], x[layer])
        outputs = standardised(y[layer], y[layer])
        left = outputs - inputs @ np.linalg.lstsq(inputs, outputs, rcond=1e-5)[0]
        order = np.argsort(-np.square(left).astype(np.float32).ravel(), kind="stable")
        best: dict[tuple[int, int], int] = {}
        for flat in order:
            token, dimension = divmod(int(flat), left.shape[1])
            text, position = places[token]
            best.setdefault((traces[text].tokens[position].id, dimension), int(flat))
            if len(best) == 7:
                break
        rows = found.query(f"layer == {layer + 1}")
        if np.abs(left).max() < 1e-9:  # the embeddings of fewer kinds of token than dimensions
            assert (family, layer, len(rows)) == ("gpt-neox", 0, 0)
            continue
        for (_, row), flat in zip(rows.iterrows(), best.values(), strict=True):
            token, dimension = divmod(flat, left.shape[1])
            text, position = places[token]
            assert (row.text, row.position, row.dimension) == (text, position, dimension)
            assert row.token == traces[text].tokens[position].label
            assert row.deviations == pytest.approx(left[token, dimension], rel=1e-4)
            assert row.value == pytest.approx(y[layer, token, dimension], rel=1e-4)
            gap = (row.value - row.prediction) / y[layer, :, dimension].std()
            assert row.deviations == pytest.approx(gap, rel=1e-4)


def test_a_failure_shows_its_place_in_the_text() -> None:
    lens = random_lens("bert")
    table = linear_ff(lens, worst=20).failures()
    shown = False
    for _, row in table.iterrows():
        token = lens.trace(TEXTS[row.text]).tokens[row.position]
        if token.span is None:
            assert row.snippet.rstrip("…") == TEXTS[row.text][:64]
        else:
            shown = True
            before, rest = row.snippet.split("⟦")
            inside, after = rest.split("⟧")
            assert TEXTS[row.text][slice(*token.span)] == inside
            assert f"{before}{inside}{after}".strip("…") in TEXTS[row.text]
    assert shown


def test_the_second_pass_can_be_saved() -> None:
    lens = random_lens("bert")
    found, both = linear_ff(lens, worst=0), linear_ff(lens)
    np.testing.assert_array_equal(found.in_sample["bert"], both.in_sample["bert"])
    assert np.isnan(found.in_sample_error["bert"]).all()
    assert len(found.failures()) == 0
    assert len(both.failures()) == 3 * 10


def test_errors_are_those_of_leaving_out_one_text_at_a_time() -> None:
    lens = random_lens("bert")
    texts = sentences(300)
    found = linear_ff(lens, texts, worst=1)
    own = [feed_forward_pairs(trace, True) for trace in lens.traces(texts)]
    held = [hash_fraction(text, 0) < SHARE for text in texts]

    def mean_r2(left: list[tuple[np.ndarray, np.ndarray]], layer: int) -> float:
        x, y = (np.concatenate([pair[side][layer] for pair in left]) for side in (0, 1))
        return float(plainly(x, y, x, y).mean())

    def jackknife(values: list[float]) -> float:
        k = len(values)
        return float(np.sqrt((k - 1) / k * np.square(np.subtract(values, np.mean(values))).sum()))

    expected = jackknife([mean_r2(own[:i] + own[i + 1 :], 1) for i in range(len(own))])
    assert found.in_sample_error["bert"][1] == pytest.approx(expected, rel=0.1)

    fit = [pair for pair, h in zip(own, held, strict=True) if not h]
    x, y = (np.concatenate([pair[side][1] for pair in fit]) for side in (0, 1))
    apart = [pair for pair, h in zip(own, held, strict=True) if h]
    values = []
    for i in range(len(apart)):
        left = apart[:i] + apart[i + 1 :]
        at, true = (np.concatenate([pair[side][1] for pair in left]) for side in (0, 1))
        values.append(float(plainly(x, y, at, true).mean()))
    assert found.held_out_error["bert"][1] == pytest.approx(jackknife(values), rel=0.1)


def test_copies_of_a_text_are_on_one_side_and_the_seed_decides_which() -> None:
    products = FeedForwardProducts(special=True, held_out=0.5, seed=3)
    sides = [products.is_held_out(text) for text in sentences(400)]
    assert sides == [products.is_held_out(text) for text in sentences(400)]
    assert 0.4 < np.mean(sides) < 0.6
    other = [FeedForwardProducts(True, 0.5, 4).is_held_out(text) for text in sentences(400)]
    assert 0.4 < np.mean(np.equal(sides, other)) < 0.6


def test_copies_that_differ_in_white_space_are_on_one_side() -> None:
    products = FeedForwardProducts(special=True, held_out=0.5, seed=3)
    for text in sentences(50):
        spaced = f" {text.replace(' ', '  ')} "
        assert products.is_held_out(spaced) == products.is_held_out(text)


def test_special_tokens_can_be_left_out() -> None:
    lens = random_lens("bert")
    found = linear_ff(lens, special=False)
    x, y = (np.concatenate(side, 1) for side in zip(*pairs(lens, special=False), strict=True))
    np.testing.assert_allclose(
        found.in_sample["bert"][0], plainly(x[0], y[0], x[0], y[0]), atol=1e-10
    )
    assert not {"[CLS]", "[SEP]"} & set(found.failures().token)


def test_texts_of_special_tokens_alone_leave_nothing() -> None:
    lens = random_lens("bert")
    with_some = linear_ff(lens, [*TEXTS, "[SEP]", "[MASK] [SEP]"], special=False, batch=1)
    without = linear_ff(lens, special=False, batch=1)
    np.testing.assert_array_equal(with_some.in_sample["bert"], without.in_sample["bert"])
    assert with_some.failures().equals(without.failures())


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    lens = random_lens("bert")
    first = linear_ff(lens, checkpoint=tmp_path, shard=16)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert len(files) == 4  # two shards, twice
    again = linear_ff(lens, checkpoint=tmp_path, shard=16)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")} == files
    assert again.failures().equals(first.failures())
    linear_ff(lens, checkpoint=tmp_path, shard=16, seed=1)
    assert len(list(tmp_path.rglob("*.npz"))) == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 1}, "held_out must be at least 0 and less than 1, got 1"),
        ({"held_out": -0.1}, "at least 0 and less than 1, got -0.1"),
        ({"worst": -1}, "worst must be at least 0, got -1"),
        ({"worst": True}, "worst must be an integer, got True"),
        ({"held_out": "0.2"}, "held_out must be at least 0 and less than 1, got '0.2'"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"special": "no"}, "special must be True or False, got 'no'"),
    ],
)
def test_settings_out_of_range_get_a_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        linear_ff(random_lens("bert"), **settings)


def test_a_result_comes_back_from_its_file(tmp_path: Path) -> None:
    models = {"small": random_lens("bert"), "other": random_lens("gpt2")}
    found = linear_ff(models, [*TEXTS, "", "so " * 80], worst=2)
    assert "small, other: 30 texts (1 skipped)" in repr(found)
    assert found.about.seeds == (0,)
    found.save(tmp_path / "linear.json")
    again = corpus.load(tmp_path / "linear.json")
    assert isinstance(again, corpus.LinearFFResult)
    assert again.to_frame().equals(found.to_frame())
    assert again.failures().equals(found.failures())
    assert len(again.failures()) == 2 * 3 * 2


def test_the_papers_figures_stand_beside_ours() -> None:
    beside = linear_ff(random_lens("bert"), worst=0).compare()
    assert beside.loc[6, "bert-base-uncased (paper)"] == 0.396
    assert beside["bert"].notna().sum() == 3
    assert len(beside) == 12


def test_figures_show_both_scores(tmp_path: Path) -> None:
    models = {"small": random_lens("bert"), "other": random_lens("gpt2")}
    found = linear_ff(models)
    figure = found.figure()
    assert [axes.get_title() for axes in figure.axes] == ["small", "other"]
    drawn = next(line for line in figure.axes[1].lines if line.get_label() == "held-out")
    assert drawn.get_xdata().tolist() == [1, 2, 3]
    np.testing.assert_array_equal(drawn.get_ydata(), found.held_out["other"].mean(-1))
    figure.savefig(tmp_path / "linear.pdf")
    plot = found.plot()
    assert [mark.labels for mark in plot.marks] == [["in-sample"], ["held-out"]]
    np.testing.assert_allclose(plot.marks[0].y, found.in_sample["small"].mean(-1))
