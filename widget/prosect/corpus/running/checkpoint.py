"""Finished shards on disk, so that a run that was stopped goes on where it was.

A file a shard, named after everything that its content depends on, and in place only when it is
whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prosect.corpus.statistics.moments import Arrays
from prosect.errors import ProsectError

_NAME = "shard"
"""Under which a file says whose arrays it has."""


class Checkpoint:
    """A folder with the finished shards of runs; of many runs without mixing them up.

    Parameters
    ----------
    folder
        Made if it is not there.
    name
        Of the experiment, for the reader of the folder.
    key
        Everything else that the result depends on, digested.

    Raises
    ------
    ProsectError
        If the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str, key: str) -> None:
        self._folder = Path(folder).expanduser() / f"{name}-{key}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProsectError(f"Cannot keep finished shards in {folder}: {error}.") from error

    def read(self, shard: str) -> Arrays | None:
        """The arrays of a finished shard; None where it is not there, not whole, or another's."""
        try:
            with np.load(self._file(shard), allow_pickle=False) as found:
                arrays = dict(found)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            return None
        return arrays if str(arrays.pop(_NAME, "")) == shard else None

    def write(self, shard: str, arrays: Arrays) -> None:
        """Keep a finished shard: the file is there whole, or not at all.

        Raises
        ------
        ProsectError
            If the folder cannot be written to.
        """
        try:
            self._write(shard, {**arrays, _NAME: np.array(shard)})
        except OSError as error:
            raise ProsectError(
                f"Cannot keep finished shards in {self._folder}: {error}."
            ) from error

    def _write(self, shard: str, arrays: Arrays) -> None:
        with tempfile.NamedTemporaryFile(
            dir=self._folder, prefix=".", suffix=".part", delete=False
        ) as file:
            try:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                file.close()
                os.unlink(file.name)
                raise
        os.replace(file.name, self._file(shard))

    def _file(self, shard: str) -> Path:
        return self._folder / f"{shard}.npz"


def digest(value: Any) -> str:
    """A short name for a value made of plain data, dataclasses and arrays."""
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, **_plain(fields)}
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value).tobytes()
        return [str(value.dtype), value.shape, hashlib.blake2b(content).hexdigest()]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"A shard cannot be named after a {type(value).__name__}.")
