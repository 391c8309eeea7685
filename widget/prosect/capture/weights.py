"""From the modules that an anatomy names to the weights that records hold."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from prosect.anatomy.vocabulary import Dense, Head, Norm, Scores
from prosect.engines.records import Affine, HeadRecord, NormRule, ScoresRecord, Weight

Names = Mapping[int, str]
"""The model's names of its parameters, by the identity of the parameter."""


def names_of(model: nn.Module) -> Names:
    """What the model calls its parameters."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def lift(tensor: Tensor) -> Tensor:
    """The tensor without its gradient, in at least float32: half precision loses no more."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


def owned(vector: Tensor | None, device: torch.device) -> Tensor | None:
    """A copy of a gain or bias, lifted: what the model does with its own later does not show."""
    return None if vector is None else lift(vector).to(device, copy=True)


def affine_of(dense: Dense, names: Names, device: torch.device) -> Affine:
    """A linear layer: its matrix where it is, its bias as a copy."""
    return Affine(weight_of(dense, names), owned(dense.bias, device))


def weight_of(dense: Dense, names: Names) -> Weight:
    """The matrix of a linear layer, read when it is needed."""
    stored = dense.stored
    name = next((names[id(t)] for t in stored.tensors if id(t) in names), stored.name)
    return Weight(name, stored.tensors, stored.make)


def norm_rule_of(norm: Norm, device: torch.device) -> NormRule:
    """A norm without what it found in a run."""
    gain, bias = owned(norm.gain, device), owned(norm.bias, device)
    return NormRule(norm.kind == "layer", gain, bias, norm.epsilon)


def scores_of(
    scores: Scores, tables: tuple[Tensor, Tensor] | None, names: Names, device: torch.device
) -> ScoresRecord:
    """The rule of attention scores."""

    def rule(norm: Norm | None) -> NormRule | None:
        return None if norm is None else norm_rule_of(norm, device)

    return ScoresRecord(
        query=affine_of(scores.query, names, device),
        key=affine_of(scores.key, names, device),
        scale=scores.scale,
        query_norm=rule(scores.query_norm),
        key_norm=rule(scores.key_norm),
        turn=scores.turn,
        tables=tables,
        softcap=scores.softcap,
    )


def head_record_of(head: Head, model: nn.Module, device: torch.device) -> HeadRecord:
    """An output head."""
    names = names_of(model)

    def affine(dense: Dense | None) -> Affine | None:
        return None if dense is None else affine_of(dense, names, device)

    return HeadRecord(
        decoder=affine_of(head.decoder, names, device),
        dense=affine(head.dense),
        activation=head.activation,
        norm=None if head.norm is None else norm_rule_of(head.norm, device),
        outlet=affine(head.outlet),
        scale=head.scale,
        bias=owned(head.bias, device),
    )
