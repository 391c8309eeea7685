"""How every process that takes part comes by the model: once, and the same one."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pickle
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
from torch import nn

from prosect.errors import ProsectError
from prosect.lens import Lens, load

Models = Lens | str | Mapping[str, Lens | str] | Sequence[Lens | str]
"""One model or several, as lenses or as names for ``prosect.load``."""

_here: WeakValueDictionary[tuple[int, str], Lens] = WeakValueDictionary()
"""The lenses that a run is using in the process that started it, by process and fingerprint.

A process that was forked from it has them too, but as they were then.
"""
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
        for name in named:
            if not isinstance(name, str):
                raise TypeError(f"A model is named by a string, not by {name!r}.")
    else:
        listed = [models] if isinstance(models, Lens | str) or models is None else list(models)
        _check_models(listed)
        names = [m.name if isinstance(m, Lens) else m for m in listed]
        if len(set(names)) < len(names):
            raise ProsectError(
                f"Two of the models are named {max(names, key=names.count)!r}: "
                "give them as a mapping of names to models."
            )
        named = dict(zip(names, listed, strict=True))
    if not named:
        raise ProsectError("There is no model: give a lens, or a name for prosect.load.")
    _check_models(list(named.values()))
    return named


def _check_models(models: Sequence[object]) -> None:
    for model in models:
        if not isinstance(model, Lens | str):
            raise TypeError(
                f"A model must be a Lens or a name for prosect.load, not {type(model).__name__}."
            )


def one_model(model: Lens | str) -> tuple[Lens, str | None]:
    """The lens, and the name under which another process finds it (None: only this one has it)."""
    if isinstance(model, Lens):
        return model, None
    return load(model), model


def fingerprint(lens: Lens) -> str:
    """A digest of all that decides what the model computes: weights, settings, tokenizer.

    Hooks and replaced ``forward`` methods are not in it: see :func:`check_as_built`.
    """
    found = hashlib.blake2b(digest_size=16)
    config = lens.model.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):
        config.pop(name, None)
    found.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, module in lens.model.named_modules():
        found.update(f"{name} {type(module).__module__}.{type(module).__qualname__}".encode())
        found.update(repr(_settings(module)).encode())
    for name, tensor in (*lens.model.named_parameters(), *lens.model.named_buffers()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().data)
    tokenizer = lens.tokenizer
    found.update(json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str).encode())
    if tokenizer.is_fast:
        backend: Any = tokenizer.backend_tokenizer
        rules = json.loads(backend.to_str())
        for name in ("truncation", "padding"):  # change with every call
            rules.pop(name, None)
        found.update(json.dumps(rules, sort_keys=True).encode())
    else:
        found.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    return found.hexdigest()


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """The plain values that a module computes with, such as its epsilon."""
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, int | float | str)
        and not name.startswith("_")
        and name not in ("training", "name_or_path")
    )


def check_as_built(lens: Lens) -> None:
    """Refuse a model that was changed in ways which other processes and later runs cannot know.

    Raises
    ------
    ProsectError
        If a module has a hook of the user's, or a ``forward`` of its own.
    """
    for name, module in lens.model.named_modules():
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        foreign = any(not _belongs(hook) for hook in hooks)
        patched = "forward" in vars(module) and not hasattr(module, "_hf_hook")
        if foreign or patched:
            raise ProsectError(
                f"The module {name or type(module).__name__!r} has a hook or a forward of its own, "
                "which a checkpoint and other processes cannot know of: "
                "remove it, or run without executor and checkpoint."
            )


def _belongs(hook: object) -> bool:
    """Whether a hook comes with the model's own library."""
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return module.partition(".")[0] in ("transformers", "accelerate", "torch")


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
        _here[os.getpid(), mark] = lens
        if name is not None:
            return cls(mark, name, None)
        file = (folder or _private()) / f"lens-{mark}.pt"
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
                try:
                    torch.save(lens, part)
                except Exception as error:
                    os.unlink(part.name)
                    raise ProsectError(
                        f"{lens.name} cannot be passed to other processes ({error}): "
                        "give it by a name for prosect.load, or run without an executor."
                    ) from error
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
            found = _here.get((os.getpid(), self.fingerprint)) or _opened.get(self.fingerprint)
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
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ProsectError(f"{self.file} is damaged: delete it and run again.") from error
        except FileNotFoundError:
            raise ProsectError(
                f"A worker cannot read {self.file}: give a checkpoint folder that all workers see, "
                "or the model by a name for prosect.load."
            ) from None
