"""What a trace holds, and that the model is left as it was found."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import prosect
from families import (
    FAMILIES,
    PAIRS,
    SIZES,
    STACKS,
    TEXTS,
    family_of,
    random_lens,
    random_model,
    sample,
    trace_of,
    word_pieces,
)
from prosect.analyses.certificate import TOLERANCES
from prosect.tokens import vocabulary_labels

LAYERS = {"albert-groups": 8, "gpt-neo": 4}
OPENINGS = ["bert", "gpt2", "mpnet", "deberta-v2", "gpt-neo", "bloom", "albert", "opt-post-norm"]
OPENINGS += ["t5", "t5-decoder", "bart-decoder"]
"""Stacks seen by the tap and stacks seen by hooks; encoders and decoders."""


@pytest.mark.parametrize("stack", STACKS)
def test_shapes_are_those_documented(stack: str) -> None:
    trace = sample(stack)
    n, layers = len(trace.tokens), LAYERS.get(stack, SIZES["layers"])
    assert trace.hidden.shape == (layers + 1, n, SIZES["d"])
    assert trace.attention.shape == (layers, SIZES["heads"], n, n)
    terms = trace.terms()
    assert terms.values.shape == (len(terms.names), layers + 1, n, SIZES["d"])
    assert not trace.hidden.requires_grad
    assert not terms.values.requires_grad
    assert not trace.terms("head").values.requires_grad
    assert not trace.neurons(0, 0).values.requires_grad
    if stack in FAMILIES:
        assert trace.encoder is None
        assert trace.cross_attention is None
    else:
        assert trace.encoder is not None
        sources = len(trace.encoder.tokens)
        assert trace.cross_attention is not None
        assert trace.cross_attention.shape == (layers, SIZES["heads"], n, sources)


@pytest.mark.parametrize("family", PAIRS)
def test_a_decoder_reads_what_the_model_makes_of_the_target(family: str) -> None:
    """Teacher forcing: its start token, then the target without its last token."""
    trace = sample(f"{family}-decoder")
    lens = trace.lens
    labels = lens.tokenizer(text_target=TEXTS[1]).input_ids
    assert [token.id for token in trace.tokens] == [
        lens.model.config.decoder_start_token_id,
        *labels[:-1],
    ]
    assert trace.tokens[0].special
    assert trace.tokens[0].span is None
    assert trace.texts == (TEXTS[1],)
    assert trace.encoder is not None
    assert trace.encoder.texts == (TEXTS[0],)
    assert torch.equal(trace.encoder.hidden, sample(family).hidden)
    words = [token.text for token in trace.tokens if token.span is not None]
    assert "".join(words) == TEXTS[1].replace(" ", "")


@pytest.mark.parametrize("family", ["bart", "marian"])
def test_a_target_that_fills_every_position_is_traced_and_one_more_token_is_refused(
    family: str,
) -> None:
    lens = random_lens(family, torch.float32)
    added = len(lens.tokenizer(text_target="a").input_ids) - 1
    most = SIZES["positions"] - added  # the start token takes the place of the last one
    assert len(lens.trace("a", target="a" + "," * (most - 1)).tokens) == SIZES["positions"]
    with pytest.raises(prosect.ProsectError, match=r"65 tokens .* at most 64: .* by 1 token or"):
        lens.trace("a", target="a" + "," * most)


def test_the_trace_of_a_target_names_both_texts() -> None:
    trace = random_lens("bart").trace("a river", target="the road")
    assert trace.encoder is not None
    counts = len(trace.encoder.tokens), len(trace.tokens)
    expected = "Trace(bart: {} tokens, 'a river' → {} tokens, 'the road')".format(*counts)
    assert repr(trace) == expected


def test_a_model_of_single_texts_refuses_a_pair() -> None:
    lens = random_lens("bert", type_vocab_size=1)
    assert lens.trace("a river").tokens
    with pytest.raises(prosect.ProsectError, match="bert does not tell the texts of a pair apart"):
        lens.trace("a river", "a bank")


def test_a_target_that_cannot_be_read_says_so() -> None:
    lens = random_lens("bart", torch.float32)
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        lens.trace("a", target="")
    with pytest.raises(TypeError, match="must be a string, not int"):
        lens.trace("a", target=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(prosect.ProsectError, match="bert has no decoder beside its encoder"):
        random_lens("bert").trace("a", target="b")


def test_a_pair_keeps_its_types_and_its_two_texts() -> None:
    lens = random_lens("bert")
    trace = lens.trace("The river bank.", "Its rates.")
    inputs = lens.tokenizer("The river bank.", "Its rates.", return_tensors="pt")
    with torch.no_grad():
        expected = lens.model.base_model(**inputs).last_hidden_state[0]
    torch.testing.assert_close(trace.hidden[-1], expected, rtol=1e-12, atol=1e-12)
    assert [t.text for t in trace.tokens if t.text.lower() in {"bank", "rates"}] == [
        "bank",
        "rates",
    ]
    words = [token.word for token in trace.tokens if token.word is not None]
    assert words == sorted(words)
    assert max(words) == 6


def _fingerprint(model: Any) -> dict[str, Any]:
    return {
        "attention": [
            m.config._attn_implementation for m in model.modules() if hasattr(m, "config")
        ],
        "configurations": [str(m.config) for m in model.modules() if hasattr(m, "config")],
        "training": [m.training for m in model.modules()],
        "hooks": [
            [len(hooks) for name, hooks in vars(m).items() if "hooks" in name and hooks is not None]
            for m in model.modules()
        ],
        "gradients": [(p.requires_grad, p.grad is None) for p in model.parameters()],
        "weights": {name: float(value.float().sum()) for name, value in model.state_dict().items()},
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("stack", OPENINGS)
def test_the_model_is_left_as_it_was_found(stack: str, implementation: str) -> None:
    lens = random_lens(family_of(stack))
    if implementation == "eager" or lens.model._supports_sdpa:
        lens.model.set_attn_implementation(implementation)
    lens.model.train()
    lens.model.get_input_embeddings().eval()
    next(lens.model.parameters()).requires_grad_(False)
    before = _fingerprint(lens.model)
    trace = trace_of(lens, stack)
    assert _fingerprint(lens.model) == before
    trace.terms("source")
    trace.neurons(0, 0)
    assert _fingerprint(lens.model) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("stack", OPENINGS)
def test_the_model_is_left_as_it_was_found_after_an_error(
    stack: str, error: type[BaseException]
) -> None:
    lens = random_lens(family_of(stack))
    lens.model.train()
    stopped = lens.anatomy if stack in FAMILIES else lens.decoder
    assert stopped is not None

    def interrupt(*_: object) -> None:
        raise error

    handle = stopped.blocks[1].module.register_forward_hook(interrupt)
    before = _fingerprint(lens.model)
    with pytest.raises(error):
        trace_of(lens, stack)
    assert _fingerprint(lens.model) == before
    handle.remove()
    exact = FAMILIES[family_of(stack)].exact(torch.float64)
    assert trace_of(lens, stack).terms().error <= exact


def test_an_interrupted_batch_leaves_the_model_as_it_was_found() -> None:
    lens = random_lens("bert")
    lens.model.train()
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    lens.anatomy.blocks[0].module.register_forward_hook(interrupt)
    before = _fingerprint(lens.model)
    traces = lens.traces(TEXTS, batch_size=2)
    next(traces)
    assert _fingerprint(lens.model) == before  # between batches too
    next(traces)
    with pytest.raises(KeyboardInterrupt):
        next(traces)
    assert _fingerprint(lens.model) == before


def test_hooks_and_gradients_of_the_user_go_on_working() -> None:
    lens = random_lens("gpt2", torch.float32)
    seen: list[torch.Size] = []
    module: Any = lens.anatomy.blocks[0].module
    module.register_forward_hook(lambda _m, _a, output: seen.append(output[0].shape))
    lens.trace(TEXTS[0])
    assert len(seen) == 1
    ids = lens.tokenizer(TEXTS[0], return_tensors="pt").input_ids
    model: Any = lens.model
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.transformer.h.parameters())
    gradient = model.transformer.wte.weight.grad.clone()
    trace = lens.trace(TEXTS[0])
    trace.predict()
    assert torch.equal(model.transformer.wte.weight.grad, gradient)


def test_dropout_does_not_act_in_a_model_left_in_training_mode() -> None:
    lens = random_lens("bert")
    expected = lens.trace(TEXTS[0]).hidden
    lens.model.train()
    assert torch.equal(lens.trace(TEXTS[0]).hidden, expected)


def test_moving_or_reloading_the_weights_is_followed() -> None:
    lens = random_lens("bert", torch.float32)
    lens.model.double()
    assert lens.trace(TEXTS[0]).terms().error < 1e-12
    lens.model.load_state_dict(random_model("bert", seed=1).state_dict())
    assert lens.trace(TEXTS[0]).terms().error < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("stack", STACKS)
def test_models_in_half_precision_are_analysed_in_float32(stack: str, dtype: torch.dtype) -> None:
    trace = sample(stack, dtype)
    assert trace.lens.model.dtype == dtype
    assert trace.hidden.dtype == trace.attention.dtype == torch.float32
    terms = trace.terms()
    assert terms.values.dtype == torch.float32
    assert terms.error <= TOLERANCES[dtype]
    for by in ("layer", "head", "source", "norm", "embedding"):
        parts = trace.terms(by)
        assert parts.values.dtype == torch.float32
        assert parts.error <= TOLERANCES[dtype]
    assert trace.neurons(1, 2).values.dtype == torch.float32
    family = family_of(stack)
    exact = random_model(family, dtype).float()
    full = trace_of(prosect.Lens(exact, FAMILIES[family].tokenizer()), stack)
    off = (terms.values - full.terms().values).norm() / full.terms().values.norm()
    assert off < 0.2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("stack", STACKS)
def test_values_that_are_not_finite_name_the_layer(stack: str, value: float) -> None:
    lens = random_lens(family_of(stack), torch.float32)
    anatomy = lens.anatomy if stack in FAMILIES else lens.decoder
    assert anatomy is not None
    block = anatomy.blocks[1]
    first = next(n for n, b in enumerate(anatomy.blocks, start=1) if b.module is block.module)
    with torch.no_grad():
        block.feed_forward.output.module.weight[0, 0] = value
    with pytest.raises(prosect.ProsectError, match=f"output of layer {first}: check") as raised:
        trace_of(lens, stack)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("stack", STACKS)
def test_embeddings_that_are_not_finite_are_named(stack: str) -> None:
    lens = random_lens(family_of(stack), torch.float32)
    anatomy = lens.anatomy if stack in FAMILIES else lens.decoder
    assert anatomy is not None
    with torch.no_grad():
        anatomy.words.weight[:, 0] = float("nan")
    with pytest.raises(prosect.ProsectError, match="NaN or infinite values in the embeddings"):
        trace_of(lens, stack)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_text_says_so(text: str) -> None:
    with pytest.raises(prosect.ProsectError, match="The text is empty"):
        random_lens("bert").trace(text)
    if not text:
        with pytest.raises(prosect.ProsectError, match="The text is empty"):
            random_lens("gpt2").trace(text)


def test_a_text_that_the_tokenizer_drops_is_not_called_empty() -> None:
    lens = random_lens("bert")
    assert "\u0007" not in "".join(lens.tokenizer.get_vocab())
    with pytest.raises(prosect.ProsectError, match="it drops all of its characters"):
        lens.trace("\u0007")  # a control character, which BERT's normaliser removes


UNLIMITED = ("deberta-v2", "bloom", "t5", "t5-gated")
"""Those whose positions are relative only."""


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in UNLIMITED])
def test_a_text_that_fills_every_position_is_traced_and_one_more_token_is_refused(
    family: str,
) -> None:
    lens = random_lens(family)
    added = len(lens.tokenizer("a").input_ids) - 1
    most = SIZES["positions"] - added
    assert len(lens.trace("a" + "," * (most - 1)).tokens) == SIZES["positions"]
    with pytest.raises(prosect.ProsectError, match=r"65 tokens .* at most 64: .* by 1 token or"):
        lens.trace("a" + "," * most)


@pytest.mark.parametrize("family", UNLIMITED)
def test_relative_positions_have_no_end(family: str) -> None:
    trace = random_lens(family).trace("a" + "," * 99)
    assert len(trace.tokens) >= 100
    assert trace.terms().error <= FAMILIES[family].exact(torch.float64)


def test_a_text_that_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a string, not list"):
        random_lens("bert").trace(["a", "b"])  # pyright: ignore[reportArgumentType]


def test_a_single_token_is_traced() -> None:
    trace = random_lens("gpt2").trace("a")
    assert len(trace.tokens) == 1
    assert trace.terms().error < 1e-12
    assert trace.identify().recovered[0].all()


def test_unknown_kinds_and_metrics_are_named() -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match=r"kind must be one of attention.*, got 'ATBX'"):
        trace.map("ATBX")
    with pytest.raises(prosect.ProsectError, match="no metric 'L3': choose one of cosine, l2"):
        trace.identify(metric="L3")  # pyright: ignore[reportArgumentType]
    with pytest.raises(prosect.ProsectError, match="choose 'sentence'"):
        trace.identify(candidates="world")
    with pytest.raises(prosect.ProsectError, match="at least 1, got 0"):
        trace.identify(k=0)
    for options in ({"positions": True}, {"stem": False}):
        with pytest.raises(prosect.ProsectError, match="positions and stem are of the vocabulary"):
            trace.identify(**options)


def test_neighbours_have_labels() -> None:
    trace = random_lens("bert").trace("the river, the bank")
    near = trace.identify(3)
    assert [len(near.labels), len(near.labels[0]), len(near.labels[0][0])] == [*near.ids.shape]
    for layer, token, place in ((0, 0, 0), (3, 2, 1)):
        position = int(near.ids[layer, token, place])
        expected = f"{trace.tokens[position].label} ({position})"
        assert near.labels[layer][token][place] == expected
    near = trace.identify(3, candidates="vocabulary")
    expected = vocabulary_labels(near.ids[1, 2].tolist(), trace.lens.tokenizer)
    assert near.labels[1][2] == expected


def test_a_tokenizer_of_another_model_is_refused() -> None:
    model = random_model("bert")
    model.resize_token_embeddings(50)
    with pytest.raises(prosect.ProsectError, match="load both from the same place"):
        prosect.Lens(model, word_pieces())


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


def test_threads_that_trace_one_model_do_not_disturb_each_other() -> None:
    lens = random_lens("bert")
    lens.model.set_attn_implementation("sdpa")
    expected = {text: lens.trace(text).hidden for text in TEXTS[:2]}
    wrong: list[str] = []

    def work(text: str) -> None:
        for _ in range(20):
            if not torch.equal(lens.trace(text).hidden, expected[text]):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(text,)) for text in TEXTS[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert lens.model.config._attn_implementation == "sdpa"


def test_half_a_surrogate_pair_is_refused_with_a_sentence() -> None:
    with pytest.raises(prosect.ProsectError, match="half a surrogate pair"):
        random_lens("bert").trace("a\ud800b")


@pytest.mark.parametrize("wrong", [1.5, "1", None, True, torch.tensor(True)])
def test_a_number_of_the_wrong_type_is_named(wrong: object) -> None:
    trace = random_lens("bert").trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.terms("layer", state=wrong)  # pyright: ignore
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.neurons(wrong, 0)  # pyright: ignore
    with pytest.raises(prosect.ProsectError, match="must be an integer, got"):
        trace.predict(position=wrong)  # pyright: ignore


def test_targets_that_are_no_list_and_states_without_a_split_are_refused() -> None:
    lens = random_lens("bert")
    with pytest.raises(prosect.ProsectError, match="batch_size must be an integer, got '4'"):
        list(lens.traces(TEXTS, batch_size="4"))  # pyright: ignore
    trace = lens.trace(TEXTS[0])
    with pytest.raises(prosect.ProsectError, match="targets must be a list of integers, got 3"):
        trace.terms("layer", targets=3)  # pyright: ignore
    with pytest.raises(prosect.ProsectError, match="go with by"):
        trace.terms(targets=[1])  # pyright: ignore


def test_neurons_that_do_not_add_up_are_refused_and_nothing_is_split_exactly() -> None:
    model = random_model("bert")
    dense = model.bert.encoder.layer[1].output.dense
    handle = dense.register_forward_hook(lambda _m, _a, output: 2 * output)
    lens = prosect.Lens(model, word_pieces())
    with pytest.raises(prosect.ReconstructionError, match="layer 2 feed-forward"):
        lens.trace(TEXTS[0]).neurons(1, 1)
    handle.remove()
    with torch.no_grad():
        dense.weight.zero_()
        dense.bias.zero_()
    assert lens.trace(TEXTS[0]).neurons(1, 1).error == 0


def test_an_adapter_in_the_place_of_a_linear_layer_is_refused() -> None:
    model = random_model("bert")
    own = model.bert.encoder.layer[0].attention.self

    class Adapter(torch.nn.Module):
        def __init__(self, base: torch.nn.Module) -> None:
            super().__init__()
            self.base = base

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x)

    own.value = Adapter(own.value)
    with pytest.raises(prosect.UnsupportedModelError, match="merge adapters"):
        prosect.Lens(model, word_pieces()).trace(TEXTS[0]).terms()


def test_feed_forwards_in_chunks_are_refused() -> None:
    model = random_model("bert")
    model.config.chunk_size_feed_forward = 4
    with pytest.raises(prosect.UnsupportedModelError, match="in chunks"):
        prosect.Lens(model, word_pieces())
