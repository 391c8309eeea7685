"""Load the model once per worker, and verify that it is the model of the run."""

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

_local: WeakValueDictionary[tuple[int, str], Lens] = WeakValueDictionary()
"""The lenses of runs that this process started, by process id and fingerprint.

The process id excludes copies in a forked process, which may be out of date.
"""
_loaded: dict[str, Lens] = {}
"""The lens that this process loaded as a worker, by fingerprint; at most one."""
_lock = Lock()


def models_of(models: Models) -> dict[str, Lens | str]:
    """Return the models by name; a mapping gives the names, otherwise each model has its own.

    Raises
    ------
    ProsectError
        If there is no model, or two have the same name.
    """
    if isinstance(models, Mapping):
        named = dict(models)
        for name in named:
            if not isinstance(name, str):
                raise TypeError(f"The name of a model must be a string, got {name!r}.")
    else:
        sequence = [models] if isinstance(models, Lens | str) or models is None else list(models)
        _check_models(sequence)
        names = [m.name if isinstance(m, Lens) else m for m in sequence]
        if len(set(names)) < len(names):
            raise ProsectError(
                f"Two models have the name {max(names, key=names.count)!r}: "
                "give a mapping of distinct names to models."
            )
        named = dict(zip(names, sequence, strict=True))
    if not named:
        raise ProsectError("There must be at least one model: a Lens or a name for prosect.load.")
    _check_models(list(named.values()))
    return named


def _check_models(models: Sequence[object]) -> None:
    for model in models:
        if not isinstance(model, Lens | str):
            raise TypeError(
                f"A model must be a Lens or a name for prosect.load, got {type(model).__name__}."
            )


def one_model(model: Lens | str) -> tuple[Lens, str | None]:
    """Return the lens, and the name by which other processes can load it, or None."""
    if isinstance(model, Lens):
        return model, None
    return load(model), model


def fingerprint(lens: Lens) -> str:
    """A digest of everything that determines the model's output: weights, settings, tokenizer.

    Hooks and replaced ``forward`` methods are not included: see :func:`check_unmodified`.
    """
    digest = hashlib.blake2b(digest_size=16)
    config = lens.model.config.to_dict()
    for name in ("_name_or_path", "transformers_version"):
        config.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, module in lens.model.named_modules():
        digest.update(f"{name} {type(module).__module__}.{type(module).__qualname__}".encode())
        digest.update(repr(_settings(module)).encode())
    for name, tensor in (*lens.model.named_parameters(), *lens.model.named_buffers()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    tokenizer = lens.tokenizer
    digest.update(json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str).encode())
    if tokenizer.is_fast:
        backend: Any = tokenizer.backend_tokenizer
        rules = json.loads(backend.to_str())
        for name in ("truncation", "padding"):  # these change with every call
            rules.pop(name, None)
        digest.update(json.dumps(rules, sort_keys=True).encode())
    else:
        digest.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    return digest.hexdigest()


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """The plain attributes of a module that affect its output, such as its epsilon."""
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, int | float | str)
        and not name.startswith("_")
        and name not in ("training", "name_or_path")
    )


def check_unmodified(lens: Lens) -> None:
    """Refuse a model with changes that the fingerprint does not cover.

    Raises
    ------
    ProsectError
        If a module has a user's hook, or a replaced ``forward``.
    """
    for name, module in lens.model.named_modules():
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        foreign = any(not _is_library_hook(hook) for hook in hooks)
        patched = "forward" in vars(module) and not hasattr(module, "_hf_hook")
        if foreign or patched:
            raise ProsectError(
                f"The module {name or type(module).__name__!r} has a hook or a replaced forward, "
                "which checkpoints and other processes cannot reproduce: "
                "remove it, or run without executor and checkpoint."
            )


def _is_library_hook(hook: object) -> bool:
    """Whether a hook is part of the model's library."""
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return module.partition(".")[0] in ("transformers", "accelerate", "torch")


@cache
def _private_folder() -> Path:
    """A temporary folder that only this user can access, deleted when the process ends."""
    folder = tempfile.mkdtemp(prefix="prosect-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True)
class ModelReference:
    """A picklable reference to a model, from which every worker of a run gets its lens.

    Attributes
    ----------
    fingerprint
        The fingerprint of the model.
    name
        The name for ``prosect.load``, or None.
    file
        The file with the lens if there is no name.
    """

    fingerprint: str
    name: str | None
    file: str | None

    @classmethod
    def of(
        cls, lens: Lens, fingerprint: str, name: str | None, folder: Path | None
    ) -> ModelReference:
        """Make a lens available to workers; ``folder`` must be accessible to all of them."""
        _local[os.getpid(), fingerprint] = lens
        if name is not None:
            return cls(fingerprint, name, None)
        file = (folder or _private_folder()) / f"lens-{fingerprint}.pt"
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
                try:
                    torch.save(lens, part)
                except Exception as error:
                    os.unlink(part.name)
                    raise ProsectError(
                        f"{lens.name} cannot be passed to other processes ({error}): "
                        "give a name for prosect.load, or run without an executor."
                    ) from error
            os.replace(part.name, file)
        return cls(fingerprint, None, str(file))

    def lens(self) -> Lens:
        """Return the lens, loaded at most once per process.

        Raises
        ------
        ProsectError
            If the process cannot load the model, or its fingerprint differs.
        """
        with _lock:
            lens = _local.get((os.getpid(), self.fingerprint)) or _loaded.get(self.fingerprint)
            if lens is None:
                lens = self._load()
                if fingerprint(lens) != self.fingerprint:
                    raise ProsectError(
                        f"A worker loaded a different model from {self.name or self.file!r} than "
                        "this run uses: give all workers the same weights and tokenizer."
                    )
                _loaded.clear()
                _loaded[self.fingerprint] = lens
            return lens

    def _load(self) -> Lens:
        if self.name is not None:
            return load(self.name)
        assert self.file is not None
        try:
            # this run wrote the file, and the fingerprint is checked after loading
            return torch.load(self.file, weights_only=False)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ProsectError(f"{self.file} is damaged: delete it and run again.") from error
        except FileNotFoundError:
            raise ProsectError(
                f"A worker cannot read {self.file}: give a checkpoint folder that all workers can "
                "access, or a name for prosect.load."
            ) from None
