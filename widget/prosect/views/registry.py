"""The views of one pane each: the Explorer carries the arrays of all of them."""

from prosect.views.heatmap import Heatmap
from prosect.views.neighbors import Neighbors
from prosect.views.term_bars import TermBars
from prosect.views.view import View

PANES: tuple[type[View], ...] = (Heatmap, TermBars, Neighbors)
