"""Lens: a model with its tokenizer, opened for dissection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from prosect import demo
from prosect.anatomy.families import anatomy_of
from prosect.capture import run
from prosect.errors import ProsectError
from prosect.tokens import read_tokens
from prosect.trace import Trace


class Lens:
    """A transformers model with its tokenizer, ready to trace texts.

    The model is used as it is, on the device and in the precision it has; every trace leaves it as
    it was found (attention implementation, training mode, hooks).

    Parameters
    ----------
    model
        A model of a supported architecture, with or without an output head.
    tokenizer
        Its fast tokenizer.
    name
        What to call the model in views; its ``name_or_path`` by default.

    Raises
    ------
    UnsupportedModelError
        If the architecture is not supported.
    ProsectError
        If the tokenizer is not a fast one or does not belong to the model.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str | None = None
    ) -> None:
        self.anatomy = anatomy_of(model)
        self.model = model
        self.tokenizer = tokenizer
        self.name = name or Path(model.name_or_path or "").name or self.anatomy.family
        _check_tokenizer(tokenizer, self.anatomy.words.num_embeddings)

    def __repr__(self) -> str:
        anatomy = self.anatomy
        size = f"{len(anatomy.blocks)} layers × {anatomy.heads} heads"
        return f"Lens({self.name}: {anatomy.family}, {size}, {self.model.dtype})"

    def trace(self, text: str, pair: str | None = None) -> Trace:
        """Run the model on one text, or on a pair of texts, and keep everything it computed.

        Parameters
        ----------
        text
            The text, of at least one token and at most as many as the model has positions.
        pair
            A second text, joined to the first the way the tokenizer joins pairs.

        Raises
        ------
        TypeError
            If a text is not a string.
        ProsectError
            If the text is empty or too long, or the model computes NaN or infinite values.
        """
        texts = (text,) if pair is None else (text, pair)
        for item in texts:
            if not isinstance(item, str):
                raise TypeError(f"A text must be a string, not {type(item).__name__}.")
        encoding = self.tokenizer(text, text_pair=pair, return_tensors="pt", verbose=False)
        tokens = read_tokens(encoding, texts, self.tokenizer)
        self._check_length(sum(token.span is not None for token in tokens), len(tokens))
        wanted = set(self.tokenizer.model_input_names)
        device = self.anatomy.words.weight.device
        inputs = {name: value.to(device) for name, value in encoding.items() if name in wanted}
        recorded = run(self.anatomy, inputs)
        return Trace(
            lens=self,
            texts=texts,
            tokens=tokens,
            hidden=recorded.hidden,
            attention=recorded.attention,
            stream=recorded.stream,
        )

    def _check_length(self, of_text: int, total: int) -> None:
        if of_text == 0:
            raise ProsectError("The text is empty: give at least one word.")
        limit = self.anatomy.positions
        if limit is not None and total > limit:
            raise ProsectError(
                f"The text has {total} tokens and {self.name} takes at most {limit}: "
                f"shorten it by {_count(total - limit, 'token')} or split it."
            )


def load(name: str | os.PathLike[str] | None = None, **options: Any) -> Lens:
    """Open a model by name.

    Parameters
    ----------
    name
        A model id, a local folder, or nothing for the demo model, which needs no network.
    **options
        Passed on to ``from_pretrained`` of the model, such as ``dtype`` or ``device_map``.
        Code that comes with a model is never run.

    Raises
    ------
    ProsectError
        If the demo model is not installed, or nothing can be loaded under the name.
    UnsupportedModelError
        If the architecture is not supported.
    """
    if options.pop("trust_remote_code", False):
        raise ProsectError(
            "prosect does not run code that comes with a model: "
            "load such a model yourself and pass it to prosect.Lens(model, tokenizer)."
        )
    source = demo.model_folder() if name is None else name
    try:
        with _quiet() if name is None else nullcontext():
            config = AutoConfig.from_pretrained(source)
            model = _model_class(config).from_pretrained(source, **options)
            tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ProsectError(
            f"Cannot load {str(source)!r}: it is neither a local folder with a model "
            f"nor a model id that can be reached from here ({str(error).strip().splitlines()[0]})"
        ) from error
    return Lens(model, tokenizer, name=demo.NAME if name is None else None)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar for what loads in an instant: in a notebook it would be saved as a widget."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _model_class(config: transformers.PretrainedConfig) -> Any:
    """The class that the checkpoint was saved from, so that an output head is kept."""
    for architecture in config.architectures or ():
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    return transformers.AutoModel


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, embeddings: int) -> None:
    if not tokenizer.is_fast:
        raise ProsectError(
            f"{type(tokenizer).__name__} cannot say which characters a token covers: "
            "load a fast tokenizer with AutoTokenizer.from_pretrained."
        )
    if len(tokenizer) > embeddings:
        raise ProsectError(
            f"The tokenizer knows {len(tokenizer)} tokens and the model embeds {embeddings}: "
            "load both from the same place."
        )
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ProsectError(
            "The tokenizer knows no tokens but its special ones: "
            "load it with AutoTokenizer.from_pretrained."
        )
