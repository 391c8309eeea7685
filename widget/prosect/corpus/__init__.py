"""The experiments of Mickus et al. (2022) over many texts, one call each.

Every experiment is a map over shards of the texts and a merge of what they leave: in this process,
in several, or on a cluster; with a checkpoint it goes on where it was stopped.
"""

from prosect.corpus import readers
from prosect.corpus.classifier import Training
from prosect.corpus.correlation import CorrelationResult, correlation
from prosect.corpus.importance import ImportanceResult, importance
from prosect.corpus.linear_ff import LinearFFResult, linear_ff
from prosect.corpus.masking import Masking
from prosect.corpus.mlm import MlmResult, mlm
from prosect.corpus.ner import NerResult, ner
from prosect.corpus.result import About, Result, load
from prosect.corpus.wsd import WsdResult, wsd

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
