"""Many short sentences of our own, each of its own length and words."""

from __future__ import annotations

from itertools import islice, product

WHO = ("The ducks", "Seven old banks", "Nobody at the river", "A telegram", "Their mother")
DID = ("crossed", "understood", "raised", "walked along", "read", "saw")
WHAT = ("the road", "its rates on a rainy Thursday", "the unlit bank", "what was written", "us")


def sentences(count: int) -> list[str]:
    """So many of them, all different."""
    words = product(WHAT, DID, WHO, ("", " again", ", and swam"))
    return [f"{who} {did} {what}{end}." for what, did, who, end in islice(words, count)]
