"""Neighbors: which input embeddings a token's hidden states are nearest to, layer by layer."""

from prosect.views import sources
from prosect.views.view import View


class Neighbors(View):
    """The nearest input embeddings of the pinned token; without one, which tokens are recovered."""

    name = "neighbors"
    shows = (sources.neighbors,)
