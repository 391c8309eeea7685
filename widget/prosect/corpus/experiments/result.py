"""What the experiments give: small objects that say where they come from."""

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
from prosect.errors import ProsectError

if TYPE_CHECKING:
    import pandas as pd
    from bqplot.figure import Figure as BqplotFigure
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class About:
    """Where a result comes from.

    Attributes
    ----------
    models
        The fingerprint of each model by its name.
    texts
        How many texts were analysed.
    skipped
        How many did not fit a model: without a token of their own, or too long.
    tokens
        How many tokens, or words, or instances the figures are of, by what they are.
    settings
        What was asked for.
    seeds
        Of all random choices.
    versions
        Of the packages that computed it.
    seconds
        How long it took, without what a checkpoint had already.
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
    ) -> About:
        """Of the runs of some models over the same texts."""
        runs = list(outcomes.values())
        return cls(
            models={name: run.fingerprint for name, run in outcomes.items()},
            texts=min(run.items for run in runs),
            skipped=max(run.skipped for run in runs),
            tokens=dict(tokens),
            settings=dict(settings),
            seconds=sum(run.seconds for run in runs),
            seeds=seeds,
        )

    def __str__(self) -> str:
        counts = ", ".join(f"{number:,} {what}" for what, number in self.tokens.items())
        skipped = f" ({self.skipped:,} skipped)" if self.skipped else ""
        return f"{', '.join(self.models)}: {self.texts:,} texts{skipped}, {counts}"


@dataclass(frozen=True, eq=False, repr=False)
class Result(ABC):
    """The outcome of an experiment: a dataclass of numbers, arrays and plain data.

    Attributes
    ----------
    about
        Where it comes from.
    """

    about: About

    _kinds: ClassVar[dict[str, type[Result]]] = {}

    def __init_subclass__(cls) -> None:
        Result._kinds[cls.__name__] = cls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.about})"

    def _repr_html_(self) -> str:
        return self.to_frame()._repr_html_()  # type: ignore[operator]

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The figures as a table."""

    @abstractmethod
    def plot(self) -> BqplotFigure:
        """A figure for notebooks (bqplot)."""

    @abstractmethod
    def figure(self) -> Figure:
        """A figure for papers (matplotlib)."""

    def compare(self) -> pd.DataFrame:
        """The figures beside those that the paper reports.

        Raises
        ------
        ProsectError
            If the paper reports none.
        """
        raise ProsectError(f"The paper reports no figures to hold {type(self).__name__} against.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as one JSON file, which :func:`load` reads; its folder is made if need be."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content = {"result": type(self).__name__, **{k: _written(v) for k, v in fields.items()}}
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that was saved.

    Raises
    ------
    ProsectError
        If the file is not there, or is not a saved result.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        kind = Result._kinds[content.pop("result")]
        return kind(**{name: _read(value) for name, value in content.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProsectError(f"{path} is not a result saved by prosect: {error!r}.") from error


def by_model(what: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by what they are of; of each model where models differ."""
    if len(set(counts.values())) == 1:
        return {what: next(iter(counts.values()))}
    return {f"{what} of {model}": count for model, count in counts.items()}


_ABOUT, _ARRAY = "prosect.About", "prosect.array"
"""What stands for them in a file; models may be named anything else."""


def _written(value: Any) -> Any:
    """Plain data for a value; a NaN, which JSON does not know, becomes null."""
    if isinstance(value, About):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {_ABOUT: _written(fields)}
    if isinstance(value, np.ndarray):
        flat = value.ravel().tolist()
        return {
            _ARRAY: [None if x != x else x for x in flat],
            "dtype": value.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if isinstance(value, np.generic):
        return _written(value.item())
    return None if isinstance(value, float) and value != value else value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY, "dtype", "shape"}:
            array = [float("nan") if x is None else x for x in value[_ARRAY]]
            return np.array(array, dtype=value["dtype"]).reshape(value["shape"])
        if value.keys() == {_ABOUT}:
            about = _read(value[_ABOUT])
            return About(**{**about, "seeds": tuple(about["seeds"])})
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value
