"""TermBars: how much of a token's embedding each of the four terms makes up, layer by layer."""

from prosect.views import payload
from prosect.views.view import View


class TermBars(View):
    """The four terms' importance by layer, signed and stacked; without a pinned token, the mean."""

    name = "term_bars"
    shows = (payload.importance,)
