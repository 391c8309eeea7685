"""Explorer: all heads, the open map, terms and neighbours in one widget with one selection."""

from prosect.views import payload
from prosect.views.neighbors import Identifying
from prosect.views.registry import PANES


class Explorer(Identifying):
    """The linked views of a trace, from the whole to the one token.

    Beside the places of every view it has those of the neighbours: ``candidates``, "sentence" or
    "vocabulary", and ``metric``, "cosine" or "l2".
    """

    name = "explorer"
    shows = (
        payload.thumbnails,
        *dict.fromkeys(table for pane in PANES for table in pane.shows),
    )
