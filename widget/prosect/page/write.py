"""Write a page that works from disk, offline, for as long as browsers read HTML."""

from __future__ import annotations

import gzip
import html
import json
import os
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prosect import frontend

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<div id="prosect"></div>
<script type="application/json" id="prosect-state">{state}</script>
<script>
{shim}
</script>
</body>
</html>
"""


def write(
    path: str | os.PathLike[str],
    *,
    title: str,
    state: Mapping[str, Any],
    data: bytes,
    remote: Mapping[str, tuple[Any, bytes]],
) -> None:
    """Write one HTML file with a view in it.

    Parameters
    ----------
    path
        Where to; folders on the way are made, and ~ is the home folder.
    title
        The page's title.
    state
        The view's traits that are plain JSON.
    data
        The arrays that the view holds.
    remote
        By name, the arrays that the view would ask a kernel for: how they are encoded, and bytes.
    """
    content = {
        "module": frontend.source("widget.js"),
        "state": dict(state),
        "buffers": {"_data": _packed(data)},
        "remote": {
            name: {**spec, "data": _packed(bytes_)} for name, (spec, bytes_) in remote.items()
        },
    }
    page = _TEMPLATE.format(
        title=html.escape(title),
        style=frontend.source("widget.css"),
        # inside a script element only "<" could end it or open a comment
        state=json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"),
        shim=frontend.source("page.js"),
    )
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")


def _packed(data: bytes) -> str:
    return b64encode(gzip.compress(data, mtime=0)).decode("ascii")
