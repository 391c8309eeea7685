"""The views: one anywidget class each, mirrored by one file each in the front end."""

from prosect.views.explorer import Explorer
from prosect.views.heatmap import Heatmap
from prosect.views.link import link
from prosect.views.neighbors import Neighbors
from prosect.views.term_bars import TermBars

__all__ = ["Explorer", "Heatmap", "Neighbors", "TermBars", "link"]
