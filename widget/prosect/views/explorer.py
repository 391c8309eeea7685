"""Explorer: all heads, the open map, terms and neighbours in one widget with one selection."""

from prosect.views import payload
from prosect.views.neighbors import Identifying
from prosect.views.registry import PANES


class Explorer(Identifying):
    """The linked views of a trace, from an overview of all heads to single tokens.

    In addition to the traits of every view it has ``candidates``, "sentence" or "vocabulary", and
    ``metric``, "cosine" or "l2".
    """

    name = "explorer"
    shows = (
        payload.thumbnails,
        *dict.fromkeys(table for pane in PANES for table in pane.shows),
    )
