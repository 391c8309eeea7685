"""The colours of the terms, the same in every widget and figure.

They can be told apart by colour-blind readers. ``colours.json`` is the only place that holds them:
the build of the front end writes its style sheet from it, for light and for dark themes.
"""

import json
from importlib.resources import files

TERM_COLOURS: dict[str, str] = {
    term: shades["light"]
    for term, shades in json.loads(
        files("prosect").joinpath("colours.json").read_text(encoding="utf-8")
    ).items()
}
"""By the name of the term, for light backgrounds: figures have no dark theme."""
