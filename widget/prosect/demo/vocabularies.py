"""Tokenizers for models whose package brings a list of tokens and no rules for cutting a text."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SMILES = r"\[[^\]]+\]|Br|Cl|%[0-9]{2}|>>|\S"
"""An atom, a bond, a branch or a ring number of a reaction SMILES (Schwaller et al. 2019)."""

RESIDUES = r"\S"
"""An amino acid: one letter, with or without spaces between them."""


def word_level(vocabulary: Path, pattern: str) -> PreTrainedTokenizerFast:
    """A tokenizer that cuts a text by a pattern and looks every piece up, between [CLS] and [SEP].

    Parameters
    ----------
    vocabulary
        A file with one token a line, BERT's special tokens among them.
    pattern
        What a piece is; what is between pieces is left out.
    """
    tokens = vocabulary.read_text(encoding="utf-8").splitlines()
    ids = {token: id for id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
