"""The experiments of Mickus et al. (2022) and Brunner et al. (2020) over many texts.

Every experiment of Mickus et al. maps over shards of the texts and merges their results: in this
process, in several, or on a cluster. A checkpoint makes an interrupted run resumable.
"""

from prosect.corpus.data import readers
from prosect.corpus.data.masking import Masking
from prosect.corpus.experiments.correlation import CorrelationResult, correlation
from prosect.corpus.experiments.identifiability import Identifiability, learn_identity
from prosect.corpus.experiments.importance import ImportanceResult, importance
from prosect.corpus.experiments.linear_ff import LinearFFResult, linear_ff
from prosect.corpus.experiments.mlm import MlmResult, mlm
from prosect.corpus.experiments.ner import NerResult, ner
from prosect.corpus.experiments.result import About, Result, load
from prosect.corpus.experiments.wsd import WsdResult, wsd
from prosect.corpus.running.runner import Options
from prosect.corpus.statistics.classifier import Training

__all__ = [
    "About",
    "CorrelationResult",
    "Identifiability",
    "ImportanceResult",
    "LinearFFResult",
    "Masking",
    "MlmResult",
    "NerResult",
    "Options",
    "Result",
    "Training",
    "WsdResult",
    "correlation",
    "importance",
    "learn_identity",
    "linear_ff",
    "load",
    "mlm",
    "ner",
    "readers",
    "wsd",
]
