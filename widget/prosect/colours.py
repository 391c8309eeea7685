"""The colours of the terms, the same in every widget and figure.

Chosen to be told apart by colour-blind readers; the front end has the same in its style sheet, with
lighter ones for dark themes.
"""

TERM_COLOURS = {
    "input": "#4e79a7",
    "attention": "#e08214",
    "feed_forward": "#2a9d74",
    "bias": "#9aa0a6",
    "source": "#8f5fb0",
}
