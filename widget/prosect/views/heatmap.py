"""Heatmap: one token-to-token map, targets down and sources across."""

from prosect.views import payload
from prosect.views.view import View


class Heatmap(View):
    """The map of one layer and head, with the values and their ranks under the pointer."""

    name = "heatmap"
    shows = (payload.token_maps, payload.identifiability)
