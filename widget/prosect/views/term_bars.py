"""TermBars: how much of a token's embedding each of the four terms makes up, layer by layer."""

from prosect.views import sources
from prosect.views.view import View


class TermBars(View):
    """The importance of the four terms by layer, signed and stacked; the mean where no token is pinned."""

    name = "term_bars"
    shows = (sources.importance,)
