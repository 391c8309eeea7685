"""The experiments of Mickus et al. (2022) over many texts, one call each.

Every experiment is a map over shards of the texts and a merge of what they leave: in this process,
in several, or on a cluster; with a checkpoint it goes on where it was stopped.
"""

from prosect.corpus.data import readers
from prosect.corpus.data.masking import Masking
from prosect.corpus.experiments.correlation import CorrelationResult, correlation
from prosect.corpus.experiments.importance import ImportanceResult, importance
from prosect.corpus.experiments.linear_ff import LinearFFResult, linear_ff
from prosect.corpus.experiments.mlm import MlmResult, mlm
from prosect.corpus.experiments.ner import NerResult, ner
from prosect.corpus.experiments.result import About, Result, load
from prosect.corpus.experiments.wsd import WsdResult, wsd
from prosect.corpus.statistics.classifier import Training

__all__ = [
    "About",
    "CorrelationResult",
    "ImportanceResult",
    "LinearFFResult",
    "Masking",
    "MlmResult",
    "NerResult",
    "Result",
    "Training",
    "WsdResult",
    "correlation",
    "importance",
    "linear_ff",
    "load",
    "mlm",
    "ner",
    "readers",
    "wsd",
]
