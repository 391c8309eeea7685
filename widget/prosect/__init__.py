"""prosect dissects Transformer language models: exact parts, linked views, certificates."""

from prosect import corpus, figures
from prosect._version import __version__
from prosect.doctor import Diagnosis, doctor
from prosect.errors import ProsectError, ReconstructionError, UnsupportedModelError
from prosect.learned import Identifiability, learn_identity
from prosect.lens import Lens, load
from prosect.maps import Comparison, TokenMap
from prosect.results import Identity, Neurons, Parts, Prediction, Terms
from prosect.tokens import Token
from prosect.trace import Trace
from prosect.views import Explorer, Heatmap, Neighbors, TermBars, link

__all__ = [
    "Comparison",
    "Diagnosis",
    "Explorer",
    "Heatmap",
    "Identifiability",
    "Identity",
    "Lens",
    "Neighbors",
    "Neurons",
    "Parts",
    "Prediction",
    "ProsectError",
    "ReconstructionError",
    "TermBars",
    "Terms",
    "Token",
    "TokenMap",
    "Trace",
    "UnsupportedModelError",
    "__version__",
    "corpus",
    "doctor",
    "figures",
    "learn_identity",
    "link",
    "load",
]
