"""Small random models of every supported family, with tokenizers trained on a few sentences.

Gains, biases and epsilons are random: the defaults of 1 and 0 would hide a term that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

import prosect

TEXTS = [
    "The bank raised its rates, so we walked along the river bank.",
    "Seven ducklings crossed the unlit road behind their mother.",
    "Nobody understood the telegram that arrived on a rainy Thursday.",
    "日本語 and 👩‍👩‍👧 are read as they are written.",
]
SIZES = {"layers": 3, "heads": 4, "d": 32, "d_ff": 48, "vocabulary": 400, "positions": 64}


@cache
def word_pieces() -> PreTrainedTokenizerFast:
    """BERT's kind: lower case, words split into pieces marked ##, text between [CLS] and [SEP]."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS[:3], trainer)
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]"))
    )
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@cache
def byte_pairs(*, encloses: bool = False) -> PreTrainedTokenizerFast:
    """GPT-2's kind: pairs of bytes, a word has the space before it; RoBERTa's encloses texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if encloses else ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS[:3], trainer)
    tokenizer.decoder = decoders.ByteLevel()
    if not encloses:
        end = "<|endoftext|>"
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end
        )
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


def _encoder_sizes() -> dict[str, int | float]:
    return {
        "vocab_size": SIZES["vocabulary"],
        "hidden_size": SIZES["d"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": SIZES["heads"],
        "intermediate_size": SIZES["d_ff"],
        "max_position_embeddings": SIZES["positions"],
        "layer_norm_eps": 3e-3,
    }


def _bert() -> PreTrainedModel:
    return BertForMaskedLM(BertConfig(**_encoder_sizes()))


def _bert_decoder() -> PreTrainedModel:
    return BertForMaskedLM(BertConfig(**_encoder_sizes(), is_decoder=True))


def _roberta() -> PreTrainedModel:
    sizes = _encoder_sizes() | {"max_position_embeddings": SIZES["positions"] + 2}
    return RobertaModel(RobertaConfig(**sizes, pad_token_id=1))


def _electra() -> PreTrainedModel:
    return ElectraModel(ElectraConfig(**_encoder_sizes(), embedding_size=SIZES["d"]))


def _electra_small() -> PreTrainedModel:
    return ElectraModel(ElectraConfig(**_encoder_sizes(), embedding_size=20))


def _distilbert() -> PreTrainedModel:
    config = DistilBertConfig(
        vocab_size=SIZES["vocabulary"],
        dim=SIZES["d"],
        n_layers=SIZES["layers"],
        n_heads=SIZES["heads"],
        hidden_dim=SIZES["d_ff"],
        max_position_embeddings=SIZES["positions"],
    )
    return DistilBertModel(config)


def _gpt2() -> PreTrainedModel:
    config = GPT2Config(
        vocab_size=SIZES["vocabulary"],
        n_embd=SIZES["d"],
        n_layer=SIZES["layers"],
        n_head=SIZES["heads"],
        n_inner=SIZES["d_ff"],
        n_positions=SIZES["positions"],
        layer_norm_epsilon=3e-3,
    )
    return GPT2LMHeadModel(config)


FAMILIES: dict[str, tuple[Callable[[], PreTrainedModel], Callable[[], PreTrainedTokenizerFast]]] = {
    "bert": (_bert, word_pieces),
    "bert-decoder": (_bert_decoder, word_pieces),
    "roberta": (_roberta, lambda: byte_pairs(encloses=True)),
    "electra": (_electra, word_pieces),
    "electra-small": (_electra_small, word_pieces),
    "distilbert": (_distilbert, word_pieces),
    "gpt2": (_gpt2, byte_pairs),
}


def random_model(family: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """A model of the family whose every weight is random, norms and biases included."""
    torch.manual_seed(seed)
    model = FAMILIES[family][0]().to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0, 0.4)
                if "norm" in name.lower() or ".ln_" in name:
                    parameter.add_(1.0 if name.endswith("weight") else 0.1)
            else:
                parameter.normal_(0.0, 0.25)
    return model


def random_lens(family: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> prosect.Lens:
    """The same, opened with a tokenizer of the kind that the family uses."""
    return prosect.Lens(random_model(family, dtype, seed), FAMILIES[family][1](), name=family)
