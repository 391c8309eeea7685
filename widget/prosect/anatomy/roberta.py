"""RoBERTa (Liu et al. 2019), XLM-R, CamemBERT: BERT's layers, positions from padding + 1."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import gelu

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import (
    Anatomy,
    Dense,
    Head,
    Norm,
)


def anatomy(base: Any) -> Anatomy:
    """Describe RoBERTa and the models made like it."""
    family = {"xlm-roberta": "XLM-R", "camembert": "CamemBERT"}
    positions = base.config.max_position_embeddings - base.embeddings.padding_idx - 1
    name = family.get(base.config.model_type, "RoBERTa")
    return bert.encoder(base, family=name, positions=positions)


def head(model: Any) -> Head | None:
    """The head of a masked model, which computes GELU whatever the layers do."""
    own = getattr(model, "lm_head", None)
    if own is None:
        return None
    return Head(Dense(own.decoder), Dense(own.dense), gelu, Norm(own.layer_norm))
