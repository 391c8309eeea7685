"""The tap: see every attention computation of a run without touching the model's code.

transformers routes attention through a registry of functions. Ours computes plain softmax attention
(the model's own ``eager`` arithmetic) and keeps what it saw; the model is switched to it for the
duration of a run and switched back after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from prosect.errors import UnsupportedModelError

NAME = "prosect"


@dataclass(frozen=True)
class Weighed:
    """One computation of attention: its weights α, and the mask that it was given, to add to scores."""

    alpha: Float[Tensor, "batch head target source"]
    mask: Float[Tensor, "batch #head target source"] | None


Weights = dict[nn.Module, list[Weighed]]
"""What each attention module computed, in the order of its calls."""

_WITHOUT_EFFECT = {"position_ids", "token_type_ids", "cache_position"}
"""What models hand to every attention function and the plain one does not need."""

_seen: ContextVar[Weights | None] = ContextVar("prosect_attention", default=None)


def _attend(
    module: nn.Module,
    query: Float[Tensor, "batch head target d_head"],
    key: Float[Tensor, "batch kv_head source d_head"],
    value: Float[Tensor, "batch kv_head source d_head"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others: object,
) -> tuple[Tensor, Tensor]:
    """Softmax attention as ``eager`` computes it; heads may share keys and values.

    ``position_bias`` is T5's: its relative positions, added to the scores. A tensor of another name
    would change the result in a way that is not known here, and is refused.
    """
    _check_known(module, others)
    group = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(group, dim=1) if group > 1 else key
    values = value.repeat_interleave(group, dim=1) if group > 1 else value
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ keys.transpose(2, 3) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    precise = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=precise)
    seen = _seen.get()
    if seen is not None:
        seen.setdefault(module, []).append(Weighed(weights, attention_mask))
    weights = nn.functional.dropout(weights.to(value.dtype), p=dropout, training=module.training)
    return (weights @ values).transpose(1, 2).contiguous(), weights


def _check_known(module: nn.Module, others: Mapping[str, object]) -> None:
    for name, value in others.items():
        if isinstance(value, Tensor) and name not in _WITHOUT_EFFECT:
            raise UnsupportedModelError(
                f"The attention of {type(module).__name__} takes {name!r}, which prosect does not "
                "know: what it computes could not be trusted."
            )


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, eager_mask)


@contextmanager
def tapped(model: nn.Module) -> Iterator[Weights]:
    """Route the model's attention through the tap; yields what each attention module computed."""
    seen: Weights = {}
    token = _seen.set(seen)
    try:
        with attending(model, NAME):
            yield seen
    finally:
        _seen.reset(token)


@contextmanager
def attending(model: nn.Module, implementation: str) -> Iterator[None]:
    """Let the model use an implementation of attention for the duration; it gets its own back."""
    configs = {
        id(module.config): module.config
        for module in model.modules()
        if isinstance(module, PreTrainedModel)
    }.values()
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = implementation
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own
