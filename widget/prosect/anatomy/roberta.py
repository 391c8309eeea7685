"""RoBERTa (Liu et al. 2019): BERT's layers; positions are counted from the padding index + 1."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import Anatomy


def anatomy(base: Any) -> Anatomy:
    """Describe RoBERTa."""
    positions = base.config.max_position_embeddings - base.embeddings.padding_idx - 1
    return bert.encoder(base, family="RoBERTa", positions=positions)
