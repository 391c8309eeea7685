"""The importance of the four terms by layer: the figure of Mickus et al. (2022) for one text."""

from __future__ import annotations

from typing import Any

import traitlets
from bqplot import Axis, Bars, LinearScale, OrdinalScale
from bqplot.figure import Figure

from prosect.colours import TERM_COLOURS
from prosect.trace import Trace


class ImportanceFigure(Figure):
    """Stacked bars of the terms' importance, one bar per layer; ``layer`` is the hovered one.

    ``layer`` counts from 0 as in every view, and −1 is the embeddings, the bar labelled 0. Hovering
    sets it and setting it highlights a bar, so ``prosect.link(figure, view)`` links both.
    """

    layer = traitlets.Int(-1)

    def __init__(self, trace: Trace, **options: Any) -> None:
        self._about = {"layers": len(trace.anatomy.blocks)}
        terms = trace.terms()
        mean = terms.importance().mean(-1).cpu().numpy()  # [term, layer+1]
        rows = [str(layer) for layer in range(mean.shape[1])]
        # two empty categories at the right, so that the legend covers no bar
        scales = {"x": OrdinalScale(domain=[*rows, " ", "  "]), "y": LinearScale()}
        self._bars = Bars(
            x=rows,
            y=mean,
            scales=scales,
            type="stacked",
            colors=[TERM_COLOURS[term] for term in terms.names],
            labels=[term.replace("_", "-") for term in terms.names],
            display_legend=True,
            padding=0.15,
            selected=[0],
            unselected_style={"opacity": 0.6},
        )
        axes = [
            Axis(scale=scales["x"], label="layer", grid_lines="none", label_offset="2.5em"),
            Axis(
                scale=scales["y"],
                orientation="vertical",
                label="importance, mean over tokens",
                tick_format=".1f",
                grid_lines="none",
            ),
        ]
        super().__init__(
            marks=[self._bars],
            axes=axes,
            title=f"Importance of the four terms by layer, {trace.lens.name}",
            legend_location="right",
            **options,
        )
        self._bars.on_hover(self._on_hover)

    def _on_hover(self, _: object, event: dict[str, Any]) -> None:
        self.layer = int(event["data"]["x"]) - 1

    @traitlets.validate("layer")
    def _check_layer(self, proposal: Any) -> int:
        end = len(self._bars.x) - 1
        if not -1 <= proposal.value < end:
            raise traitlets.TraitError(
                f"layer must be between -1 and {end - 1}, got {proposal.value}."
            )
        return proposal.value

    @traitlets.observe("layer")
    def _highlight(self, change: Any) -> None:
        self._bars.selected = [change.new + 1]


def importance(trace: Trace, **options: Any) -> ImportanceFigure:
    """Draw the mean importance of the four terms by layer (Mickus et al. 2022, Fig. 1).

    Parameters
    ----------
    trace
        The trace whose terms are drawn.
    **options
        Options of ``bqplot.Figure``, such as ``layout``.

    Raises
    ------
    ReconstructionError
        If the terms do not add up to the hidden states.
    """
    return ImportanceFigure(trace, **options)
