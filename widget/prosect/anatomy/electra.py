"""ELECTRA (Clark et al. 2020): BERT's layers; small ones project the embeddings first."""

from __future__ import annotations

from typing import Any

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import (
    Anatomy,
    Dense,
    Head,
    Norm,
)


def anatomy(base: Any) -> Anatomy:
    """Describe ELECTRA."""
    return bert.encoder(
        base,
        family="ELECTRA",
        positions=base.config.max_position_embeddings,
        projection=getattr(base, "embeddings_project", None),
    )


def head(model: Any) -> Head | None:
    """The head of the generator, which is the masked model."""
    if not hasattr(model, "generator_predictions"):
        return None
    own = model.generator_predictions
    return Head(
        Dense(model.generator_lm_head), Dense(own.dense), own.activation, Norm(own.LayerNorm)
    )
