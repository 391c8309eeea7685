"""Value zeroing, held against models whose value vectors are really set to zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import prosect
from prosect.engines import zeroing
from support.families import TEXTS, random_lens

REPRESENTATIVE = {
    "bert": "post-norm",
    "electra-small": "post-norm behind a projection",
    "distilbert": "post-norm of other names",
    "deberta-v2": "attention outside the registry",
    "opt-post-norm": "causal, post-norm",
    "gpt2": "pre-norm, fused projection",
    "gpt-neox-sequential": "pre-norm, interleaved projection",
    "modernbert": "pre-norm and gated, fused projections",
    "llama": "gated, shared values",
    "gptj": "parallel",
    "gpt-neox": "parallel, a norm each",
    "phi": "parallel, shared values",
    "gemma2": "sandwich",
    "olmo2": "norms of outputs",
    "t5": "RMSNorm without biases",
    "bart": "encoder of a pair",
}


def _block_outputs(trace: prosect.Trace, layer: int, silenced: int | None) -> Tensor:
    """What the block returns when its value projection returns zeros for one token."""
    block = trace.anatomy.blocks[layer]
    value, seen = block.attention.value, []

    def silence(_module: Any, _args: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        columns = slice(None) if value.columns is None else value.columns
        changed[0, silenced, columns] = 0
        return changed

    handles = [
        block.module.register_forward_hook(
            lambda _m, _a, out: seen.append(out[0] if isinstance(out, tuple) else out)
        )
    ]
    if silenced is not None:
        handles.append(value.module.register_forward_hook(silence))
    inputs = dict(trace.lens.tokenizer(TEXTS[0], return_tensors="pt"))
    if trace.anatomy.family == "DistilBERT":
        inputs.pop("token_type_ids")
    with torch.no_grad():
        trace.anatomy.base(**inputs)
    for handle in handles:
        handle.remove()
    return seen[0][0]


@pytest.mark.parametrize("family", REPRESENTATIVE)
def test_value_zeroing_is_what_happens_when_values_are_zeroed(family: str) -> None:
    trace = random_lens(family).trace(TEXTS[0])
    trace.lens.model.set_attn_implementation("eager")
    found = trace.map("value_zeroing")
    for layer in range(len(trace.anatomy.blocks)):
        whole = _block_outputs(trace, layer, None)
        for source in range(len(trace.tokens)):
            changed = _block_outputs(trace, layer, source)
            expected = 1 - torch.cosine_similarity(changed, whole, dim=-1)
            torch.testing.assert_close(
                found.values[layer, :, source], expected, rtol=1e-5, atol=1e-7
            )


@pytest.mark.parametrize("family", ["bert", "llama", "gptj"])
def test_blocks_of_sources_do_not_show(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lens = random_lens(family)
    expected = lens.trace(TEXTS[0]).map("value_zeroing").values
    monkeypatch.setattr(zeroing, "BLOCK", 1)
    found = lens.trace(TEXTS[0]).map("value_zeroing").values
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_small_turns_are_not_lost_in_float32() -> None:
    lens = random_lens("bert", torch.float32)
    narrow = lens.trace(TEXTS[0]).map("value_zeroing").values
    lens.model.double()
    wide = lens.trace(TEXTS[0]).map("value_zeroing").values
    assert wide.min() < 1e-5
    torch.testing.assert_close(narrow.double(), wide, rtol=5e-3, atol=1e-10)
