"""Lens: a model with its tokenizer, ready to trace texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BatchEncoding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from prosect.anatomy.families import anatomies_of
from prosect.anatomy.weights import innermost
from prosect.capture.run import run
from prosect.demo.models import named
from prosect.errors import ProsectError, TextLengthError
from prosect.hub import hub_answers
from prosect.modes import in_plain_arithmetic
from prosect.tokens import Pieces, Token, in_place_of, read_tokens
from prosect.trace import Trace
from prosect.unwrap import unwrap
from prosect.validation import check_count

PLACES = ("revision", "cache_dir", "token", "subfolder", "force_download", "local_files_only")
"""Options of ``from_pretrained`` that say where files are; model and tokenizer both take them."""


@dataclass(frozen=True)
class Given:
    """A text or a pair of texts, with the token ids that replace some of its own."""

    text: str
    pair: str | None = None
    replacements: Mapping[int, int] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or the two texts of the pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@in_plain_arithmetic
class Lens:
    """A transformers model with its tokenizer, ready to trace texts.

    The model keeps its device and precision. A trace restores its attention implementation, training
    mode and hooks. The activations of a model in half precision are analysed in float32.

    Parameters
    ----------
    model
        A model of a supported architecture, with or without an output head; or a pipeline, a
        SentenceTransformer, a PeftModel, a compiled or a DataParallel model that contains one. The
        model inside is used, with its adapters.
    tokenizer
        Its tokenizer; not needed for a pipeline or a SentenceTransformer, which contain theirs.
    name
        The name of the model in views; by default the last part of its ``name_or_path``.

    Attributes
    ----------
    anatomy
        The parts of the model; for a model with encoder and decoder, those of the encoder.
    decoder
        The parts of the decoder of a model with encoder and decoder; else None.

    Raises
    ------
    UnsupportedModelError
        If the architecture is not supported.
    ProsectError
        If the tokenizer does not belong to the model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        name: str | None = None,
    ) -> None:
        inner, own_tokenizer = unwrap(model)
        self.anatomy, self.decoder = anatomies_of(inner)
        self.model: PreTrainedModel = inner
        self.name = name or Path(inner.name_or_path or "").name or self.anatomy.family
        given = own_tokenizer if tokenizer is None else tokenizer
        self.tokenizer = _checked_tokenizer(given, self.anatomy.words.num_embeddings)

    def __repr__(self) -> str:
        anatomy = self.anatomy
        size = f"{len(anatomy.blocks)} layers × {anatomy.heads} heads"
        return f"Lens({self.name}: {anatomy.family}, {size}, {self.model.dtype})"

    def trace(
        self,
        text: str,
        pair: str | None = None,
        *,
        target: str | None = None,
        replacements: Mapping[int, int] | None = None,
    ) -> Trace:
        """Run the model on one text, or on a pair of texts, and keep everything it computed.

        Parameters
        ----------
        text
            The text, of at least one token and at most as many as the model has positions.
        pair
            A second text. The tokenizer joins the two.
        target
            For a model with encoder and decoder: the text that the decoder reads (teacher forcing)
            while it attends to ``text``. The result is then the trace of the decoder, and its
            ``encoder`` is the trace of ``text``. Without a target, the result is the trace of the
            encoder.
        replacements
            A mapping from positions to the ids of the tokens that replace those there, such as the
            mask token. The trace has the tokens after the replacement.

        Raises
        ------
        TypeError
            If a text is not a string.
        ProsectError
            If a text is empty or too long, if the model cannot read a pair or a target, if a position
            or token id in ``replacements`` does not exist, or if the model computes NaN or infinite
            values.
        """
        (one,) = self._trace_batch([Given(text, pair, replacements or {})])
        return one if target is None else self._trace_target(one, target)

    def tokens(self, text: str, pair: str | None = None) -> list[Token]:
        """The tokens that the model reads for a text or pair, in order.

        Raises
        ------
        TypeError, ProsectError
            See :meth:`trace`.
        """
        return self._read(Given(text, pair))[1]

    def fits(self, text: str) -> bool:
        """Whether the text has at least one token and at most as many as the model has positions."""
        try:
            self._read(Given(text))
        except TextLengthError:
            return False
        return True

    def traces(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        batch_size: int = 16,
        progress: bool = False,
        replacements: Iterable[Mapping[int, int]] | None = None,
    ) -> Iterator[Trace]:
        """Trace many texts in batches. The traces do not contain the padding.

        Parameters
        ----------
        texts
            Texts, or pairs of texts.
        batch_size
            The number of texts that the model reads at once.
        progress
            Whether to show a progress bar.
        replacements
            One mapping per text, as in :meth:`trace`.

        Raises
        ------
        TypeError, ProsectError
            See :meth:`trace`; the message states the index of the text. Also if the numbers of texts
            and ``replacements`` differ.
        """
        check_count(batch_size, "batch_size")
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, got one string: use trace(text).")
        total = len(texts) if isinstance(texts, Sized) else None
        bar = tqdm(texts, total=total, unit="text", disable=not progress)
        batch: list[Given] = []
        first = 0
        for item, ids in _with_replacements(bar, replacements):
            number = first + len(batch)
            pair = (item, None) if isinstance(item, str) else _as_pair(item, number)
            batch.append(Given(*pair, ids))
            if len(batch) == batch_size:
                yield from self._trace_batch(batch, first)
                first += len(batch)
                batch = []
        if batch:
            yield from self._trace_batch(batch, first)

    def _trace_batch(self, batch: Sequence[Given], first: int | None = None) -> list[Trace]:
        """Trace one batch; ``first`` is the index of its first text, or None outside batches."""
        read = []
        for number, given in enumerate(batch):
            try:
                read.append(self._read(given))
            except (TypeError, ProsectError) as error:
                if first is None:
                    raise
                raise type(error)(f"Text {first + number}: {error}") from error
        inputs = self._padded([fields for fields, _ in read])
        lengths = [len(tokens) for _, tokens in read]
        runs = run(self.anatomy, inputs, lengths, model=self.model)
        return [
            Trace(self, self.anatomy, given.texts, tokens, one)
            for given, (_, tokens), one in zip(batch, read, runs, strict=True)
        ]

    def _trace_target(self, encoder: Trace, target: str) -> Trace:
        decoder = self.decoder
        if decoder is None:
            raise ProsectError(
                f"target needs a model with encoder and decoder, got {self.name}, which has only one "
                "of them: leave target out."
            )
        _check_text(target)
        encoding = self.tokenizer(text_target=target, verbose=False)
        tokens = self._tokens(encoding, (target,))[:-1]  # the decoder never reads the last one
        tokens = [_start_token(self.model.config, self.tokenizer), *tokens]
        self._check_length(tokens, decoder.positions, (target,))
        device = self.anatomy.words.device
        ids = torch.tensor([[token.id for token in tokens]], device=device)
        inputs = {
            "input_ids": ids,
            "encoder_hidden_states": encoder.hidden[-1:].to(self.model.dtype),
        }
        (one,) = run(decoder, inputs, [len(tokens)], [len(encoder.tokens)], model=self.model)
        return Trace(self, decoder, (target,), tokens, one, encoder)

    def _read(self, given: Given) -> tuple[dict[str, list[int]], list[Token]]:
        """The model's inputs and the tokens of one text or pair."""
        for item in given.texts:
            _check_text(item)
        encoding = self.tokenizer(given.text, text_pair=given.pair, verbose=False)
        tokens = self._tokens(encoding, given.texts)
        self._check_length(tokens, self.anatomy.positions, given.texts)
        fields = {
            name: list(values)
            for name, values in encoding.items()
            if name in self.tokenizer.model_input_names
        }
        fields["attention_mask"] = [1] * len(tokens)
        for position, id in given.replacements.items():
            self._check_replacement(position, id, len(tokens))
            tokens[position] = in_place_of(tokens[position], id, self.tokenizer)
            fields["input_ids"][position] = id
        self._check_types(fields.get("token_type_ids", ()))
        return fields, tokens

    def _check_replacement(self, position: int, id: int, count: int) -> None:
        if not 0 <= position < count:
            raise ProsectError(
                f"The positions in replacements must be from 0 to {count - 1}, got {position}."
            )
        size = self.anatomy.words.num_embeddings
        if not 0 <= id < size:
            raise ProsectError(
                f"The token ids in replacements must be from 0 to {size - 1}, got {id}."
            )

    def _tokens(self, encoding: BatchEncoding, texts: Sequence[str]) -> list[Token]:
        if encoding.encodings is not None:
            pieces = Pieces.of(encoding, 0)
        else:
            pieces = Pieces.by_search(list(encoding["input_ids"]), texts, self.tokenizer)
        return read_tokens(pieces, texts, self.tokenizer)

    def _padded(self, texts: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        """One tensor per input, always padded on the right.

        Then the positions are those of the text alone, and the tokens of a causal model do not
        attend to the padding.
        """
        width = max(len(fields["input_ids"]) for fields in texts)
        padding = {"input_ids": self.tokenizer.pad_token_id or 0}
        device = self.anatomy.words.device
        return {
            name: torch.tensor(
                [f[name] + [padding.get(name, 0)] * (width - len(f[name])) for f in texts],
                device=device,
            )
            for name in texts[0]
        }

    def _check_types(self, types: Sequence[int]) -> None:
        known = next((e.module for e in self.anatomy.embeddings if e.name == "type"), None)
        if known is not None and max(types, default=0) >= innermost(known).num_embeddings:
            raise ProsectError(
                f"{self.name} has only one token type and cannot read a pair: join the two texts."
            )

    def _check_length(
        self, tokens: Sequence[Token], limit: int | None, texts: Sequence[str]
    ) -> None:
        if all(token.special and token.span is None for token in tokens):
            if any(text.strip() for text in texts):
                raise TextLengthError(
                    "The tokenizer drops all characters of this text: use another text or tokenizer."
                )
            raise TextLengthError("The text is empty: give at least one word.")
        over = 0 if limit is None else len(tokens) - limit
        if over > 0:
            raise TextLengthError(
                f"The text has {len(tokens)} tokens and {self.name} takes at most {limit}: "
                f"shorten it by {over} {'token' if over == 1 else 'tokens'} or split it."
            )


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"A text must be a string, got {type(text).__name__}.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ProsectError(
            "The text contains half a surrogate pair, which is not a character: "
            "remove it with text.encode('utf-8', 'ignore').decode()."
        )


def _with_replacements(
    texts: Iterable[Any], replacements: Iterable[Mapping[int, int]] | None
) -> Iterator[tuple[Any, Mapping[int, int]]]:
    """Each text with its replacements."""
    if replacements is None:
        yield from ((text, {}) for text in texts)
        return
    for text, ids in zip_longest(texts, replacements):
        if text is None or ids is None:
            raise ProsectError(
                "replacements must have one mapping per text, got "
                f"{'fewer' if ids is None else 'more'} mappings than texts."
            )
        yield text, ids


def _as_pair(item: object, number: int) -> tuple[str, str]:
    if isinstance(item, Sequence) and len(item) == 2:
        return item[0], item[1]
    kind = type(item).__name__
    raise TypeError(f"Text {number}: a text must be a string or a pair of strings, got {kind}.")


def _start_token(config: Any, tokenizer: PreTrainedTokenizerBase) -> Token:
    """The first token that a decoder reads."""
    id = config.decoder_start_token_id
    if id is None:
        raise ProsectError(
            "The model's configuration has no decoder_start_token_id: set it before the trace."
        )
    string = str(tokenizer.convert_ids_to_tokens(id))
    return Token(string, id, None, None, True, string)


def load(model: Any = None, **options: Any) -> Lens:
    """Load a model by its name, or wrap an object that contains a model and its tokenizer.

    Parameters
    ----------
    model
        A model id; a local folder; the short name of a model that is a Python package ("minilm",
        "smollm2", "rxnmapper", "antiberty"); or None for the demo model, "minilm". A short name has
        priority over a folder of the same name: write "./smollm2" for the folder. Or a pipeline or a
        SentenceTransformer.
    **options
        Options of the model's ``from_pretrained``, such as ``dtype`` or ``device_map``. The code of a
        model repository is never run.

    Raises
    ------
    ProsectError
        If the package of a short name is not installed (the message says how to install it), or if
        there is no model of that name. Without a network, only models in the cache can be loaded.
    UnsupportedModelError
        If the architecture is not supported.
    """
    if options.pop("trust_remote_code", False):
        raise ProsectError(
            "prosect does not run the code of a model repository: "
            "load the model yourself and use prosect.Lens(model, tokenizer)."
        )
    known = named("minilm" if model is None else model)
    if known is not None:
        return Lens(*known.open(**options), name=known.title)
    if not isinstance(model, str | os.PathLike):
        if options:
            raise ProsectError(
                f"{', '.join(options)} can only be given with a name, "
                f"not with a {type(model).__name__}, which is loaded already: "
                "prosect.Lens(model, tokenizer) opens it."
            )
        return model if isinstance(model, Lens) else Lens(model)
    return Lens(*_from_pretrained(model, options))


def _from_pretrained(name: str | os.PathLike[str], options: dict[str, Any]) -> tuple[Any, Any]:
    """The model of that name, in its own class, and its tokenizer."""
    local = os.path.isdir(name) or options.get("local_files_only", False) or not hub_answers()
    places = {key: options.pop(key) for key in PLACES if key in options}
    places["local_files_only"] = local
    try:
        config = AutoConfig.from_pretrained(name, **places)
        model = _model_class(config).from_pretrained(name, **places, **options)
        return model, AutoTokenizer.from_pretrained(name, **places)
    except (ImportError, SafetensorError) as error:  # a missing library, or a broken file
        reason = " ".join(str(error).split())
        raise ProsectError(f"Cannot load {str(name)!r}: {reason.rstrip('.')}.") from error
    except (OSError, ValueError) as error:
        raise ProsectError(
            f"Cannot load {str(name)!r}: it is neither a local folder with a model "
            f"nor a model id that can be downloaded ({str(error).strip().splitlines()[0]})"
        ) from error


def _model_class(config: transformers.PretrainedConfig) -> Any:
    """The class of the saved model, which has its output head."""
    for architecture in config.architectures or ():
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    return transformers.AutoModel


def _checked_tokenizer(tokenizer: object, embeddings: int) -> PreTrainedTokenizerBase:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        given = "None" if tokenizer is None else type(tokenizer).__name__
        raise ProsectError(
            f"tokenizer must be a tokenizer of transformers, got {given}: "
            "load the model's own with AutoTokenizer.from_pretrained "
            "and give both to prosect.Lens(model, tokenizer)."
        )
    if len(tokenizer) > embeddings:
        raise ProsectError(
            f"The tokenizer has {len(tokenizer)} tokens and the model only {embeddings} embeddings: "
            "load both under the same name."
        )
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ProsectError(
            "The tokenizer has only special tokens: load it with AutoTokenizer.from_pretrained."
        )
    return tokenizer
