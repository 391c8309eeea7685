"""A model with adapters gives what the same model gives once they are merged into its weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, get_args

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import prosect
from prosect.anatomy.families import anatomies_of
from prosect.anatomy.vocabulary import Anatomy, Attention, FeedForward, Projection
from prosect.engines.splits import By
from support.families import FAMILIES, PAIRS, random_model, word_pieces

SHORT = "The river bank."


def linear_layers(anatomy: Anatomy) -> Iterator[Any]:
    """Every linear layer that an anatomy names."""
    for step in anatomy.steps():
        if isinstance(step, Projection):
            yield step.dense.module
        elif isinstance(step, FeedForward):
            yield from (dense.module for dense in (step.inner, step.gate, step.output) if dense)
        elif isinstance(step, Attention):
            yield from (step.value.module, step.output.module)
            if step.scores is not None:
                yield from (step.scores.query.module, step.scores.key.module)


def names_of(model: Any) -> list[str]:
    """What the model calls the linear layers of its stacks."""
    stacks = [stack for stack in anatomies_of(model) if stack is not None]
    named = {module for stack in stacks for module in linear_layers(stack)}
    return [name for name, module in model.named_modules() if module in named]


def randomised(model: Any, config: peft.PeftConfig) -> Any:
    """The model with an adapter whose every weight is random, in its own precision."""
    dtype = model.dtype
    adapted = peft.get_peft_model(model, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if any(mark in name for mark in ("lora_", "ia3_", "hada_", "vera_lambda")):
                parameter.normal_(0.1, 0.2)
    return adapted.to(dtype).eval()


def merged(adapted: Any) -> Any:
    return copy.deepcopy(adapted).merge_and_unload()


def assert_close(got: Tensor, expected: Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()


def assert_same_analyses(got: prosect.Trace, expected: prosect.Trace, tolerance: float) -> None:
    assert_close(got.hidden, expected.hidden, tolerance)
    assert_close(got.terms().values, expected.terms().values, tolerance)
    for by in get_args(By):
        parts = got.terms(by, targets=[1]).values
        assert_close(parts, expected.terms(by, targets=[1]).values, tolerance)
    assert got.kinds.keys() == expected.kinds.keys()
    for kind in got.kinds:
        assert_close(got.map(kind).values, expected.map(kind).values, tolerance)
    if "attribution" in got.kinds:
        of_head = {"head": (1, 0), "times_input": True}
        values = got.attribution(**of_head).values
        assert_close(values, expected.attribution(**of_head).values, tolerance)


def assert_same_predictions(got: prosect.Trace, expected: prosect.Trace, tolerance: float) -> None:
    (ours,), (theirs,) = got.predict(k=1), expected.predict(k=1)
    assert ours.id == theirs.id
    assert abs(ours.logit - theirs.logit) <= tolerance * abs(theirs.logit)
    values = got.logit_contributions(ours).values
    assert_close(values, expected.logit_contributions(theirs).values, tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unmerged_adapter_gives_what_the_merged_one_gives(family: str) -> None:
    model = random_model(family)
    config = peft.LoraConfig(
        r=2, lora_alpha=3, lora_dropout=0.2, use_rslora=True, target_modules=names_of(model)
    )
    adapted = randomised(model, config)
    tokenizer = FAMILIES[family].tokenizer()
    ours, theirs = prosect.Lens(adapted, tokenizer), prosect.Lens(merged(adapted), tokenizer)
    tolerance = 1e-6 if FAMILIES[family].exact(torch.float64) > 1e-12 else 1e-10
    got, expected = ours.trace(SHORT), theirs.trace(SHORT)
    assert_same_analyses(got, expected, tolerance)
    if family in PAIRS:
        got, expected = (lens.trace(SHORT, target="Its mother") for lens in (ours, theirs))
        assert_same_analyses(got, expected, tolerance)
    if FAMILIES[family].predicts:
        assert_same_predictions(got, expected, tolerance)


@pytest.mark.data
@pytest.mark.parametrize(
    "targets",
    [["query"], ["query", "value"], ["attention.output.dense"], ["intermediate.dense"], ["dense"]],
    ids="+".join,
)
def test_the_demo_model_with_an_adapter_gives_what_the_merged_one_gives(targets: list[str]) -> None:
    adapted = randomised(
        prosect.load(dtype=torch.float64).model, peft.LoraConfig(r=4, target_modules=targets)
    )
    tokenizer = prosect.load().tokenizer
    ours, theirs = prosect.Lens(adapted, tokenizer), prosect.Lens(merged(adapted), tokenizer)
    got, expected = ours.trace("a b"), theirs.trace("a b")
    for kind in ("ATBFFRESLN", "value_zeroing"):
        assert_close(got.map(kind).values, expected.map(kind).values, 1e-10)
    shares = got.attribution(probes=2, layers=[1]).values
    assert_close(shares, expected.attribution(probes=2, layers=[1]).values, 1e-10)
    assert not torch.allclose(got.hidden, prosect.load().trace("a b").hidden.double(), atol=1e-3)


def traces_of(adapted: Any, family: str = "bert") -> tuple[prosect.Trace, prosect.Trace]:
    """The trace of a model with adapters, and that of it merged."""
    tokenizer = FAMILIES[family].tokenizer()
    lenses = prosect.Lens(adapted, tokenizer), prosect.Lens(merged(adapted), tokenizer)
    return lenses[0].trace(SHORT), lenses[1].trace(SHORT)


def test_biases_of_adapters_count() -> None:
    model = random_model("bert")
    config = peft.LoraConfig(r=2, target_modules=names_of(model), lora_bias=True)
    got, expected = traces_of(randomised(model, config))
    assert_same_analyses(got, expected, 1e-10)


@pytest.mark.parametrize(
    "config",
    [
        peft.LoraConfig(r=2, use_dora=True, target_modules=["query", "dense"]),
        peft.IA3Config(
            target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"]
        ),
        peft.LoHaConfig(r=2, target_modules=["value", "intermediate.dense"]),
        peft.AdaLoraConfig(init_r=2, total_step=10, target_modules=["value", "dense"]),
        peft.VeraConfig(r=2, target_modules=["query", "value"]),
        peft.OFTConfig(oft_block_size=4, target_modules=["query", "value"]),
    ],
    ids=["dora", "ia3", "loha", "adalora", "vera", "oft"],
)
def test_other_adapters_of_linear_layers_are_measured(config: peft.PeftConfig) -> None:
    adapted = randomised(random_model("bert"), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "oft_R" in name:
                parameter.normal_(0, 0.1)
    got, expected = traces_of(adapted)
    assert not torch.allclose(got.hidden, prosect_of("bert").hidden, atol=1e-2)
    assert_same_analyses(got, expected, 1e-6)  # some of them compute in float32 throughout


def prosect_of(family: str) -> prosect.Trace:
    return prosect.Lens(random_model(family), FAMILIES[family].tokenizer()).trace(SHORT)


def test_an_adapter_of_embeddings_and_head_gives_what_the_merged_one_gives() -> None:
    model = random_model("llama", tie_word_embeddings=False)
    config = peft.LoraConfig(r=2, target_modules=["embed_tokens", "lm_head", "v_proj"])
    got, expected = traces_of(randomised(model, config), "llama")
    assert_same_analyses(got, expected, 1e-6)
    assert_same_predictions(got, expected, 1e-6)
    nearest = got.identify(candidates="vocabulary", k=3).ids
    assert torch.equal(nearest, expected.identify(candidates="vocabulary", k=3).ids)
    rows, plain = got.anatomy.words.weight, model.base_model.embed_tokens.base_layer.weight
    assert_close(rows, expected.anatomy.words.weight, 1e-12)
    assert not torch.allclose(rows, plain)


def test_modules_that_were_trained_whole_are_those_that_compute() -> None:
    model = random_model("bert")
    config = peft.LoraConfig(
        r=2,
        target_modules=["query"],
        modules_to_save=["value", "LayerNorm", "word_embeddings", "decoder"],
    )
    adapted = randomised(model, config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    got, expected = traces_of(adapted)
    assert_same_analyses(got, expected, 1e-10)
    assert_same_predictions(got, expected, 1e-10)
    assert torch.equal(got.anatomy.words.weight, expected.anatomy.words.weight)


def test_norms_that_were_tuned_are_those_that_compute() -> None:
    adapted = randomised(random_model("bert"), peft.LNTuningConfig(target_modules=["LayerNorm"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "ln_tuning_layers" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    got, expected = traces_of(adapted)
    assert_same_analyses(got, expected, 1e-10)


def test_only_the_adapters_at_work_count() -> None:
    model = random_model("bert")
    config = peft.LoraConfig(r=2, target_modules=["value", "dense"])
    adapted = randomised(model, config)
    adapted.add_adapter("other", peft.LoraConfig(r=3, target_modules=["value"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".other." in name:
                parameter.normal_(0.0, 0.2)
    adapted = adapted.to(torch.float64)
    lens = prosect.Lens(adapted, word_pieces())
    value = lens.anatomy.blocks[0].attention.value
    plain = value.module.base_layer.weight.T

    def added(name: str) -> Tensor:
        low, high = value.module.lora_A[name].weight, value.module.lora_B[name].weight
        return value.module.scaling[name] * (high @ low).T

    for names in (["default"], ["other"], ["default", "other"]):
        adapted.base_model.set_adapter(names)
        assert_close(value.weight, plain + sum(map(added, names)), 1e-12)
        assert lens.trace(SHORT).map("ATB").error < 1e-12
    with adapted.disable_adapter():
        assert torch.equal(value.weight, plain)
        assert lens.trace(SHORT).map("ATB").error < 1e-12
        assert torch.equal(lens.trace(SHORT).hidden, prosect_of("bert").hidden)
    adapted.merge_adapter()
    assert lens.trace(SHORT).map("ATB").error < 1e-12
    assert torch.equal(value.weight, plain)  # the base layer holds the sum now


@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_may_be_more_precise_than_its_model(dora: bool) -> None:
    """As peft makes them: float32 beside weights in half precision."""
    model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
    config = peft.LoraConfig(r=2, use_dora=dora, target_modules="all-linear")
    adapted: Any = peft.get_peft_model(model.to(torch.bfloat16), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                assert parameter.dtype == torch.float32
                parameter.normal_()
    trace = prosect.Lens(adapted, word_pieces()).trace(SHORT)
    assert max(trace.terms().error, trace.map("ATBFFRESLN").error) < 0.03


def test_a_trace_refuses_other_adapters_than_it_was_made_with() -> None:
    config = peft.IA3Config(target_modules=["value"], feedforward_modules=[])
    adapted = randomised(random_model("bert"), config)
    trace = prosect.Lens(adapted, word_pieces()).trace(SHORT)
    with adapted.disable_adapter(), pytest.raises(prosect.ProsectError, match="trace the text ag"):
        trace.attribution()


@pytest.mark.parametrize("dora", [False, True])
def test_a_trace_refuses_an_adapter_that_was_trained_on(dora: bool) -> None:
    config = peft.LoraConfig(r=2, use_dora=dora, target_modules=["value"])
    adapted = randomised(random_model("bert"), config)
    trace = prosect.Lens(adapted, word_pieces()).trace(SHORT)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.mul_(2)
    with pytest.raises(prosect.ProsectError, match="trace the text again"):
        trace.attribution()


def test_a_model_is_left_as_it_was() -> None:
    config = peft.LoraConfig(r=2, use_dora=True, lora_dropout=0.5, target_modules=["value"])
    adapted = randomised(random_model("bert"), config).train()
    adapted.base_model.model.bert.embeddings.eval()

    def fingerprint() -> list[Any]:
        return [
            [module.training for module in adapted.modules()],
            [(p.data_ptr(), p._version, p.requires_grad) for p in adapted.parameters()],
            [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in adapted.modules()],
            torch.get_rng_state().tolist(),
        ]

    before = fingerprint()
    prosect.Lens(adapted, word_pieces()).trace(SHORT).map("ATB")
    assert fingerprint() == before


@pytest.mark.parametrize(
    ("family", "config", "kind"),
    [
        ("gpt2", peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2), "PREFIX"),
        ("gpt2", peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2), "PROMPT"),
        ("llama", peft.AdaptionPromptConfig(adapter_len=2, adapter_layers=2), "ADAPTION_PROMPT"),
        (
            "llama",
            peft.LoraConfig(
                task_type="CAUSAL_LM", target_modules=["q_proj"], alora_invocation_tokens=[1]
            ),
            "LORA",
        ),
    ],
    ids=["prefix", "prompt", "adaption", "activated"],
)
def test_adapters_that_change_no_weight_are_refused(
    family: str, config: peft.PeftConfig, kind: str
) -> None:
    model: Any = random_model(family, torch.float32)
    if family == "llama":
        config.task_type = peft.TaskType.CAUSAL_LM
    adapted = peft.get_peft_model(model, config)
    with pytest.raises(prosect.UnsupportedModelError, match=f"type {kind}.* is not supported"):
        prosect.Lens(adapted, FAMILIES[family].tokenizer())
    assert not prosect.doctor(adapted)["trace"].supported


def test_a_module_with_prompts_of_its_own_is_refused_by_name() -> None:
    model: Any = random_model("llama", torch.float32)
    config = peft.AdaptionPromptConfig(adapter_len=2, adapter_layers=2, task_type="CAUSAL_LM")
    peft.get_peft_model(model, config)
    with pytest.raises(prosect.UnsupportedModelError, match="lacks a part that 'llama' models"):
        prosect.Lens(model, FAMILIES["llama"].tokenizer())


def test_adapters_both_merged_and_disabled_are_refused() -> None:
    adapted = randomised(random_model("bert"), peft.LoraConfig(r=2, target_modules=["value"]))
    adapted.merge_adapter()
    layer: nn.Module = adapted.base_model.model.bert.encoder.layer[0].attention.self.value
    layer._disable_adapters = True
    with pytest.raises(prosect.UnsupportedModelError, match="merged and disabled at once"):
        prosect.Lens(adapted, word_pieces())
