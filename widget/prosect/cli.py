"""The command line: dissect a text and write the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from prosect._version import __version__
from prosect.errors import ProsectError
from prosect.lens import load
from prosect.validation import check_known


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``prosect TEXT -o PAGE``; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="prosect",
        description="Dissect a text with a Transformer and write a self-contained page.",
    )
    parser.add_argument("text", help="the text to dissect")
    parser.add_argument(
        "-o", "--output", default="prosect.html", help="the page to write (%(default)s)"
    )
    parser.add_argument("--model", help="a model id or folder; the demo model by default")
    parser.add_argument(
        "--kind", default="attention", help="the map to open with, such as ATBFF (%(default)s)"
    )
    parser.add_argument("--version", action="version", version=f"prosect {__version__}")
    options = parser.parse_args(arguments)

    try:
        trace = load(options.model).trace(options.text)
        terms = trace.terms()
        check_known(options.kind, list(trace.kinds), "kind")
        trace.explore(kind=options.kind).to_html(options.output)
    except (ProsectError, OSError) as error:
        print(f"prosect: {error}", file=sys.stderr)
        return 1
    print(f"{trace.lens.name}: {len(trace.tokens)} tokens, {len(trace.attention)} layers")
    print(f"The four terms sum to every hidden state within {terms.error:.1e} (relative).")
    print(f"The map that is open: {trace.kinds[options.kind]}")
    print(f"Wrote {options.output}: open it in any browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
