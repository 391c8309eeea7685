"""A trace is a closed record: what the model becomes later never shows in a result unseen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.errors import StaleTraceError
from support.families import FAMILIES, PAIRS, TEXTS, random_lens

READS_WEIGHTS: dict[str, Callable[[prosect.Trace], Tensor]] = {
    "attribution": lambda trace: trace.attribution(probes=2).values,
    "ATBFF": lambda trace: trace.map("ATBFF").values,
    "norm": lambda trace: trace.map("norm").values,
    "contribution": lambda trace: trace.map("contribution").values,
    "value_zeroing": lambda trace: trace.map("value_zeroing").values,
    "effective": lambda trace: trace.map("effective").values,
    "source": lambda trace: trace.terms("source", targets=[1]).values,
    "neurons": lambda trace: trace.neurons(0, 1).values,
}
READS_THE_MODEL: dict[str, Callable[[prosect.Trace], Tensor]] = {
    "predict": lambda trace: torch.tensor([one.logit for one in trace.predict()]),
    "logit contributions": lambda trace: trace.logit_contributions(7).values,
    "vocabulary": lambda trace: trace.identify(k=2, candidates="vocabulary").scores,
}
KEPT: dict[str, Callable[[prosect.Trace], Tensor]] = {
    "terms": lambda trace: trace.terms().values,
    "by norm": lambda trace: trace.terms("norm").values,
    "attention": lambda trace: trace.map("attention").values,
    "sentence": lambda trace: trace.identify(k=2).scores,
}
CHANGES: dict[str, Callable[[torch.nn.Parameter], Any]] = {
    "in place": lambda weight: weight.mul_(3),
    "through .data": lambda weight: weight.data.mul_(3),
    "an optimiser's step": lambda weight: weight.add_(torch.randn_like(weight), alpha=1e-3),
}


def bert() -> tuple[prosect.Lens, prosect.Trace]:
    lens = random_lens("bert")
    return lens, lens.trace(TEXTS[0])


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("result", READS_WEIGHTS)
def test_a_result_that_reads_changed_weights_is_refused(result: str, how: str) -> None:
    lens, trace = bert()
    with torch.no_grad():
        for parameter in lens.model.parameters():
            CHANGES[how](parameter)
    with pytest.raises(
        StaleTraceError, match=r"weight '.*weight' was changed.*trace the text again"
    ):
        READS_WEIGHTS[result](trace)


def test_the_message_names_the_weight_that_changed() -> None:
    lens, trace = bert()
    with torch.no_grad():
        lens.model.bert.encoder.layer[1].attention.self.query.weight.mul_(3)
    with pytest.raises(StaleTraceError, match=r"encoder\.layer\.1\.attention\.self\.query\.weight"):
        trace.attribution(probes=2)
    fresh = lens.trace(TEXTS[0])  # a new trace is of the new weights
    assert fresh.attribution(probes=2).values.isfinite().all()


def replace_parameters(model: Any) -> None:
    for module in model.modules():
        for name, own in list(module._parameters.items()):
            if own is not None:
                setattr(module, name, torch.nn.Parameter(3 * own.detach()))


def replace_modules(model: Any) -> None:
    for module in list(model.modules()):
        for name, own in list(module.named_children()):
            if isinstance(own, torch.nn.Linear | torch.nn.LayerNorm | torch.nn.Embedding):
                setattr(module, name, copy.deepcopy(own))


def load(model: Any, assign: bool) -> None:
    state = {name: 3 * tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)


def write_through_data(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(3)


REPLACES: dict[str, Callable[[Any], Any]] = {
    "parameters": replace_parameters,
    "modules": replace_modules,
    "state": lambda model: load(model, assign=False),
    "state, assigned": lambda model: load(model, assign=True),
    "through .data": write_through_data,
    "precision": lambda model: model.half(),
    "device": lambda model: model.to("meta"),
}


@pytest.mark.parametrize("how", REPLACES)
@pytest.mark.parametrize("family", ["bert", "gpt2", "opt-post-norm"])
@pytest.mark.parametrize("result", READS_THE_MODEL)
def test_a_result_of_the_live_model_is_refused_once_that_changes(
    result: str, family: str, how: str
) -> None:
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0])
    REPLACES[how](lens.model)
    with pytest.raises(StaleTraceError, match=r"'\S+'.*trace the text again") as raised:
        READS_THE_MODEL[result](trace)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("result", ["attribution", "value_zeroing"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_model_whose_modules_were_replaced_cannot_be_run_again(family: str, result: str) -> None:
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0])
    replace_modules(lens.model)
    with pytest.raises(StaleTraceError, match=r"The module '\S+' was replaced"):
        READS_WEIGHTS[result](trace)


def test_the_precision_of_a_trace_is_that_of_its_run() -> None:
    lens, trace = bert()
    lens.model.half()
    assert trace.analyses.dtype == torch.float64


@pytest.mark.parametrize("result", KEPT)
def test_what_reads_no_matrix_stays_as_it_was(result: str) -> None:
    lens, trace = bert()
    _, other = bert()
    expected = KEPT[result](other)
    with torch.no_grad():
        for parameter in lens.model.parameters():
            parameter.mul_(3)
    torch.testing.assert_close(KEPT[result](trace), expected, rtol=0, atol=0)


@pytest.mark.parametrize("result", READS_WEIGHTS | KEPT)
def test_a_model_that_moves_to_another_precision_leaves_its_traces_as_they_were(
    result: str,
) -> None:
    compute = (READS_WEIGHTS | KEPT)[result]
    lens, trace = bert()
    _, other = bert()
    expected = compute(other)
    lens.model.half()
    torch.testing.assert_close(compute(trace), expected, rtol=0, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_vector_of_a_record_is_the_models_own(family: str) -> None:
    """Gains and biases are copies: training goes on without a trace of it in the record."""
    lens = random_lens(family)
    trace = lens.trace(TEXTS[0], target=TEXTS[1] if family in PAIRS else None)
    before = trace.terms("norm").values
    with torch.no_grad():
        for parameter in lens.model.parameters():
            if parameter.ndim == 1:
                parameter.mul_(3)
    torch.testing.assert_close(trace.terms("norm").values, before, rtol=0, atol=0)
