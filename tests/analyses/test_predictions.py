"""Predictions from a sum of terms, through the model's own head."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
)

import prosect
from prosect.analyses import predictions
from support.families import (
    FAMILIES,
    HEADS,
    PAIRS,
    SIZES,
    TEXTS,
    byte_pairs,
    family_of,
    random_lens,
    random_model,
    sample,
    trace_of,
    word_pieces,
)

LABELS: dict[str, Any] = {"num_labels": 500}


def own_logits(trace: prosect.Trace) -> Tensor:
    """What the model itself computes from the texts, [token, vocabulary]."""
    model: Any = trace.lens.model
    ids = torch.tensor([[token.id for token in trace.tokens]])
    with torch.no_grad():
        if trace.encoder is None:
            return model(input_ids=ids).logits[0]
        source = torch.tensor([[token.id for token in trace.encoder.tokens]])
        return model(input_ids=source, decoder_input_ids=ids).logits[0]


@pytest.mark.parametrize("stack", HEADS)
def test_all_terms_predict_what_the_model_predicts(stack: str) -> None:
    lens = random_lens(family_of(stack))
    if hasattr(lens.model, "final_logits_bias"):
        lens.model.final_logits_bias.normal_()  # pyright: ignore
    trace = trace_of(lens, stack)
    logits = own_logits(trace)
    exact = 10 * FAMILIES[family_of(stack)].exact(torch.float64)
    for position in (0, 5, -1):
        expected = logits[position].softmax(-1)
        found = trace.predict(position=position, k=7)
        best = expected.topk(7)
        assert [p.id for p in found] == best.indices.tolist()
        for prediction in found:
            assert prediction.probability == pytest.approx(
                float(expected[prediction.id]), abs=exact
            )
            own = float(logits[position, prediction.id])
            assert prediction.logit == pytest.approx(own, abs=exact * float(logits.abs().max()))


@pytest.mark.parametrize("stack", HEADS)
def test_naming_every_term_is_naming_none(stack: str) -> None:
    trace = sample(stack)
    named = trace.predict(terms=trace.terms().names, k=3)
    assert [p.id for p in named] == [p.id for p in trace.predict(k=3)]
    for one, other in zip(named, trace.predict(k=3), strict=True):
        assert one.probability == pytest.approx(other.probability, rel=1e-9)


@pytest.mark.parametrize(
    "terms",
    [("input",), ("attention", "bias"), ("feed_forward", "input"), ("bias", "input", "attention")],
)
@pytest.mark.parametrize("family", ["bert", "gpt2", "gemma2", "t5-decoder", "bart-decoder"])
def test_some_terms_go_through_the_head_by_hand(family: str, terms: tuple[Any, ...]) -> None:
    lens = random_lens(family_of(family))
    if hasattr(lens.model, "final_logits_bias"):
        lens.model.final_logits_bias.normal_()  # pyright: ignore
    trace = trace_of(lens, family)
    split = trace.terms()
    vector = torch.stack([getattr(split, term)[-1, 3] for term in terms]).sum(0)
    model: Any = lens.model
    with torch.no_grad():
        if family == "bert":
            head = model.cls.predictions
            changed = torch.nn.functional.gelu(head.transform.dense(vector))
            normed = head.transform.LayerNorm(changed)
            logits = normed @ model.bert.embeddings.word_embeddings.weight.T + head.bias
        elif family == "gpt2":
            logits = vector @ model.transformer.wte.weight.T
        elif family == "gemma2":
            cap = model.config.final_logit_softcapping
            logits = cap * torch.tanh(vector @ model.lm_head.weight.T / cap)
        elif family == "t5-decoder":  # tied, so it is scaled
            logits = vector * model.config.d_model**-0.5 @ model.shared.weight.T
        else:
            logits = vector @ model.model.shared.weight.T + model.final_logits_bias[0]
    probabilities = logits.softmax(-1)
    found = trace.predict(terms, position=3, k=5)
    assert [p.id for p in found] == logits.topk(5).indices.tolist()
    for prediction in found:
        assert prediction.logit == pytest.approx(float(logits[prediction.id]), abs=1e-9)
        expected = float(probabilities[prediction.id])
        assert prediction.probability == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("stack", HEADS)
def test_many_vectors_predict_what_each_predicts(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = sample(stack)
    model = trace.lens.model
    start = None if trace.encoder is None else trace.tokens[0].id
    vectors = trace.hidden[-1]
    expected = own_logits(trace)
    scale = float(expected.abs().max())
    exact = 10 * FAMILIES[family_of(stack)].exact(torch.float64)
    for together, blocks in ((1000, 1), (4, -(-len(vectors) // 4)), (0, len(vectors))):
        monkeypatch.setattr(predictions, "BLOCK", together * SIZES["vocabulary"])
        found = list(predictions.logits_of(model, trace.anatomy, vectors, start))
        assert len(found) == blocks
        assert float((torch.cat(found) - expected).abs().max()) <= exact * scale
    one = predictions.logits_of_one(model, trace.anatomy, vectors[3], start)
    assert float((one - expected[3]).abs().max()) <= exact * scale


def test_threads_that_predict_do_not_disturb_those_that_trace() -> None:
    """The head's vector takes the place of a hidden state: of no other thread's."""
    lens = random_lens("bert")
    expected = lens.trace(TEXTS[0]).hidden
    other = lens.trace(TEXTS[1])
    best = other.predict(k=1)

    def trace() -> None:
        for _ in range(40):
            assert torch.equal(lens.trace(TEXTS[0]).hidden, expected)

    def predicting() -> None:
        for _ in range(80):
            assert other.predict(k=1) == best

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work) for work in (trace, predicting)]:
            done.result()


def test_the_source_alone_predicts_in_a_decoder() -> None:
    trace = sample("bart-decoder")
    alone, all_terms = trace.predict(("source",), k=5), trace.predict(k=5)
    assert [p.logit for p in alone] != [p.logit for p in all_terms]
    with pytest.raises(prosect.ProsectError, match="terms must be one or more of input"):
        sample("bert").predict(("source",))


def test_no_term_at_all_is_a_vector_of_zeros() -> None:
    lens = random_lens("bart")
    lens.model.final_logits_bias.normal_()  # pyright: ignore
    found = trace_of(lens, "bart-decoder").predict((), k=3)
    logits: Any = lens.model.final_logits_bias[0]
    assert [p.id for p in found] == logits.topk(3).indices.tolist()


def test_a_head_that_reads_something_else_is_refused() -> None:
    """As where a model calls a part of its base: the vector would be put where nothing reads it."""
    lens = random_lens("gpt2")
    trace = lens.trace(TEXTS[0])
    elsewhere = random_model("gpt2").base_model
    object.__setattr__(trace.anatomy, "base", elsewhere)
    with pytest.raises(prosect.UnsupportedModelError, match="does not read what GPT2Model"):
        trace.predict()


def test_probabilities_are_of_the_whole_vocabulary_and_come_in_order() -> None:
    found = sample("gpt2").predict(k=10**6)
    assert len(found) == SIZES["vocabulary"]
    assert len({p.id for p in found}) == len(found)
    assert sum(p.probability for p in found) == pytest.approx(1.0)
    assert [p.probability for p in found] == sorted((p.probability for p in found), reverse=True)


def test_predictions_are_shown_without_the_marks_of_the_tokenizer() -> None:
    labels = {p.id: p.label for p in sample("gpt2").predict(k=10**6)}
    tokenizer = byte_pairs()
    known = {id: text for text, id in tokenizer.get_vocab().items()}
    assert all("Ġ" not in label for id, label in labels.items() if known.get(id) != "Ġ")
    assert labels[tokenizer.convert_tokens_to_ids("Ġthe")] == "the"
    pieces = {p.id: p.label for p in sample("bert").predict(k=10**6)}
    continued = [id for text, id in word_pieces().get_vocab().items() if text.startswith("##")]
    assert continued
    assert not any(pieces[id].startswith("##") for id in continued)
    beyond = len(tokenizer)  # embedded by the model and unknown to its tokenizer
    assert labels[beyond] == f"⟨{beyond}⟩"


@pytest.mark.parametrize("stack", ["bert", "gpt2", "opt-post-norm", "bloom", "t5-decoder"])
def test_predicting_leaves_the_model_as_it_was_found(stack: str) -> None:
    lens = random_lens(family_of(stack), torch.float32)
    trace = trace_of(lens, stack)
    lens.model.train()
    lens.model.get_input_embeddings().eval()
    modes = [module.training for module in lens.model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in lens.model.modules()]
    weights = {name: value.clone() for name, value in lens.model.state_dict().items()}
    first = trace.predict(k=3)
    assert trace.predict(k=3) == first  # nor does dropout act
    assert [module.training for module in lens.model.modules()] == modes
    assert [
        (len(m._forward_hooks), len(m._forward_pre_hooks)) for m in lens.model.modules()
    ] == hooks
    assert all(torch.equal(weights[name], value) for name, value in lens.model.state_dict().items())
    assert all(parameter.grad is None for parameter in lens.model.parameters())


def test_predicting_leaves_the_model_as_it_was_found_after_an_interrupt() -> None:
    lens = random_lens("gpt2")
    trace = lens.trace(TEXTS[0])
    trace.terms()
    lens.model.train()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handle = lens.anatomy.blocks[1].module.register_forward_hook(interrupt)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()]
    with pytest.raises(KeyboardInterrupt):
        trace.predict()
    assert [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()
    ] == hooks
    assert all(module.training for module in lens.model.modules())
    handle.remove()
    assert trace.predict(k=1)


def _classifier() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=400, intermediate_size=16, **sizes, **LABELS)
    return BertForSequenceClassification(config)


@pytest.mark.parametrize(
    "model",
    [random_model("bert").base_model, random_model("deberta-v2-narrow"), _classifier()],
    ids=["base", "deberta", "classifier"],
)
def test_a_model_without_a_head_that_predicts_tokens_says_so(model: Any) -> None:
    tokenizer = FAMILIES["bert"].tokenizer()
    trace = prosect.Lens(model, tokenizer).trace("the river bank")
    name = type(model).__name__
    with pytest.raises(prosect.UnsupportedModelError, match=f"{name} has no head that predicts"):
        trace.predict()
    assert trace.terms().error < 1e-4


@pytest.mark.parametrize("family", PAIRS)
def test_the_encoder_of_a_pair_has_no_head_of_its_own(family: str) -> None:
    with pytest.raises(prosect.ProsectError, match="head of this model sits on its decoder"):
        sample(family).predict()


def test_the_demo_model_has_no_head_and_says_so() -> None:
    with pytest.raises(prosect.UnsupportedModelError, match="no head that predicts tokens"):
        prosect.load().trace(TEXTS[0]).predict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"terms": ("output",)}, "terms must be one or more of input, attention"),
        ({"position": 99}, "Positions must be from -\\d+ to \\d+, got 99"),
        ({"k": 0}, "k must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_predicted_from_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        sample("bert").predict(**arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("stack", ["bert", "gpt2", "bart-decoder"])
def test_models_in_half_precision_predict(stack: str, dtype: torch.dtype) -> None:
    trace = sample(stack, dtype)
    expected = own_logits(trace).float()[-1].softmax(-1)
    (best,) = trace.predict(k=1)
    assert best.probability == pytest.approx(float(expected[best.id]), abs=0.1)


def test_a_classifier_of_tokens_has_no_head_that_predicts_tokens() -> None:
    config = BertConfig(
        vocab_size=400,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        **LABELS,
    )
    model = BertForTokenClassification(config).eval()
    trace = prosect.Lens(model, FAMILIES["bert"].tokenizer()).trace(TEXTS[0])
    with pytest.raises(prosect.UnsupportedModelError, match="no head that predicts tokens"):
        trace.predict()


def test_one_term_may_be_named_alone_and_counts_once() -> None:
    trace = random_lens("gpt2").trace(TEXTS[0])
    alone = trace.predict("input", k=3)
    assert alone == trace.predict(("input",), k=3) == trace.predict(("input", "input"), k=3)
