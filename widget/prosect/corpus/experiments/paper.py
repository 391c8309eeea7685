"""The results of Mickus, Paperno and Constant (TACL 2022, arXiv 2206.03529), bert-base-uncased."""

from __future__ import annotations

import numpy as np

MODEL = "bert-base-uncased"
TERMS = ("input", "attention", "feed_forward", "bias")

IMPORTANCE = np.array(
    [
        [0.999, np.nan, np.nan, 0.001],
        [0.624, 0.068, 0.278, 0.031],
        [0.437, 0.111, 0.371, 0.081],
        [0.310, 0.147, 0.448, 0.095],
        [0.231, 0.178, 0.462, 0.129],
        [0.183, 0.208, 0.451, 0.157],
        [0.142, 0.242, 0.456, 0.159],
        [0.113, 0.267, 0.458, 0.162],
        [0.101, 0.277, 0.437, 0.184],
        [0.092, 0.271, 0.428, 0.208],
        [0.085, 0.270, 0.379, 0.266],
        [0.095, 0.216, 0.287, 0.402],
        [0.045, 0.292, 0.433, 0.231],
    ]
)
"""[layer+1, term], Fig. 1: mean μ over the tokens of 10,000 Europarl sentences (authors' files)."""

LINEAR_FF = np.array(
    [0.711, 0.587, 0.468, 0.447, 0.434, 0.396, 0.390, 0.440, 0.485, 0.568, 0.578, 0.613]
)
"""[layer], in-sample R² of a linear map fitted to the feed-forward, on the same sentences."""

SUBSETS = (
    *("i", "h", "f", "c", "i+h", "i+f", "i+c", "h+f", "h+c", "f+c"),
    *("i+h+f", "i+h+c", "i+f+c", "h+f+c", "i+h+f+c"),
)
"""The labels of the subsets of terms, in the order of the tables below."""

MLM = {"default": {"f": 1.36}, "learned": {"f": 53.77}}
"""Accuracy × 100 on masked tokens by head and subset, from third-party slides on the paper."""

WSD_CLASSIFIER = dict(
    zip(
        SUBSETS,
        (58.1, 66.7, 64.6, 57.3, 66.7, 64.3, 57.6, 66.0, 66.7, 64.5, 65.8, 66.7, 64.5, 65.9, 66.0),
        strict=True,
    )
)
"""Accuracy × 100 on SemCor, mean of 5 runs."""

NER = dict(
    zip(
        SUBSETS,
        (13.2, 32.9, 30.8, 5.1, 30.1, 30.4, 12.4, 32.8, 33.4, 28.3, 32.7, 33.3, 31.8, 29.2, 32.3),
        strict=True,
    )
)
"""Token macro-F1 × 100 on WNUT-16, mean of 5 runs."""

NER_TUNED = dict(
    zip(
        SUBSETS,
        (12.8, 39.3, 38.7, 10.0, 39.2, 38.4, 11.7, 37.7, 38.8, 38.6, 38.4, 39.1, 38.4, 37.4, 38.5),
        strict=True,
    )
)
"""The same for the model fine-tuned for NER."""
