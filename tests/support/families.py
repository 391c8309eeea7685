"""Small random models of every supported family, with tokenizers trained on a few sentences.

Gains, biases and epsilons are random: the defaults of 1 and 0 would hide a term that is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import torch
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

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


def _common() -> dict[str, Any]:
    """The sizes as most configurations name them."""
    return {
        "vocab_size": SIZES["vocabulary"],
        "hidden_size": SIZES["d"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": SIZES["heads"],
        "intermediate_size": SIZES["d_ff"],
        "max_position_embeddings": SIZES["positions"],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 1,
    }


def _gpt_sizes() -> dict[str, Any]:
    """The sizes as GPT-2 and GPT-J name them."""
    return {
        "vocab_size": SIZES["vocabulary"],
        "n_embd": SIZES["d"],
        "n_layer": SIZES["layers"],
        "n_head": SIZES["heads"],
        "n_inner": SIZES["d_ff"],
        "n_positions": SIZES["positions"],
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _pair_sizes() -> dict[str, Any]:
    """The sizes as BART and Marian name them."""
    return {
        "vocab_size": SIZES["vocabulary"],
        "d_model": SIZES["d"],
        "encoder_layers": SIZES["layers"],
        "decoder_layers": SIZES["layers"],
        "encoder_attention_heads": SIZES["heads"],
        "decoder_attention_heads": SIZES["heads"],
        "encoder_ffn_dim": SIZES["d_ff"],
        "decoder_ffn_dim": SIZES["d_ff"],
        "max_position_embeddings": SIZES["positions"],
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "scale_embedding": True,
    }


EPSILON = 3e-3
GROUPED = {"num_key_value_heads": 2}
T5_SIZES = {
    "vocab_size": SIZES["vocabulary"],
    "d_model": SIZES["d"],
    "d_kv": 12,
    "d_ff": SIZES["d_ff"],
    "num_layers": SIZES["layers"],
    "num_heads": SIZES["heads"],
    "layer_norm_epsilon": EPSILON,
    "decoder_start_token_id": 1,
    "pad_token_id": 1,
    "eos_token_id": 2,
}


Layout = Literal["post-norm", "pre-norm", "parallel", "sandwich", "normed outputs"]


@dataclass(frozen=True)
class Family:
    """How to make a small model of a family, and all that tests know of the family alone."""

    model: type[Any]
    config: type[Any]
    sizes: Callable[[], dict[str, Any]]
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    options: dict[str, Any] = field(default_factory=dict)
    layout: Layout = "post-norm"
    """Where the norms of a layer stand."""
    layers: int = SIZES["layers"]
    biases: bool = True
    """Whether anything at all goes into the bias term."""
    predicts: bool = True
    """Whether the class has a head that predicts tokens."""
    known_scores: bool = True
    """Whether its anatomy describes how scores are computed, as attribution needs."""
    scaled_scores: bool = True
    """Whether scores are divided by √d_head; where not, random ones are large."""
    unlimited: bool = False
    """Whether positions are relative only, so that no text is too long."""
    float32_norms: bool = False
    """Whether its norms compute in float32 whatever the weights."""
    float32_gains: bool = False
    """Whether these norms apply their gains in float32 too."""
    float32_softmax: bool = False
    """Whether the softmax of a traced run is in float32: the model's own, not the tap's."""
    float32_eager_softmax: bool = False
    """Whether its eager softmax is in float32, where the tap's is as precise as the model."""
    float32_scores: bool = False
    """Whether it computes scores in float32."""
    float32_rotary: bool = False
    """Whether it turns queries and keys in float32."""

    @property
    def rounds(self) -> bool:
        """Whether something that becomes a part goes through float32 in a float64 model."""
        return self.float32_norms or self.float32_softmax

    def exact(self, dtype: torch.dtype) -> float:
        """How exactly parts must add up, relatively."""
        if dtype == torch.float32:
            return 1e-5
        return 1e-6 if self.rounds else 1e-12

    def having(self, **facts: Any) -> Family:
        """The same family with other facts."""
        return replace(self, **facts)

    def make(self) -> Any:
        """A model with transformers' own initial weights."""
        return self.model(self.config(**{**self.sizes(), **self.options}))


def _enclosing() -> PreTrainedTokenizerFast:
    return byte_pairs(encloses=True)


def _encoder(model: str, config: str, tokenizer: Any = word_pieces, **options: Any) -> Family:
    return _family(model, config, _common, tokenizer, layer_norm_eps=EPSILON, **options)


def _rms(model: str, config: str, **options: Any) -> Family:
    made = _family(model, config, _common, byte_pairs, rms_norm_eps=EPSILON, **options)
    return made.having(layout="pre-norm", float32_norms=True, float32_eager_softmax=True)


def _family(model: str, config: str, sizes: Any, tokenizer: Any, **options: Any) -> Family:
    classes = getattr(transformers, model), getattr(transformers, config)
    return Family(*classes, sizes, tokenizer, options)


_T5: dict[str, Any] = {
    "layout": "pre-norm",
    "biases": False,
    "scaled_scores": False,
    "unlimited": True,
    "float32_norms": True,
}
_BEYOND_PADDING = {"max_position_embeddings": SIZES["positions"] + 2}

FAMILIES: dict[str, Family] = {
    "bert": _encoder("BertForMaskedLM", "BertConfig"),
    "bert-decoder": _encoder("BertForMaskedLM", "BertConfig", is_decoder=True),
    "roberta": _encoder("RobertaForMaskedLM", "RobertaConfig", _enclosing, **_BEYOND_PADDING),
    "xlm-roberta": _encoder(
        "XLMRobertaForMaskedLM", "XLMRobertaConfig", _enclosing, **_BEYOND_PADDING
    ),
    "camembert": _encoder("CamembertForMaskedLM", "CamembertConfig", _enclosing, **_BEYOND_PADDING),
    "electra": _encoder("ElectraForMaskedLM", "ElectraConfig", embedding_size=SIZES["d"]),
    "electra-small": _encoder("ElectraForMaskedLM", "ElectraConfig", embedding_size=20),
    "albert": _encoder("AlbertForMaskedLM", "AlbertConfig", embedding_size=20),
    "albert-groups": _encoder(
        "AlbertForMaskedLM",
        "AlbertConfig",
        embedding_size=20,
        num_hidden_layers=4,
        num_hidden_groups=2,
        inner_group_num=2,
    ).having(layers=8),
    "distilbert": _family(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        lambda: {
            "vocab_size": SIZES["vocabulary"],
            "dim": SIZES["d"],
            "n_layers": SIZES["layers"],
            "n_heads": SIZES["heads"],
            "hidden_dim": SIZES["d_ff"],
            "max_position_embeddings": SIZES["positions"],
        },
        word_pieces,
    ),
    "mpnet": _encoder("MPNetForMaskedLM", "MPNetConfig", _enclosing, **_BEYOND_PADDING),
    "modernbert": _family(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        _common,
        _enclosing,
        norm_eps=EPSILON,
        norm_bias=True,
        attention_bias=True,
        mlp_bias=True,
        local_attention=8,
        cls_token_id=0,
        sep_token_id=2,
    ).having(layout="pre-norm", float32_eager_softmax=True, float32_rotary=True),
    "deberta-v2": _encoder(
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        relative_attention=True,
        position_biased_input=False,
        position_buckets=8,
        max_relative_positions=-1,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        type_vocab_size=0,
    ).having(known_scores=False, unlimited=True),
    "deberta-v2-narrow": _encoder(
        "DebertaV2Model", "DebertaV2Config", embedding_size=20, type_vocab_size=2
    ).having(known_scores=False, predicts=False),
    "gpt2": _family(
        "GPT2LMHeadModel", "GPT2Config", _gpt_sizes, byte_pairs, layer_norm_epsilon=EPSILON
    ).having(layout="pre-norm"),
    "gpt-neo": _family(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        _common,
        byte_pairs,
        num_hidden_layers=4,
        attention_types=[[["global", "local"], 2]],
        window_size=4,
        layer_norm_epsilon=EPSILON,
    ).having(layout="pre-norm", layers=4, scaled_scores=False, float32_scores=True),
    "gpt-neox": _family(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", _common, byte_pairs, layer_norm_eps=EPSILON
    ).having(layout="parallel", float32_eager_softmax=True),
    "gpt-neox-sequential": _family(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        _common,
        byte_pairs,
        layer_norm_eps=EPSILON,
        use_parallel_residual=False,
    ).having(layout="pre-norm", float32_eager_softmax=True),
    "gptj": _family(
        "GPTJForCausalLM",
        "GPTJConfig",
        _gpt_sizes,
        byte_pairs,
        rotary_dim=4,
        layer_norm_epsilon=EPSILON,
    ).having(layout="parallel", float32_eager_softmax=True, float32_rotary=True),
    "phi": _family(
        "PhiForCausalLM", "PhiConfig", _common, byte_pairs, layer_norm_eps=EPSILON, **GROUPED
    ).having(layout="parallel", float32_eager_softmax=True),
    "bloom": _family(
        "BloomForCausalLM",
        "BloomConfig",
        _common,
        byte_pairs,
        n_layer=SIZES["layers"],
        n_head=SIZES["heads"],
        layer_norm_epsilon=EPSILON,
    ).having(layout="pre-norm", unlimited=True, float32_softmax=True),
    "opt": _family(
        "OPTForCausalLM",
        "OPTConfig",
        _common,
        byte_pairs,
        ffn_dim=SIZES["d_ff"],
        word_embed_proj_dim=SIZES["d"],
    ).having(layout="pre-norm", float32_eager_softmax=True),
    "opt-post-norm": _family(
        "OPTForCausalLM",
        "OPTConfig",
        _common,
        byte_pairs,
        ffn_dim=SIZES["d_ff"],
        word_embed_proj_dim=20,
        do_layer_norm_before=False,
    ).having(float32_eager_softmax=True),
    "llama": _rms("LlamaForCausalLM", "LlamaConfig", **GROUPED).having(biases=False),
    "llama-biases": _rms("LlamaForCausalLM", "LlamaConfig", attention_bias=True, mlp_bias=True),
    "mistral": _rms("MistralForCausalLM", "MistralConfig", sliding_window=6, **GROUPED).having(
        biases=False
    ),
    "qwen2": _rms("Qwen2ForCausalLM", "Qwen2Config", **GROUPED),
    "qwen3": _rms("Qwen3ForCausalLM", "Qwen3Config", head_dim=12, **GROUPED).having(biases=False),
    "smollm3": _rms("SmolLM3ForCausalLM", "SmolLM3Config", **GROUPED).having(biases=False),
    "gemma2": _rms(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        head_dim=12,
        sliding_window=6,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        attention_bias=True,
        **GROUPED,
    ).having(layout="sandwich", float32_gains=True),
    "gemma3": _rms(
        "Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=12, sliding_window=6, **GROUPED
    ).having(layout="sandwich", float32_gains=True, biases=False),
    "olmo2": _rms("Olmo2ForCausalLM", "Olmo2Config", **GROUPED).having(
        layout="normed outputs", float32_gains=True, biases=False
    ),
    "t5": _family("T5ForConditionalGeneration", "T5Config", lambda: T5_SIZES, _enclosing).having(
        **_T5
    ),
    "t5-gated": _family(
        "T5ForConditionalGeneration",
        "T5Config",
        lambda: T5_SIZES,
        _enclosing,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    ).having(**_T5),
    "bart": _family("BartForConditionalGeneration", "BartConfig", _pair_sizes, _enclosing),
    "marian": _family("MarianMTModel", "MarianConfig", _pair_sizes, _enclosing),
}
"""Every supported family; variants of one have a dash."""

PAIRS = ("t5", "t5-gated", "bart", "marian")
"""Those with an encoder and a decoder."""

STACKS = (*FAMILIES, *(f"{family}-decoder" for family in PAIRS))
"""Every stack of layers that can be traced: each family, then the decoders of pairs."""


PREDICTING = tuple(name for name, family in FAMILIES.items() if family.predicts)
"""Families whose class has a head that predicts tokens."""

HEADS = tuple(f"{name}-decoder" if name in PAIRS else name for name in PREDICTING)
"""The stacks that such a head sits on."""


def family_of(stack: str) -> str:
    """The family that a stack is of."""
    return stack if stack in FAMILIES else stack.removesuffix("-decoder")


def trace_of(lens: prosect.Lens, stack: str, text: str = TEXTS[0]) -> prosect.Trace:
    """The trace of a text through the stack; a decoder reads the second of the texts."""
    return lens.trace(text, target=None if stack in FAMILIES else TEXTS[1])


@cache
def sample(stack: str, dtype: torch.dtype = torch.float64) -> prosect.Trace:
    """One trace that tests share: leave it and its model as they are."""
    return trace_of(random_lens(family_of(stack), dtype), stack)


def random_model(
    family: str, dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any
) -> Any:
    """A model of the family whose every weight is random, norms and biases included."""
    torch.manual_seed(seed)
    made = replace(FAMILIES[family], options={**FAMILIES[family].options, **options})
    model = made.make().to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0, 0.4)
                if any(mark in name.lower() for mark in ("norm", ".ln_")):
                    parameter.add_(1.0 if name.endswith("weight") else 0.1)
            else:
                parameter.normal_(0.0, 0.25)
    return model


def random_lens(
    family: str, dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any
) -> prosect.Lens:
    """The same, opened with a tokenizer of the kind that the family uses."""
    model = random_model(family, dtype, seed, **options)
    return prosect.Lens(model, FAMILIES[family].tokenizer(), name=family)


WINDOWS: dict[str, tuple[dict[str, Any], int, int, tuple[int, ...]]] = {
    "mistral": ({"sliding_window": 12}, 11, 0, (0, 1, 2)),
    "gemma2": ({"sliding_window": 16}, 15, 0, (0, 2)),
    "gemma3": ({"sliding_window": 16}, 15, 0, (0, 1, 2)),
    "modernbert": ({"local_attention": 20}, 10, 10, (1, 2)),
    "gpt-neo": ({"window_size": 12}, 11, 0, (1, 3)),
    "qwen3": (
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        *(15, 0, (1, 2)),
    ),
}
"""Families with windows wider than their heads: how to set one, how many tokens before and after a
token it sees then, and in which layers; the others see all, or all before it."""


def within_window(family: str, layer: int, n: int) -> torch.Tensor:
    """Which sources each target of n tokens may attend to, [target, source]."""
    _, before, after, local = WINDOWS[family]
    if layer not in local:
        before, after = n, (n if after else 0)
    distance = torch.arange(n)[:, None] - torch.arange(n)
    return (distance <= before) & (-distance <= after)
