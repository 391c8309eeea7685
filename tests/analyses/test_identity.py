"""What the nearest embeddings of a hidden state are called."""

from __future__ import annotations

from prosect.tokens import vocabulary_labels
from support.families import (
    random_lens,
)


def test_neighbours_have_labels() -> None:
    trace = random_lens("bert").trace("the river, the bank")
    near = trace.identify(3)
    assert [len(near.labels), len(near.labels[0]), len(near.labels[0][0])] == [*near.ids.shape]
    for layer, token, place in ((0, 0, 0), (3, 2, 1)):
        position = int(near.ids[layer, token, place])
        expected = f"{trace.tokens[position].label} ({position})"
        assert near.labels[layer][token][place] == expected
    near = trace.identify(3, candidates="vocabulary")
    expected = vocabulary_labels(near.ids[1, 2].tolist(), trace.lens.tokenizer)
    assert near.labels[1][2] == expected
