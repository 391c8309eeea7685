"""Results of experiments: figures, tables, storage, and a record of their origin."""

from __future__ import annotations

import dataclasses
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prosect.corpus.running.runner import VERSIONS, Outcome
from prosect.corpus.running.timing import Stopwatch
from prosect.errors import ProsectError

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class About:
    """The origin of a result.

    Attributes
    ----------
    models
        The fingerprint of each model, by name.
    texts
        The number of texts that were analysed.
    skipped
        The number of texts that do not fit a model: they have no token or too many.
    tokens
        The numbers of tokens, words or instances, by description.
    settings
        The settings of the experiment.
    seeds
        The seeds of all random choices.
    versions
        The versions of the packages that computed the result.
    seconds
        The computing time, without shards that were read from a checkpoint.
    """

    models: Mapping[str, str]
    texts: int
    skipped: int
    tokens: Mapping[str, int]
    settings: Mapping[str, Any]
    seconds: float
    seeds: tuple[int, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: dict(VERSIONS))

    @classmethod
    def of(
        cls,
        outcomes: Mapping[str, Outcome],
        tokens: Mapping[str, int],
        settings: Mapping[str, Any],
        seeds: tuple[int, ...] = (),
        *,
        after_runs: Stopwatch | None = None,
    ) -> About:
        """Summarise the runs of several models over the same texts.

        ``after_runs`` measures the computation that followed the runs, such as training.
        """
        runs = list(outcomes.values())
        seconds = sum(run.seconds for run in runs)
        return cls(
            models={name: run.fingerprint for name, run in outcomes.items()},
            texts=min(run.items for run in runs),
            skipped=max(run.skipped for run in runs),
            tokens=dict(tokens),
            settings=dict(settings),
            seconds=seconds + (after_runs.seconds if after_runs else 0.0),
            seeds=seeds,
        )

    def __str__(self) -> str:
        counts = ", ".join(f"{number:,} {unit}" for unit, number in self.tokens.items())
        skipped = f" ({self.skipped:,} skipped)" if self.skipped else ""
        return f"{', '.join(self.models)}: {self.texts:,} texts{skipped}, {counts}"


@dataclass(frozen=True, eq=False, repr=False)
class Result(ABC):
    """The result of an experiment: a dataclass of numbers, arrays and plain data.

    Attributes
    ----------
    about
        The origin of the result.
    """

    about: About

    _classes: ClassVar[dict[str, type[Result]]] = {}

    def __init_subclass__(cls) -> None:
        Result._classes[cls.__name__] = cls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.about})"

    def _repr_html_(self) -> str:
        return self.to_frame()._repr_html_()  # type: ignore[operator]

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the result as a table."""

    @abstractmethod
    def plot(self) -> BqplotFigure:
        """Draw a figure for notebooks (bqplot)."""

    @abstractmethod
    def figure(self) -> Figure:
        """Draw a figure for papers (matplotlib)."""

    def compare(self) -> pd.DataFrame:
        """Return the result beside the numbers that the paper reports.

        Raises
        ------
        ProsectError
            If the paper reports none.
        """
        raise ProsectError(f"The paper reports no numbers to compare {type(self).__name__} with.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a JSON file for :func:`load`; its folder is created if needed."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content = {"result": type(self).__name__, **{k: _to_json(v) for k, v in fields.items()}}
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result from a file written by :meth:`Result.save`.

    Raises
    ------
    ProsectError
        If the file does not exist or does not hold a result.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        result_class = Result._classes[content.pop("result")]
        return result_class(**{name: _from_json(value) for name, value in content.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProsectError(f"{path} is not a file written by Result.save: {error!r}.") from error


def counts_by_unit(unit: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return one count if it is equal for all models, else one count per model."""
    if len(set(counts.values())) == 1:
        return {unit: next(iter(counts.values()))}
    return {f"{unit} of {model}": count for model, count in counts.items()}


_ABOUT_KEY, _ARRAY_KEY = "prosect.About", "prosect.array"
"""Keys that mark an About and an array in a file; no model may have these names."""


def _to_json(value: Any) -> Any:
    """Convert a value to JSON data; NaN, which JSON lacks, becomes null."""
    if isinstance(value, About):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {_ABOUT_KEY: _to_json(fields)}
    if isinstance(value, np.ndarray):
        flat = value.ravel().tolist()
        return {
            _ARRAY_KEY: [None if x != x else x for x in flat],
            "dtype": value.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, np.generic):
        return _to_json(value.item())
    return None if isinstance(value, float) and value != value else value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY_KEY, "dtype", "shape"}:
            array = [float("nan") if x is None else x for x in value[_ARRAY_KEY]]
            return np.array(array, dtype=value["dtype"]).reshape(value["shape"])
        if value.keys() == {_ABOUT_KEY}:
            about = _from_json(value[_ABOUT_KEY])
            return About(**{**about, "seeds": tuple(about["seeds"])})
        return {key: _from_json(item) for key, item in value.items()}
    return [_from_json(item) for item in value] if isinstance(value, list) else value
