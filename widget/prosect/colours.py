"""The colours of the terms, the same in every widget and figure.

Colour-blind readers can distinguish them. They are defined only in ``colours.json``, from which the
build of the front end writes its style sheet for the light and the dark theme.
"""

import json
from importlib.resources import files

TERM_COLOURS: dict[str, str] = {
    term: shades["light"]
    for term, shades in json.loads(
        files("prosect").joinpath("colours.json").read_text(encoding="utf-8")
    ).items()
}
"""The colour of each term on a light background; figures have no dark theme."""
