"""Effective attention, held against a full singular value decomposition and its null space."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import prosect
from prosect.anatomy.vocabulary import looking_back
from prosect.engines.effective import (
    column_basis,
    coordinates,
    default_tolerance,
    deviation,
    effective_attention,
    largest_step,
    null_basis,
    null_space_dimensions,
    widest_row,
)
from prosect.engines.records import Affine, AttentionRecord, Weight
from support.families import (
    FAMILIES,
    STACKS,
    TEXTS,
    WINDOWS,
    random_lens,
    sample,
    within_window,
)

LONG = " ".join(TEXTS[:2])
ENCODERS = ("bert", "mpnet", "bart", "deberta-v2", "t5")
CAUSAL = ("gpt2", "gpt-neox", "llama", "qwen3", "bloom", "phi", "gptj")
NARROW = default_tolerance(64, 8, torch.float64)


def traced(family: str) -> prosect.Trace:
    """A text longer than a head is wide, by a model in float64."""
    return random_lens(family).trace(LONG)


def attentions(trace: prosect.Trace) -> list[AttentionRecord]:
    return trace.run.stream.attentions


def outputs(attended: AttentionRecord) -> Tensor:
    """T = V W_O of every head itself, [head, source, d]."""
    heads = len(attended.alpha)
    value = attended.value.repeat_interleave(heads // len(attended.value), dim=0)
    return value.double() @ attended.output_map.weight(value.double()).unflatten(0, (heads, -1))


def without_null(a: Tensor, t: Tensor, tolerance: float) -> Tensor:
    """A − A N Nᵀ, N the left singular vectors of T beyond its rank."""
    u, s, _ = torch.linalg.svd(t, full_matrices=True)
    null = u[:, int((s > tolerance * s[0]).sum()) :]
    return a - (a @ null) @ null.T


def by_rows(a: Tensor, t: Tensor, tolerance: float, visible: Tensor | None = None) -> Tensor:
    """The same, each row on what it sees: its own prefix, where nothing else is said."""
    found = torch.zeros_like(a)
    for row, seen in enumerate(looking_back(len(a)) if visible is None else visible):
        found[row, seen] = without_null(a[None, row, seen], t[seen], tolerance)[0]
    return found


def random_attention(*shape: int, causal: bool = False, seed: int = 0) -> Tensor:
    scores = torch.randn(*shape, generator=generator(seed), dtype=torch.float64)
    if causal:
        scores = scores.masked_fill(torch.ones(shape[-2:]).triu(1) > 0, -torch.inf)
    return scores.softmax(-1)


def random_values(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def mask(n: int, causal: bool) -> Tensor | None:
    return looking_back(n) if causal else None


def windowed(family: str) -> prosect.Trace:
    """A text longer than the windows, which are wider than the heads."""
    return random_lens(family, **WINDOWS[family][0]).trace(LONG)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("family", [*ENCODERS, *CAUSAL])
def test_the_output_stays_and_equals_the_full_decomposition(family: str) -> None:
    trace = traced(family)
    n, effective = len(trace.tokens), trace.map("effective").values
    causal = family in CAUSAL
    for layer, attended in enumerate(attentions(trace)):
        limit = default_tolerance(n, attended.value.shape[-1], torch.float64)
        for head, t in enumerate(outputs(attended)):
            a, kept = attended.alpha[head], effective[layer, head]
            before, after = a @ t, kept @ t
            assert (after - before).abs().max() <= 1e-10 * before.abs().max()
            plain = by_rows(a, t, limit) if causal else without_null(a, t, limit)
            torch.testing.assert_close(kept, plain, rtol=0, atol=1e-10)
    assert trace.map("effective").error <= 1e-10
    if causal:
        assert (effective.triu(1) == 0).all()


@pytest.mark.parametrize("stack", STACKS)
def test_a_run_shows_what_each_token_sees(stack: str) -> None:
    """Scores are moderate here: no weight that is seen rounds to zero."""
    for attended in attentions(sample(stack)):
        used = (attended.alpha > 0).any(0)
        expected = torch.ones_like(used) if attended.visible is None else attended.visible
        assert torch.equal(used, expected)
    encoder = sample(stack).encoder
    assert encoder is None or all(a.visible is None for a in attentions(encoder))


@pytest.mark.parametrize("family", WINDOWS)
def test_a_run_shows_each_layers_window(family: str) -> None:
    trace = windowed(family)
    n = len(trace.tokens)
    for layer, attended in enumerate(attentions(trace)):
        expected = within_window(family, layer, n)
        found = torch.ones(n, n) > 0 if attended.visible is None else attended.visible
        assert torch.equal(found, expected)
    assert n > 1 + sum(WINDOWS[family][1:3])


def test_padding_is_no_window() -> None:
    """What a batch hides from a text is not part of it."""
    for family in ("bert", "gpt2", "mistral"):
        lens = random_lens(family)
        alone, padded = lens.trace(TEXTS[1]), next(iter(lens.traces([TEXTS[1], LONG])))
        for one, other in zip(attentions(alone), attentions(padded), strict=True):
            if one.visible is None:
                assert other.visible is None
            else:
                assert other.visible is not None
                assert torch.equal(one.visible, other.visible)


@pytest.mark.parametrize("family", WINDOWS)
def test_rows_are_projected_on_their_own_window(family: str) -> None:
    trace = windowed(family)
    n, kept, null = len(trace.tokens), trace.map("effective"), trace.map("null").values
    for layer, attended in enumerate(attentions(trace)):
        limit = default_tolerance(n, attended.value.shape[-1], torch.float64)
        visible = within_window(family, layer, n)
        for head, t in enumerate(outputs(attended)):
            a, found = attended.alpha[head], kept.values[layer, head]
            assert (found[~visible] == 0).all()
            assert (null[layer, head][~visible] == 0).all()
            before, after = a @ t, found @ t
            assert (after - before).abs().max() <= 1e-10 * before.abs().max()
            torch.testing.assert_close(found, by_rows(a, t, limit, visible), rtol=0, atol=1e-10)
    assert kept.error <= 1e-10
    assert (null != 0).flatten(1).any(1).all()


@pytest.mark.parametrize("family", ["mistral", "modernbert", "gpt-neo"])
def test_windows_narrower_than_the_head_leave_attention_as_it_is(family: str) -> None:
    trace = traced(family)  # windows of 6, 9 and 4 tokens, heads of 8
    local = {"mistral": (0, 1, 2), "modernbert": (), "gpt-neo": (1, 3)}[family]
    assert len(trace.tokens) > 10
    for layer, attention in enumerate(trace.attention):
        same = torch.equal(trace.map("effective").values[layer], attention)
        assert same == (layer in local)


@pytest.mark.parametrize("family", ["mistral", "gemma2", "modernbert"])
def test_a_window_beyond_the_text_changes_nothing(family: str) -> None:
    name = next(iter(WINDOWS[family][0]))
    exact, wide = (random_lens(family, **{name: size}).trace(LONG) for size in (80, 120))
    assert torch.equal(exact.map("effective").values, wide.map("effective").values)
    for layer, attended in enumerate(attentions(exact)):
        n = len(exact.tokens)
        if family == "modernbert":
            assert attended.visible is None
        else:
            assert attended.visible is not None
            assert torch.equal(attended.visible, looking_back(n))
        plain = without_null if family == "modernbert" else by_rows
        t, limit = outputs(attended), default_tolerance(n, attended.value.shape[-1], torch.float64)
        for head, a in enumerate(attended.alpha):
            found = exact.map("effective").values[layer, head]
            torch.testing.assert_close(found, plain(a, t[head], limit), rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["bert", "llama", "qwen3"])
def test_null_is_the_rest(family: str) -> None:
    trace = traced(family)
    kept, null = trace.map("effective").values, trace.map("null").values
    torch.testing.assert_close(kept + null, trace.attention, rtol=0, atol=1e-15)
    assert (null != 0).any()


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_short_texts_have_nothing_to_take_away(family: str) -> None:
    trace = random_lens(family).trace("The river")
    assert len(trace.tokens) <= 8
    assert torch.equal(trace.map("effective").values, trace.attention)
    assert (trace.map("null").values == 0).all()
    free = trace.attention_identifiability()
    assert (free.rank == len(trace.tokens)).all()
    assert (free.dimension == 0).all()
    assert free.identifiable.all()


@pytest.mark.parametrize("causal", [False, True])
def test_coordinates_are_as_good_as_the_outputs_where_weights_lack_rank(causal: bool) -> None:
    """W_O of rank 3 of 8, values of rank 8: coordinates keep column space and singular values."""
    n, d_head, d = 20, 8, 32
    weight = random_values(2, d_head, 3, seed=2) @ random_values(2, 3, d, seed=3)
    attended = built(random_attention(2, n, n, causal=causal), random_values(2, n, d_head), weight)
    t, narrow = outputs(attended), coordinates(attended)
    singular, found = torch.linalg.svdvals(t)[:, :d_head], torch.linalg.svdvals(narrow)
    torch.testing.assert_close(found, singular, rtol=0, atol=1e-12 * float(singular.max()))
    kept, rank = effective_attention(attended.alpha, narrow, NARROW, mask(n, causal))
    assert rank.tolist() == [3, 3]
    for a, full, k in zip(attended.alpha, t, kept, strict=True):
        plain = by_rows(a, full, NARROW) if causal else without_null(a, full, NARROW)
        torch.testing.assert_close(k, plain, rtol=0, atol=1e-8)


def built(
    alpha: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None = None
) -> AttentionRecord:
    """A record of an attention sublayer, what the engine reads of it."""
    context = (alpha @ value).transpose(0, 1).flatten(1)
    matrix = weight.flatten(0, 1)
    return AttentionRecord(
        name="attention",
        term="attention",
        layer=0,
        output=context @ matrix,
        context=context,
        output_map=Affine(Weight("output", (matrix,)), None),
        alpha=alpha,
        value=value,
        value_map=Affine(Weight("value", ()), None if bias is None else bias.flatten()),
        read=context,
        scores=None,
    )


def test_the_values_bias_can_be_left_out() -> None:
    n, bias = 20, 5 * random_values(2, 4, seed=5)
    value, weight = random_values(2, n, 4), random_values(2, 4, 16, seed=2)
    alpha = random_attention(2, n, n)
    with_bias = built(alpha, value + bias[:, None], weight, bias)
    torch.testing.assert_close(
        coordinates(with_bias, value_bias=False), coordinates(built(alpha, value, weight))
    )
    kept = [effective_attention(alpha, coordinates(with_bias, b), NARROW)[0] for b in (True, False)]
    assert (kept[0] - kept[1]).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_trace_can_leave_the_bias_out(family: str) -> None:
    trace = traced(family)
    attended = attentions(trace)[0]
    assert attended.value_bias is not None
    value = attended.value - attended.value_bias[:, None]
    t = value @ attended.output_map.weight(value).unflatten(0, (len(value), -1))
    found = trace.map("effective", value_bias=False).values[0]
    limit = default_tolerance(len(trace.tokens), 8, torch.float64)
    plain = by_rows if family == "gpt2" else without_null
    for head, a in enumerate(attended.alpha):
        torch.testing.assert_close(found[head], plain(a, t[head], limit), rtol=0, atol=1e-8)
    assert (found - trace.map("effective").values[0]).abs().max() > 1e-6


DEFICIENT = {
    "equal tokens": lambda t: t[:, [0, 0, 0, 1, 2, 1, *range(6, t.shape[1])]],
    "equal columns": lambda t: torch.cat([t[..., :4], t[..., :4]], dim=-1),
    "a column of zeros": lambda t: t * (torch.arange(8) != 3),
    "zeros at first": lambda t: t * (torch.arange(t.shape[1]) > 4)[:, None],
    "a late column": lambda t: torch.cat([t[..., :7], last_only(t[..., 7:])], dim=-1),
    "a huge last token": lambda t: t * (1 + 1e17 * (torch.arange(t.shape[1]) == 19))[:, None],
    "all zeros": torch.zeros_like,
    "rank one": lambda t: t[..., :1] * t[:, :1],
}


SCALES = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.1, 0.03, 1e-3, 2e-5], dtype=torch.float64)


@pytest.mark.parametrize("last", [1.0, 30.0, 1e3, 1e6])
def test_a_prefix_is_measured_by_itself(last: float) -> None:
    """Directions that are nothing beside a later token may be much beside the tokens so far."""
    limit = 6e-5
    t = random_values(2, 20, 8) * SCALES
    t[:, -1] = last * random_values(2, 8, seed=6)
    a = random_attention(2, 20, 20, causal=True)
    kept, _ = effective_attention(a, t, limit, looking_back(20))
    for head in range(2):
        torch.testing.assert_close(kept[head], by_rows(a[head], t[head], limit), rtol=0, atol=1e-8)


def last_only(x: Tensor) -> Tensor:
    return x * (torch.arange(x.shape[1]) == x.shape[1] - 1)[:, None]


def distance(n: int) -> Tensor:
    return torch.arange(n)[:, None] - torch.arange(n)


SEEN = {
    "all": lambda n: torch.ones(n, n) > 0,
    "those before": looking_back,
    "a window of 12 before": lambda n: (distance(n) >= 0) & (distance(n) < 12),
    "a window of 5 before": lambda n: (distance(n) >= 0) & (distance(n) < 5),
    "a window both ways": lambda n: distance(n).abs() <= 6,
    "scattered": lambda n: (torch.rand(n, n, generator=generator(3)) < 0.6) | (distance(n) == 0),
}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("case", DEFICIENT)
def test_any_rank_is_projected_as_it_is(case: str, seen: str) -> None:
    t, visible = DEFICIENT[case](random_values(3, 20, 8)), SEEN[seen](20)
    a = within(random_values(3, 20, 20, seed=2), visible)
    kept, rank = effective_attention(a, t, NARROW, visible)
    assert torch.isfinite(kept).all()
    for head in range(3):
        plain = by_rows(a[head], t[head], NARROW, visible)
        torch.testing.assert_close(kept[head], plain, rtol=0, atol=1e-8)
        assert int(rank[head]) == int(torch.linalg.matrix_rank(t[head], rtol=NARROW))
    assert (kept[:, ~visible] == 0).all()
    assert deviation(a, kept, t) <= 1e-10


def within(scores: Tensor, visible: Tensor) -> Tensor:
    return scores.masked_fill(~visible, -torch.inf).softmax(-1)


@pytest.mark.parametrize("last", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("seen", SEEN)
def test_long_texts_are_as_exact(seen: str, last: float) -> None:
    """Of several blocks of rows, and with a column that is hardly there."""
    t, visible = random_values(3, 80, 8), SEEN[seen](80)
    t[..., 5] *= last
    a = within(2 * random_values(3, 80, 80, seed=2), visible)
    kept, _ = effective_attention(a, t, NARROW, visible)
    for head in range(3):
        plain = by_rows(a[head], t[head], NARROW, visible)
        torch.testing.assert_close(kept[head], plain, rtol=0, atol=1e-11 / last)
    assert deviation(a, kept, t) <= 1e-12


@pytest.mark.parametrize("seen", SEEN)
def test_heads_taken_apart_are_the_same(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    t, visible = random_values(5, 40, 8), SEEN[seen](40)
    a = within(random_values(5, 40, 40, seed=2), visible)
    together, ranks = effective_attention(a, t, NARROW, visible)
    monkeypatch.setattr("prosect.engines.effective.NUMBERS", 4096)  # two heads, or so many rows
    apart, same = effective_attention(a, t, NARROW, visible)
    torch.testing.assert_close(apart, together, rtol=0, atol=1e-13)
    assert torch.equal(ranks, same)


@pytest.mark.parametrize("seen", ["all", "those before"])
def test_the_result_is_as_precise_as_the_attention(seen: str) -> None:
    t, visible = random_values(2, 20, 8), SEEN[seen](20)
    a = within(random_values(2, 20, 20, seed=2), visible)
    single, _ = effective_attention(a.float(), t, NARROW, visible)
    assert single.dtype == torch.float32
    double, _ = effective_attention(a.float().double(), t, NARROW, visible)
    assert torch.equal(single, double.float())


def test_a_rank_is_not_read_off_a_diagonal() -> None:
    """A triangle with ones on its diagonal whose smallest singular value is next to nothing."""
    t = torch.zeros(1, 40, 32, dtype=torch.float64)
    t[0, :32] = torch.eye(32) - torch.ones(32, 32).triu(1)
    singular = torch.linalg.svdvals(t[0])
    assert float(singular[-1] / singular[0]) < 1e-9
    limit = default_tolerance(40, 32, torch.float32)
    assert int(column_basis(t, limit)[1]) == 31
    a = random_attention(1, 40, 40)
    for seen in SEEN:
        visible = SEEN[seen](40)
        own = within(a.log(), visible)
        kept, rank = effective_attention(own, t, limit, visible)
        assert int(rank) == 31
        torch.testing.assert_close(
            kept[0], by_rows(own[0], t[0], limit, visible), rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 1.9, 3.0])
def test_the_tolerance_decides(factor: float) -> None:
    """Singular values of 1, but for one that is next to the tolerance."""
    limit = 1e-4
    left, _ = torch.linalg.qr(random_values(2, 20, 8))
    right, _ = torch.linalg.qr(random_values(2, 8, 8, seed=2))
    t = (left * torch.tensor([1.0] * 7 + [factor * limit], dtype=torch.float64)) @ right
    expected = 8 if factor > 1 else 7
    assert column_basis(t, limit)[1].tolist() == [expected] * 2
    for seen in ("all", "those before"):
        visible = SEEN[seen](20)
        a = within(random_values(2, 20, 20, seed=4), visible)
        kept, rank = effective_attention(a, t, limit, visible)
        assert rank.tolist() == [expected] * 2
        for head in range(2):
            plain = by_rows(a[head], t[head], limit, visible)
            torch.testing.assert_close(kept[head], plain, rtol=0, atol=1e-8)


def test_the_deviation_is_relative_to_the_output() -> None:
    t, a = random_values(3, 20, 8), random_attention(3, 20, 20)
    assert deviation(a, a, t) == 0
    other = a.clone()
    other[1, 4, 7] += 0.01
    before, after = a[1] @ t[1], other[1] @ t[1]
    expected = (after - before).norm(dim=-1).max() / before.norm(dim=-1).max()
    assert deviation(a, other, t) == pytest.approx(float(expected))


def test_the_freest_row_is_the_last_that_sees_most() -> None:
    assert widest_row(5, None)[0] == 4
    for seen, (row, sources) in {
        "those before": (19, list(range(20))),
        "a window of 5 before": (19, list(range(15, 20))),
        "a window both ways": (13, list(range(7, 20))),
    }.items():
        found, places = widest_row(20, SEEN[seen](20))
        assert (found, places.tolist()) == (row, sources)


@pytest.mark.parametrize("causal", [False, True])
def test_the_tolerance_is_relative_to_the_head(causal: bool) -> None:
    t = random_values(2, 20, 8)
    t[1] = 1e-6 * t[0]
    a = random_attention(1, 20, 20, causal=causal).expand(2, -1, -1)
    limit = default_tolerance(20, 8, torch.float32)
    kept, rank = effective_attention(a, t, limit, mask(20, causal))
    assert rank.tolist() == [8, 8]
    torch.testing.assert_close(kept[0], kept[1], rtol=0, atol=1e-9)
    assert [x.tolist() for x in null_space_dimensions(t, NARROW)] == [[8, 8], [12, 12], [11, 11]]


def test_half_precision_is_as_tolerant_as_single() -> None:
    single = default_tolerance(512, 64, torch.float32)
    assert default_tolerance(512, 64, torch.bfloat16) == single == 512 * 2.0**-23
    assert default_tolerance(512, 64, torch.float64) == 512 * 2.0**-52


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("generic", (8, 12, 11)),
        ("ones among the columns", (8, 12, 12)),
        ("ones in their span", (8, 12, 12)),
        ("rank 3", (3, 17, 16)),
        ("rank 0", (0, 20, 19)),
        ("short", (5, 0, 0)),
    ],
)
def test_dimensions_of_the_null_space(case: str, expected: tuple[int, int, int]) -> None:
    t = random_values(20, 8)
    match case:
        case "ones among the columns":
            t[:, 2] = 1.0
        case "ones in their span":
            t[:, 2] = 1.0 - t[:, 0] + 2 * t[:, 5]
        case "rank 3":
            t = t[:, :3] @ random_values(3, 8, seed=4)
        case "rank 0":
            t = torch.zeros_like(t)
        case "short":
            t = t[:5]
    found = null_space_dimensions(t[None], NARROW)
    assert tuple(int(x) for x in found) == expected
    assert null_basis(t, NARROW).shape == (len(t), expected[1])
    assert null_basis(t, NARROW, keep_sums=True).shape == (len(t), expected[2])


@pytest.mark.parametrize("keep_sums", [False, True])
def test_the_null_basis_is_orthonormal_and_changes_nothing(keep_sums: bool) -> None:
    t = random_values(20, 8)
    basis = null_basis(t, NARROW, keep_sums=keep_sums)
    torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
    assert (basis.T @ t).abs().max() <= 1e-13
    assert (basis.sum(0).abs().max() <= 1e-13) == keep_sums


def test_column_bases_are_zero_beyond_the_rank() -> None:
    t = random_values(2, 20, 8)
    t[1, :, 5:] = 0
    basis, rank = column_basis(t, NARROW)
    assert rank.tolist() == [8, 5]
    for b, r in zip(basis, rank.tolist(), strict=True):
        product = torch.zeros(8, 8, dtype=torch.float64)
        product[:r, :r] = torch.eye(r)
        torch.testing.assert_close(b.T @ b, product, rtol=0, atol=1e-13)


def test_furthest_is_where_the_first_entry_is_zero() -> None:
    row = torch.tensor([0.5, 0.3, 0.2])
    assert float(largest_step(row, torch.tensor([1.0, -0.6, -0.4]))) == pytest.approx(0.5)
    assert float(largest_step(row, torch.tensor([-1.0, 0.5, 0.5]))) == pytest.approx(0.5)
    assert float(largest_step(torch.tensor([1.0, 0.0]), torch.tensor([1.0, -1.0]))) == 0.0


def test_families_cover_fused_and_grouped_values() -> None:
    assert {"gpt2", "gpt-neox", "bloom", "llama", "qwen3"} < set(FAMILIES)
    assert len(attentions(traced("llama"))[0].value) == 2
