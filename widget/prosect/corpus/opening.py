"""How every process that takes part comes by the model: once, and the same one."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import torch

from prosect.errors import ProsectError
from prosect.lens import Lens, load

Models = Lens | str | Mapping[str, Lens | str] | Sequence[Lens | str]
"""One model or several, as lenses or as names for ``prosect.load``."""

_here: WeakValueDictionary[str, Lens] = WeakValueDictionary()
"""The lenses of this process that a run is using, by fingerprint."""
_opened: dict[str, Lens] = {}
"""The lens that this process has opened to take part in a run: one, by fingerprint."""
_lock = Lock()


def models_of(models: Models) -> dict[str, Lens | str]:
    """The models by name; their own names unless others are given.

    Raises
    ------
    ProsectError
        If there is none, or two have one name.
    """
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        listed = [models] if isinstance(models, Lens | str) else list(models)
        names = [m.name if isinstance(m, Lens) else m for m in listed]
        if len(set(names)) < len(names):
            raise ProsectError(
                f"Two of the models are named {max(names, key=names.count)!r}: "
                "give them as a mapping of names to models."
            )
        named = dict(zip(names, listed, strict=True))
    if not named:
        raise ProsectError("There is no model: give a lens, or a name for prosect.load.")
    for model in named.values():
        if not isinstance(model, Lens | str):
            raise TypeError(
                f"A model must be a Lens or a name for prosect.load, not {type(model).__name__}."
            )
    return named


def one_model(model: Lens | str) -> tuple[Lens, str | None]:
    """The lens, and the name under which another process finds it (None: only this one has it)."""
    if isinstance(model, Lens):
        return model, None
    return load(model), model


def fingerprint(lens: Lens) -> str:
    """A digest of all that decides what the model computes: weights, configuration, tokenizer."""
    found = hashlib.blake2b(digest_size=16)
    config = lens.model.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):
        config.pop(name, None)
    found.update(type(lens.model).__name__.encode())
    found.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(lens.model.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if isinstance(tensor, torch.Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            found.update(flat.view(torch.uint8).numpy().data)
    tokenizer = lens.tokenizer
    if tokenizer.is_fast:
        backend: Any = tokenizer.backend_tokenizer
        rules = json.loads(backend.to_str())
        for name in ("truncation", "padding"):  # change with every call
            rules.pop(name, None)
        found.update(json.dumps(rules, sort_keys=True).encode())
    else:
        found.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    return found.hexdigest()


@cache
def _private() -> Path:
    """A folder that nobody else can write to; gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="prosect-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True)
class Opener:
    """Opens one model in any process that takes part in a run.

    Attributes
    ----------
    fingerprint
        Of the model that is meant.
    name
        For ``prosect.load``, where the model has one.
    file
        Else where the lens was written.
    """

    fingerprint: str
    name: str | None
    file: str | None

    @classmethod
    def of(cls, lens: Lens, mark: str, name: str | None, folder: Path | None) -> Opener:
        """Make the model with that fingerprint available; ``folder`` is one that all workers see."""
        _here[mark] = lens
        if name is not None:
            return cls(mark, name, None)
        file = (folder or _private()) / f"lens-{mark}.pt"
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
                torch.save(lens, part)
            os.replace(part.name, file)
        return cls(mark, None, str(file))

    def open(self) -> Lens:
        """The lens, opened at most once in a process.

        Raises
        ------
        ProsectError
            If the process cannot find the model, or finds another under its name.
        """
        with _lock:
            found = _here.get(self.fingerprint) or _opened.get(self.fingerprint)
            if found is None:
                found = self._load()
                if fingerprint(found) != self.fingerprint:
                    raise ProsectError(
                        f"A worker finds another model under {self.name or self.file!r} than the one "
                        "the run was started with: give all of them the same weights and tokenizer."
                    )
                _opened.clear()
                _opened[self.fingerprint] = found
            return found

    def _load(self) -> Lens:
        if self.name is not None:
            return load(self.name)
        assert self.file is not None
        try:
            # written by this run, and checked against its fingerprint
            return torch.load(self.file, weights_only=False)
        except FileNotFoundError:
            raise ProsectError(
                f"A worker cannot read {self.file}: give a checkpoint folder that all workers see, "
                "or the model by a name for prosect.load."
            ) from None
