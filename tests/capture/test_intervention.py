"""One value vector of each layer at zero in the model itself, beside what the engine predicts."""

from __future__ import annotations

import pytest
import torch

from prosect.capture.intervention import silenced_in_model
from prosect.engines import zeroing
from support.families import STACKS, TEXTS, random_lens, sample


@pytest.mark.parametrize(
    "stack", ["bert", "gpt2", "gpt-neox", "llama", "albert-groups", "t5-decoder"]
)
def test_every_value_vector_of_a_layer_can_be_silenced(stack: str) -> None:
    trace = sample(stack)
    layers = trace.run.stream.layers
    kv_heads = layers[0].attention.kv_heads
    for source in (0, 3, len(trace.tokens) - 1):
        for head in range(kv_heads):
            found = silenced_in_model(trace.anatomy, trace.run, [(source, head)] * len(layers))
            for layer, output in zip(layers, found, strict=True):
                expected = zeroing.silenced(layer, source, head)
                torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stack", STACKS)
def test_layers_are_tested_each_by_itself(stack: str) -> None:
    """What is silenced in one layer does not reach the next."""
    trace = sample(stack)
    count = len(trace.anatomy.blocks)
    found = silenced_in_model(trace.anatomy, trace.run, [(1, 0)] * count)
    other = silenced_in_model(trace.anatomy, trace.run, [(2, 1)] * (count - 1) + [(1, 0)])
    torch.testing.assert_close(found[-1], other[-1], rtol=0, atol=0)
    assert (found[:-1] != other[:-1]).flatten(1).any(1).all()


def test_queries_and_keys_of_a_fused_projection_stay() -> None:
    """Or the attention weights would move."""
    trace = sample("gpt2")
    module = trace.anatomy.blocks[0].attention.value.module
    seen: list[torch.Tensor] = []
    handle = module.register_forward_hook(lambda _m, _a, output: seen.append(output))
    places = [(2, 1)] * len(trace.anatomy.blocks)
    silenced_in_model(trace.anatomy, trace.run, places)
    handle.remove()
    d = trace.hidden.shape[-1]
    attention = trace.run.stream.layers[0].attention
    key, value = seen[0][0, :, d : 2 * d], seen[0][0, :, 2 * d :]
    assert (key != 0).all()
    expected = attention.value.transpose(0, 1).flatten(1)
    torch.testing.assert_close(value, expected)


def test_strongest_is_what_most_is_taken_from() -> None:
    layer = random_lens("llama").trace(TEXTS[0]).run.stream.layers[1]
    attention = layer.attention
    best, largest = (0, 0), 0.0
    group = attention.heads // attention.kv_heads
    output = attention.output_map.weight(attention.value).unflatten(0, (attention.heads, -1))
    for source in range(len(layer.x)):
        for kv_head in range(attention.kv_heads):
            taken = sum(
                float(attention.alpha[head, :, source].sum())
                * float((attention.value[kv_head, source] @ output[head]).norm())
                for head in range(kv_head * group, (kv_head + 1) * group)
            )
            if taken > largest:
                best, largest = (source, kv_head), taken
    assert zeroing.strongest(layer) == best


@pytest.mark.parametrize("stack", STACKS)
def test_the_strongest_value_is_missed(stack: str) -> None:
    """Or a certificate that leaves it out would prove little."""
    for layer in sample(stack).run.stream.layers:
        whole = zeroing.output_of(layer.attention.output, layer)
        missed = zeroing.silenced(layer, *zeroing.strongest(layer)) - whole
        assert float((missed.norm(dim=-1) / whole.norm(dim=-1)).max()) > 1e-2
