"""Finished shards on disk, so that an interrupted run can be resumed.

There is one file per shard, named after everything that its content depends on. A file appears
under its name only when it is complete.
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

_SHARD_KEY = "shard"
"""The key in a file that holds the name of its shard."""


class Checkpoint:
    """A folder with the finished shards of one run; runs with different keys do not share shards.

    Parameters
    ----------
    folder
        The parent folder; it is created if needed.
    name
        The name of the experiment, which makes the folder readable.
    key
        A digest of everything else that the result depends on.

    Raises
    ------
    ProsectError
        If the folder cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str, key: str) -> None:
        self._folder = Path(folder).expanduser() / f"{name}-{key}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProsectError(f"Cannot write finished shards to {folder}: {error}.") from error

    def read(self, shard: str) -> Arrays | None:
        """Return the arrays of a finished shard; None if its file is missing, damaged or another's."""
        try:
            with np.load(self._file(shard), allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            return None
        return arrays if str(arrays.pop(_SHARD_KEY, "")) == shard else None

    def write(self, shard: str, arrays: Arrays) -> None:
        """Write a finished shard atomically: the file is complete or absent.

        Raises
        ------
        ProsectError
            If the folder cannot be written to.
        """
        try:
            self._write(shard, {**arrays, _SHARD_KEY: np.array(shard)})
        except OSError as error:
            raise ProsectError(
                f"Cannot write finished shards to {self._folder}: {error}."
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
    """A short hexadecimal digest of a value made of plain data, dataclasses and arrays."""
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
    raise TypeError(f"Cannot digest a {type(value).__name__}: use plain data or arrays.")
