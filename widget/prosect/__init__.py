"""prosect dissects Transformer language models: exact parts, linked views, certificates."""

from prosect import corpus, figures
from prosect._version import __version__
from prosect.analyses.attribution import Attribution
from prosect.analyses.comparison import Comparison
from prosect.analyses.effective import (
    Alternative,
    AttentionIdentifiability,
    EffectiveCorrelation,
    NullSpace,
)
from prosect.analyses.identity import Identity
from prosect.analyses.maps import TokenMap
from prosect.analyses.predictions import LogitContributions, Prediction
from prosect.analyses.terms import Neurons, Parts, Terms
from prosect.corpus import Identifiability, learn_identity
from prosect.doctor import Diagnosis, doctor
from prosect.errors import (
    ProsectError,
    ReconstructionError,
    StaleTraceError,
    TextLengthError,
    UnsupportedModelError,
)
from prosect.lens import Lens, load
from prosect.tokens import Token
from prosect.trace import Trace
from prosect.views import Explorer, Heatmap, Neighbors, TermBars, link

__all__ = [
    "Alternative",
    "AttentionIdentifiability",
    "Attribution",
    "Comparison",
    "Diagnosis",
    "EffectiveCorrelation",
    "Explorer",
    "Heatmap",
    "Identifiability",
    "Identity",
    "Lens",
    "LogitContributions",
    "Neighbors",
    "Neurons",
    "NullSpace",
    "Parts",
    "Prediction",
    "ProsectError",
    "ReconstructionError",
    "StaleTraceError",
    "TermBars",
    "Terms",
    "TextLengthError",
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
