"""Every experiment names an optional package that is missing, and how to install it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import prosect
from corpus.annotated import names, senses
from corpus.sentences import sentences
from prosect import corpus
from prosect.corpus import Result, Training
from support.families import random_lens

TEXTS = sentences(12)
QUICK: dict[str, Any] = {"seeds": 1, "training": Training(epochs=1), "progress": False}


def two_models() -> dict[str, prosect.Lens]:
    return {"one": random_lens("bert"), "other": random_lens("bert", seed=1)}


EXPERIMENTS: dict[str, Callable[[], Result]] = {
    "importance": lambda: corpus.importance(random_lens("bert"), TEXTS, progress=False),
    "linear_ff": lambda: corpus.linear_ff(random_lens("bert"), TEXTS, progress=False),
    "correlation": lambda: corpus.correlation(two_models(), TEXTS, progress=False),
    "mlm": lambda: corpus.mlm(random_lens("bert"), TEXTS, **QUICK),
    "wsd": lambda: corpus.wsd(random_lens("bert"), senses(), **QUICK),
    "ner": lambda: corpus.ner(random_lens("bert"), names(), **QUICK),
}
PANDAS = ("to_frame", "compare", "failures", "agreement", "plot_agreement", "_repr_html_")


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make imports fail as if the packages were not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.setitem(sys.modules, name, None)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.filterwarnings("ignore:bert. in-sample")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_result_names_the_package_that_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = EXPERIMENTS[name]()
    result.figure()
    hide(monkeypatch, "pandas", "matplotlib")
    with pytest.raises(
        prosect.ProsectError, match=r"^This function needs the package matplotlib: run pip install"
    ):
        result.figure()
    for method in PANDAS:
        if hasattr(result, method) and (name, method) != ("correlation", "compare"):
            with pytest.raises(
                prosect.ProsectError,
                match=r"^This function needs the package pandas: run pip install",
            ):
                getattr(result, method)()


@pytest.mark.parametrize(
    ("package", "modules"), [("sklearn", "sklearn.metrics"), ("seqeval", "seqeval.metrics")]
)
def test_entities_name_a_missing_scorer_before_the_model_runs(
    package: str, modules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = random_lens("bert")
    monkeypatch.setattr(prosect.Lens, "traces", None)
    monkeypatch.setitem(sys.modules, modules, None)
    with pytest.raises(
        prosect.ProsectError, match=f"^This function needs the package {package}: run pip install"
    ):
        corpus.ner(lens, names(), **QUICK)


def test_learned_maps_need_no_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pandas", "matplotlib", "sklearn", "seqeval")
    found = prosect.learn_identity(random_lens("bert"), TEXTS, "ridge")
    assert found.recovered.shape == (1, 4)
