"""Many texts at once: padding never shows, and every trace is that of its text alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from support.families import (
    FAMILIES,
    PAIRS,
    PREDICTING,
    TEXTS,
    byte_pairs,
    random_lens,
    random_model,
    word_pieces,
)

MIXED: list[str | tuple[str, str]] = [
    TEXTS[2],
    "a",
    (TEXTS[0], TEXTS[1]),
    "The river bank.",
    ("a", "road"),
]
"""Short after long, a text of one token, pairs among single texts: five for batches of three."""


def rounding(family: str, dtype: torch.dtype) -> float:
    """How far traces may be off: another shape of matrix adds its products in another order."""
    facts = FAMILIES[family]
    if dtype == torch.float32:
        return 2e-6 if facts.scaled_scores else 1e-5
    return 2e-6 if facts.float32_scores or facts.float32_softmax else 1e-12


def one_by_one(lens: prosect.Lens, texts: list[str | tuple[str, str]]) -> list[prosect.Trace]:
    return [lens.trace(text) if isinstance(text, str) else lens.trace(*text) for text in texts]


def assert_equal_traces(got: prosect.Trace, expected: prosect.Trace, tolerance: float) -> None:
    assert got.texts == expected.texts
    assert got.tokens == expected.tokens
    assert_close(got.hidden, expected.hidden, tolerance)
    assert_close(got.attention, expected.attention, tolerance)
    assert_close(got.terms().values, expected.terms().values, tolerance)
    by_head, expected_by_head = got.terms("head"), expected.terms("head")
    assert by_head.labels == expected_by_head.labels
    assert_close(by_head.values, expected_by_head.values, tolerance)


def assert_close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_traces_of_a_batch_equal_those_of_each_text(family: str, dtype: torch.dtype) -> None:
    lens = random_lens(family, dtype)
    singles = one_by_one(lens, MIXED)
    traces = list(lens.traces(MIXED, batch_size=3))
    assert len(traces) == len(singles)
    for got, expected in zip(traces, singles, strict=True):
        assert_equal_traces(got, expected, rounding(family, dtype))
        assert got.terms().error <= FAMILIES[family].exact(dtype)
        assert got.terms("source").error <= FAMILIES[family].exact(dtype)
        assert got.neurons(1, -1).error <= FAMILIES[family].exact(dtype)


@pytest.mark.parametrize("family", [f for f in PREDICTING if f not in PAIRS])
def test_a_trace_of_a_batch_predicts_what_the_text_alone_predicts(family: str) -> None:
    lens = random_lens(family)
    texts: list[str | tuple[str, str]] = ["The river bank.", TEXTS[1]]
    for got, expected in zip(lens.traces(texts), one_by_one(lens, texts), strict=True):
        ours, theirs = got.predict(k=3), expected.predict(k=3)
        assert [p.id for p in ours] == [p.id for p in theirs]
        assert ours[0].probability == pytest.approx(theirs[0].probability, rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 16])
def test_the_order_is_kept_whatever_the_size_of_a_batch(batch_size: int) -> None:
    lens = random_lens("gpt2")
    texts = [f"{'the ' * number}river" for number in (4, 0, 7, 2, 1)]
    traces = list(lens.traces(texts, batch_size=batch_size))
    assert [trace.texts for trace in traces] == [(text,) for text in texts]
    for got, expected in zip(traces, one_by_one(lens, list(texts)), strict=True):
        assert_equal_traces(got, expected, 1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "gpt-neo", "mistral", "opt"])
@pytest.mark.parametrize("pads", [True, False])
def test_the_side_that_a_tokenizer_pads_does_not_matter(family: str, side: str, pads: bool) -> None:
    tokenizer: Any = copy.deepcopy(byte_pairs())
    if pads:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
    else:
        assert tokenizer.pad_token is None
    tokenizer.padding_side = side
    lens = prosect.Lens(random_model(family), tokenizer)
    plain = random_lens(family)
    texts: list[str | tuple[str, str]] = ["The river bank.", TEXTS[0], "a"]
    for got, expected in zip(lens.traces(texts), one_by_one(plain, texts), strict=True):
        assert_equal_traces(got, expected, rounding(family, torch.float64))
    assert tokenizer.padding_side == side


def test_a_pair_keeps_its_types_in_a_batch() -> None:
    lens = random_lens("bert")
    pair = lens.trace("the river", "the bank")
    _, got = lens.traces([TEXTS[0], ("the river", "the bank")])
    types = got.terms("embedding", state=0).select(name="type")
    assert_close(types, pair.terms("embedding", state=0).select(name="type"), 1e-12)
    kinds = lens.tokenizer("the river", "the bank").token_type_ids
    assert set(kinds) == {0, 1}
    table: Any = lens.model.base_model.embeddings.token_type_embeddings
    pieces: Any = got.run.stream.start
    assert torch.equal(pieces.pieces["type"], table.weight[kinds])


def test_any_iterable_of_texts_is_read_no_further_than_needed() -> None:
    lens = random_lens("gpt2", torch.float32)
    taken: list[int] = []

    def texts() -> Iterator[str]:
        for number in range(7):
            taken.append(number)
            yield "river " * (number + 1)

    traces = lens.traces(texts(), batch_size=3)
    assert taken == []
    first = next(traces)
    assert taken == [0, 1, 2]
    assert first.texts == ("river ",)
    rest = list(traces)
    assert len(rest) == 6
    assert taken == list(range(7))
    assert rest[-1].texts == ("river " * 7,)


def test_no_texts_give_no_traces() -> None:
    assert list(random_lens("bert").traces([])) == []
    assert list(random_lens("bert").traces(iter(()))) == []


def test_a_trace_of_a_batch_keeps_nothing_of_the_others() -> None:
    """What is kept of one text must not hold the memory of the whole batch."""
    lens = random_lens("bert", torch.float32)
    short = next(lens.traces(["a", TEXTS[1] + " " + TEXTS[0]], batch_size=2))
    tensors = [short.hidden, short.attention]
    for record in short.run.stream:
        detail = getattr(record, "detail", None)
        tensors += [getattr(record, "output", short.hidden), getattr(detail, "alpha", short.hidden)]
        tensors += [getattr(detail, name, short.hidden) for name in ("value", "context", "neurons")]
    assert all(t.untyped_storage().nbytes() <= short.hidden.nbytes * 8 for t in tensors)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", "", "b"], prosect.ProsectError, "Text 1: The text is empty"),
        (["a", "b", "c", "d", ""], prosect.ProsectError, "Text 4: The text is empty"),
        (["a", "b", "c", "," * 80], prosect.ProsectError, "Text 3: The text has 82 tokens"),
        (["a", 3], TypeError, "Text 1: a text must be a string or a pair of strings, got int"),
        (["a", "b", "c", None], TypeError, "Text 3: a text must be .* got NoneType"),
        ([("a", "b", "c")], TypeError, "Text 0: a text must be .* got tuple"),
        ([("a", 3)], TypeError, "Text 0: A text must be a string, got int"),
    ],
)
def test_a_text_that_cannot_be_read_is_named_by_its_number(
    texts: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        list(random_lens("bert").traces(texts, batch_size=3))
    assert "\n" not in str(raised.value)


def test_what_came_before_a_bad_text_has_been_given() -> None:
    traces = random_lens("bert").traces(["a", "b", ""], batch_size=2)
    assert [next(traces).texts, next(traces).texts] == [("a",), ("b",)]
    with pytest.raises(prosect.ProsectError, match="Text 2"):
        next(traces)


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_of_no_texts_is_refused(batch_size: int) -> None:
    with pytest.raises(prosect.ProsectError, match=f"at least 1, got {batch_size}"):
        list(random_lens("bert").traces(TEXTS, batch_size=batch_size))


def test_one_string_is_not_many_texts() -> None:
    """A string is iterable: its letters would be traced one by one."""
    with pytest.raises(TypeError, match=r"texts must be a list of texts.* trace\(text\)"):
        list(random_lens("bert").traces("the river"))


@pytest.mark.parametrize("progress", [True, False])
def test_a_bar_is_shown_only_where_it_is_wanted(
    progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    list(random_lens("bert").traces(TEXTS[:3], batch_size=2, progress=progress))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("3/3" in printed.err) == progress


def test_not_finite_values_name_the_layer_in_a_batch_too() -> None:
    lens = random_lens("bert")
    with torch.no_grad():
        lens.anatomy.blocks[1].feed_forward.output.weight[0, 0] = float("nan")
    with pytest.raises(prosect.ProsectError, match="output of layer 2"):
        list(lens.traces(TEXTS))


def test_a_left_padding_word_piece_tokenizer_gives_the_same_traces() -> None:
    tokenizer: Any = copy.deepcopy(word_pieces())
    tokenizer.padding_side = "left"
    lens = prosect.Lens(random_model("bert"), tokenizer)
    for got, expected in zip(lens.traces(TEXTS), one_by_one(lens, list(TEXTS)), strict=True):
        assert_equal_traces(got, expected, 1e-12)
    assert [trace.tokens[0].label for trace in lens.traces(TEXTS)] == ["[CLS]"] * len(TEXTS)


# --- other tokens in the place of those of the text ---------------------------------------------

FAMILIES_THAT_MASK = ["bert", "roberta", "electra-small", "albert", "distilbert", "mpnet", "bart"]


def own_hidden(lens: prosect.Lens, ids: list[int]) -> Tensor:
    """The last hidden state that the model itself computes from ids, [token, d]."""
    encoder: Any = lens.anatomy.base
    with torch.no_grad():
        return encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("family", [*FAMILIES_THAT_MASK, "modernbert", "deberta-v2", "gpt2", "opt"])
def test_the_model_reads_the_ids_that_are_put_in_the_place_of_others(family: str) -> None:
    lens = random_lens(family)
    plain = lens.trace(TEXTS[0])
    put = {2: 17, 5: 60, 6: plain.tokens[6].id}
    ids = [put.get(place, token.id) for place, token in enumerate(plain.tokens)]
    trace = lens.trace(TEXTS[0], replacements=put)
    assert [token.id for token in trace.tokens] == ids
    assert_close(trace.hidden[-1], own_hidden(lens, ids), 1e-10)
    assert trace.terms().error <= FAMILIES[family].exact(torch.float64)
    assert not torch.equal(trace.hidden[-1], plain.hidden[-1])
    assert torch.equal(lens.trace(TEXTS[0]).hidden, plain.hidden)


@pytest.mark.parametrize("family", FAMILIES)
def test_replaced_tokens_of_a_batch_are_those_of_each_text_alone(family: str) -> None:
    lens = random_lens(family)
    put = [{2: 9}, {}, {3: 11, 1: 12}]
    texts: list[str | tuple[str, str]] = [TEXTS[0], "a", (TEXTS[1], "the road")]
    alone = [
        lens.trace(*([text] if isinstance(text, str) else text), replacements=ids)
        for text, ids in zip(texts, put, strict=True)
    ]
    for got, expected in zip(
        lens.traces(texts, batch_size=2, replacements=put), alone, strict=True
    ):
        assert_equal_traces(got, expected, rounding(family, torch.float64))


def test_tokens_say_what_was_read_and_where() -> None:
    lens = random_lens("bert")
    tokenizer: Any = lens.tokenizer
    whole = lens.tokens("the ducklings crossed")
    assert whole == lens.trace("the ducklings crossed").tokens
    piece = next(id for text, id in tokenizer.get_vocab().items() if text.startswith("##"))
    put = {2: tokenizer.mask_token_id, 3: piece}
    read = lens.trace("the ducklings crossed", replacements=put).tokens
    assert [read[i] for i in (0, 1, 4)] == [whole[i] for i in (0, 1, 4)]
    mask, random = read[2], read[3]
    assert (mask.text, mask.label, mask.special) == ("[MASK]", "[MASK]", True)
    assert random.label == tokenizer.convert_ids_to_tokens(piece).removeprefix("##")
    assert not random.special
    assert [(t.span, t.word) for t in read] == [(t.span, t.word) for t in whole]


def test_a_mask_put_in_is_a_mask_written() -> None:
    lens = random_lens("bert")
    tokenizer: Any = lens.tokenizer
    written = lens.trace("the [MASK] bank")
    (place,) = [i for i, t in enumerate(written.tokens) if t.label == "[MASK]"]
    put = lens.trace(
        "the river bank".replace("river", "."), replacements={place: tokenizer.mask_token_id}
    )
    assert torch.equal(put.hidden, written.hidden)


@pytest.mark.parametrize(
    ("put", "message"),
    [
        ({99: 1}, r"The positions in replacements must be from 0 to \d+, got 99\."),
        ({-1: 1}, r"The positions in replacements must be from 0 to \d+, got -1\."),
        ({1: 400}, r"The token ids in replacements must be from 0 to 399, got 400\."),
        ({1: -1}, r"The token ids in replacements must be from 0 to 399, got -1\."),
    ],
)
def test_replacements_that_do_not_exist_are_named(put: dict[int, int], message: str) -> None:
    lens = random_lens("bert")
    with pytest.raises(prosect.ProsectError, match=message):
        lens.trace(TEXTS[0], replacements=put)
    with pytest.raises(prosect.ProsectError, match=f"Text 1: {message}"):
        list(lens.traces(TEXTS[:2], replacements=[{}, put]))


@pytest.mark.parametrize("count", [1, 3])
def test_there_must_be_one_mapping_for_each_text(count: int) -> None:
    with pytest.raises(prosect.ProsectError, match="must have one mapping per text"):
        list(random_lens("bert").traces(TEXTS[:2], replacements=[{}] * count))
