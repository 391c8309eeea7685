"""ELECTRA (Clark et al. 2020): BERT's layers; small sizes project the embeddings after their norm."""

from __future__ import annotations

from torch import nn

from prosect.anatomy import bert
from prosect.anatomy.vocabulary import Anatomy


def anatomy(base: nn.Module) -> Anatomy:
    return bert.encoder(
        base,
        family="ELECTRA",
        positions=base.config.max_position_embeddings,
        projection=getattr(base, "embeddings_project", None),
    )
