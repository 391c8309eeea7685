"""The terms of every family, written out plainly from the weights.

Nothing here knows the package's anatomy or its recurrence. A vector that joins the stream is found
in a later state times G, the product of g/σ over the norms in between; a norm adds b and −m·g/σ
(Mickus et al. 2022). Weights are read from the model by the names they have there, and the model's
own norms, activations and projections are run as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import prosect
from support.families import FAMILIES, family_of


def tolerance(stack: str) -> float:
    """How far float64 formulas may be off: on the way these families compute in float32."""
    family = FAMILIES[family_of(stack)]
    return 1e-6 if family.float32_gains or family.float32_softmax else 1e-12


@dataclass
class Map:
    """x W + b, with W as [in, out]."""

    W: Tensor
    b: Tensor | None


def linear(module: Any, rows: slice | Tensor = slice(None)) -> Map:
    """What nn.Linear computes; of its outputs only some."""
    return Map(module.weight[rows].T, None if module.bias is None else module.bias[rows])


def third_of_each_head(module: Any, heads: int) -> Map:
    """The values where a layer's outputs are [head, (query, key, value), d_head]."""
    numbers = torch.arange(len(module.weight)).view(heads, 3, -1)
    return linear(module, numbers[:, 2].reshape(-1))


@dataclass
class Attends:
    """Attention: Σ over heads of α (x W_V) W_O."""

    value: Map
    output: Map
    before: Any = None
    after: Any = None
    norm: Any = None
    term: str = "attention"


@dataclass
class Feeds:
    """A feed-forward: neurons(x) W."""

    neurons: Callable[[Tensor], Tensor]
    output: Map
    before: Any = None
    after: Any = None
    norm: Any = None
    term: str = "feed_forward"


@dataclass
class Model:
    """A stack as its family's files in transformers have it.

    ``before`` is the norm of a sublayer's input, ``after`` that of what it writes, ``norm`` that of
    the stream when it has been written.
    """

    embeddings: dict[str, Tensor]
    layers: list[list[Attends | Feeds]]
    stem: list[Any] = field(default_factory=list)
    final: Any = None
    parallel: bool = False


def _mlp(act: Any, first: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: act(first(x))


def _gated(act: Any, gate: Any, up: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: act(gate(x)) * up(x)


# --- families -----------------------------------------------------------------------------------


def _looked_up(embeddings: Any, ids: Tensor, first: int = 0) -> dict[str, Tensor]:
    """Word, position and type vectors of one text; positions count from ``first``."""
    found = {"word": embeddings.word_embeddings.weight[ids]}
    positions = getattr(embeddings, "position_embeddings", None)
    if positions is not None:
        found["position"] = positions.weight[first : first + len(ids)]
    types = getattr(embeddings, "token_type_embeddings", None)
    if types is not None:
        found["type"] = types.weight[torch.zeros_like(ids)]
    return found


def _bert_layer(layer: Any, value: Any, attended: Any) -> list[Attends | Feeds]:
    fed = layer.output
    return [
        Attends(linear(value), linear(attended.dense), norm=attended.LayerNorm),
        Feeds(layer.intermediate, linear(fed.dense), norm=fed.LayerNorm),
    ]


def _bert(base: Any, ids: Tensor) -> Model:
    own = base.embeddings
    after_padding = base.config.model_type in ("roberta", "xlm-roberta", "camembert")
    return Model(
        _looked_up(own, ids, own.padding_idx + 1 if after_padding else 0),
        [
            _bert_layer(layer, layer.attention.self.value, layer.attention.output)
            for layer in base.encoder.layer
        ],
        stem=[own.LayerNorm, *_there(base, "embeddings_project")],
    )


def _there(module: Any, name: str) -> list[Any]:
    found = getattr(module, name, None)
    return [] if found is None else [found]


def _deberta(base: Any, ids: Tensor) -> Model:
    own = base.embeddings
    return Model(
        _looked_up(own, ids),
        [
            _bert_layer(layer, layer.attention.self.value_proj, layer.attention.output)
            for layer in base.encoder.layer
        ],
        stem=[*_there(own, "embed_proj"), own.LayerNorm],
    )


def _mpnet(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own = layer.attention
        return [
            Attends(linear(own.attn.v), linear(own.attn.o), norm=own.LayerNorm),
            Feeds(layer.intermediate, linear(layer.output.dense), norm=layer.output.LayerNorm),
        ]

    own = base.embeddings
    return Model(
        _looked_up(own, ids, own.padding_idx + 1),
        [layer_of(layer) for layer in base.encoder.layer],
        stem=[own.LayerNorm],
    )


def _albert(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own = layer.attention
        return [
            Attends(linear(own.value), linear(own.dense), norm=own.LayerNorm),
            Feeds(
                _mlp(layer.activation, layer.ffn),
                linear(layer.ffn_output),
                norm=layer.full_layer_layer_norm,
            ),
        ]

    config, encoder = base.config, base.encoder
    layers = []
    for number in range(config.num_hidden_layers):
        group = number * config.num_hidden_groups // config.num_hidden_layers
        layers += [layer_of(one) for one in encoder.albert_layer_groups[group].albert_layers]
    return Model(
        _looked_up(base.embeddings, ids),
        layers,
        stem=[base.embeddings.LayerNorm, encoder.embedding_hidden_mapping_in],
    )


def _distilbert(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, fed = layer.attention, layer.ffn
        return [
            Attends(linear(own.v_lin), linear(own.out_lin), norm=layer.sa_layer_norm),
            Feeds(_mlp(fed.activation, fed.lin1), linear(fed.lin2), norm=layer.output_layer_norm),
        ]

    return Model(
        _looked_up(base.embeddings, ids),
        [layer_of(layer) for layer in base.transformer.layer],
        stem=[base.embeddings.LayerNorm],
    )


def _modernbert(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        def neurons(x: Tensor) -> Tensor:
            first, second = layer.mlp.Wi(x).chunk(2, dim=-1)
            return layer.mlp.act(first) * second

        last_third = slice(2 * base.config.hidden_size, None)
        own = layer.attn
        return [
            Attends(linear(own.Wqkv, last_third), linear(own.Wo), before=layer.attn_norm),
            Feeds(neurons, linear(layer.mlp.Wo), before=layer.mlp_norm),
        ]

    return Model(
        {"word": base.embeddings.tok_embeddings.weight[ids]},
        [layer_of(layer) for layer in base.layers],
        stem=[base.embeddings.norm],
        final=base.final_norm,
    )


def _gpt2(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        d = len(base.wte.weight[0])
        qkv, output, mlp = layer.attn.c_attn, layer.attn.c_proj, layer.mlp
        value = Map(qkv.weight[:, 2 * d :], qkv.bias[2 * d :])
        return [
            Attends(value, Map(output.weight, output.bias), before=layer.ln_1),
            Feeds(
                _mlp(mlp.act, mlp.c_fc), Map(mlp.c_proj.weight, mlp.c_proj.bias), before=layer.ln_2
            ),
        ]

    embeddings = {"word": base.wte.weight[ids], "position": base.wpe.weight[: len(ids)]}
    return Model(embeddings, [layer_of(layer) for layer in base.h], final=base.ln_f)


def _gpt_neo(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp = layer.attn.attention, layer.mlp
        return [
            Attends(linear(own.v_proj), linear(own.out_proj), before=layer.ln_1),
            Feeds(_mlp(mlp.act, mlp.c_fc), linear(mlp.c_proj), before=layer.ln_2),
        ]

    embeddings = {"word": base.wte.weight[ids], "position": base.wpe.weight[: len(ids)]}
    return Model(embeddings, [layer_of(layer) for layer in base.h], final=base.ln_f)


def _gpt_neox(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp = layer.attention, layer.mlp
        value = third_of_each_head(own.query_key_value, base.config.num_attention_heads)
        return [
            Attends(value, linear(own.dense), before=layer.input_layernorm),
            Feeds(
                _mlp(mlp.act, mlp.dense_h_to_4h),
                linear(mlp.dense_4h_to_h),
                before=layer.post_attention_layernorm,
            ),
        ]

    return Model(
        {"word": base.embed_in.weight[ids]},
        [layer_of(layer) for layer in base.layers],
        final=base.final_layer_norm,
        parallel=base.config.use_parallel_residual,
    )


def _gptj(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp = layer.attn, layer.mlp
        return [
            Attends(linear(own.v_proj), linear(own.out_proj), before=layer.ln_1),
            Feeds(_mlp(mlp.act, mlp.fc_in), linear(mlp.fc_out), before=layer.ln_1),
        ]

    embeddings = {"word": base.wte.weight[ids]}
    layers = [layer_of(layer) for layer in base.h]
    return Model(embeddings, layers, final=base.ln_f, parallel=True)


def _phi(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp, norm = layer.self_attn, layer.mlp, layer.input_layernorm
        return [
            Attends(linear(own.v_proj), linear(own.dense), before=norm),
            Feeds(_mlp(mlp.activation_fn, mlp.fc1), linear(mlp.fc2), before=norm),
        ]

    embeddings = {"word": base.embed_tokens.weight[ids]}
    layers = [layer_of(layer) for layer in base.layers]
    return Model(embeddings, layers, final=base.final_layernorm, parallel=True)


def _bloom(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp = layer.self_attention, layer.mlp
        return [
            Attends(
                third_of_each_head(own.query_key_value, base.config.n_head),
                linear(own.dense),
                before=layer.input_layernorm,
            ),
            Feeds(
                _mlp(mlp.gelu_impl, mlp.dense_h_to_4h),
                linear(mlp.dense_4h_to_h),
                before=layer.post_attention_layernorm,
            ),
        ]

    return Model(
        {"word": base.word_embeddings.weight[ids]},
        [layer_of(layer) for layer in base.h],
        stem=[base.word_embeddings_layernorm],
        final=base.ln_f,
    )


def _opt(base: Any, ids: Tensor) -> Model:
    place = "before" if base.config.do_layer_norm_before else "norm"

    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own = layer.self_attn
        attends = Attends(linear(own.v_proj), linear(own.out_proj))
        feeds = Feeds(_mlp(layer.activation_fn, layer.fc1), linear(layer.fc2))
        setattr(attends, place, layer.self_attn_layer_norm)
        setattr(feeds, place, layer.final_layer_norm)
        return [attends, feeds]

    stack = base.decoder
    word = stack.embed_tokens.weight[ids]
    if stack.project_in is not None:
        word = word @ stack.project_in.weight.T
    position = stack.embed_positions.weight[2 : 2 + len(ids)]
    layers = [layer_of(layer) for layer in stack.layers]
    return Model({"word": word, "position": position}, layers, final=stack.final_layer_norm)


def _llama(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, mlp = layer.self_attn, layer.mlp
        attends = Attends(linear(own.v_proj), linear(own.o_proj))
        feeds = Feeds(_gated(mlp.act_fn, mlp.gate_proj, mlp.up_proj), linear(mlp.down_proj))
        match base.config.model_type:
            case "olmo2":
                attends.after = layer.post_attention_layernorm
                feeds.after = layer.post_feedforward_layernorm
            case "gemma2" | "gemma3_text":
                attends.before = layer.input_layernorm
                attends.after = layer.post_attention_layernorm
                feeds.before = layer.pre_feedforward_layernorm
                feeds.after = layer.post_feedforward_layernorm
            case _:
                attends.before = layer.input_layernorm
                feeds.before = layer.post_attention_layernorm
        return [attends, feeds]

    gemma = base.config.model_type.startswith("gemma")
    scale = base.config.hidden_size**0.5 if gemma else 1.0
    embeddings = {"word": scale * base.embed_tokens.weight[ids]}
    return Model(embeddings, [layer_of(layer) for layer in base.layers], final=base.norm)


def _t5(base: Any, ids: Tensor) -> Model:
    def layer_of(block: Any) -> list[Attends | Feeds]:
        first, *cross, last = block.layer
        own, fed = first.SelfAttention, last.DenseReluDense
        gated = hasattr(fed, "wi_0")
        neurons = _gated(fed.act, fed.wi_0, fed.wi_1) if gated else _mlp(fed.act, fed.wi)
        return [
            Attends(linear(own.v), linear(own.o), before=first.layer_norm),
            *(
                Attends(
                    linear(one.EncDecAttention.v),
                    linear(one.EncDecAttention.o),
                    before=one.layer_norm,
                    term="source",
                )
                for one in cross
            ),
            Feeds(neurons, linear(fed.wo), before=last.layer_norm),
        ]

    embeddings = {"word": base.embed_tokens.weight[ids]}
    return Model(embeddings, [layer_of(block) for block in base.block], final=base.final_layer_norm)


def _bart(base: Any, ids: Tensor) -> Model:
    def layer_of(layer: Any) -> list[Attends | Feeds]:
        own, cross = layer.self_attn, getattr(layer, "encoder_attn", None)
        sublayers: list[Attends | Feeds] = [
            Attends(linear(own.v_proj), linear(own.out_proj), norm=layer.self_attn_layer_norm)
        ]
        if cross is not None:
            value, output = linear(cross.v_proj), linear(cross.out_proj)
            norm = layer.encoder_attn_layer_norm
            sublayers.append(Attends(value, output, norm=norm, term="source"))
        neurons = _mlp(layer.activation_fn, layer.fc1)
        return [*sublayers, Feeds(neurons, linear(layer.fc2), norm=layer.final_layer_norm)]

    config = base.config
    first = 2 if config.model_type == "bart" else 0
    return Model(
        {
            "word": config.d_model**0.5 * base.embed_tokens.weight[ids],
            "position": base.embed_positions.weight[first : first + len(ids)],
        },
        [layer_of(layer) for layer in base.layers],
        stem=_there(base, "layernorm_embedding"),
    )


_READ: dict[str, Callable[[Any, Tensor], Model]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _bert),
    "deberta-v2": _deberta,
    "mpnet": _mpnet,
    "albert": _albert,
    "distilbert": _distilbert,
    "modernbert": _modernbert,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "phi": _phi,
    "bloom": _bloom,
    "opt": _opt,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3"), _llama),
    **dict.fromkeys(("gemma2", "gemma3_text", "olmo2"), _llama),
    "t5": _t5,
    "bart": _bart,
    "marian": _bart,
}


def model_of(trace: prosect.Trace) -> Model:
    """The stack that was traced, with the embeddings of the trace's tokens."""
    model: Any = trace.lens.model
    kind = model.config.model_type
    if kind in ("t5", "bart", "marian"):
        base = model.get_encoder() if trace.encoder is None else model.get_decoder()
    else:
        base = model.base_model
    return _READ[kind](base, torch.tensor([token.id for token in trace.tokens]))


# --- the sums -----------------------------------------------------------------------------------


@dataclass
class Joined:
    """A vector that joined the stream when ``norms`` norms had acted on it."""

    term: str
    layer: int
    norms: int
    vector: Tensor
    name: str | None = None


@dataclass
class Scaled:
    """How a norm acts: x becomes scale · x + rest, with scale g/σ and rest b − scale · m."""

    scale: Tensor
    rest: Tensor

    @classmethod
    def by(cls, norm: Any, x: Tensor) -> Scaled:
        """The model's norm when it sees x."""
        epsilon = next(
            getattr(norm, name) for name in ("eps", "variance_epsilon") if _has(norm, name)
        )
        kind = type(norm).__name__
        gain = norm.weight + 1.0 if kind.startswith("Gemma") else norm.weight
        if "RMS" in kind or kind.startswith("T5"):
            scale = gain / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()
            return cls(scale, torch.zeros_like(x))
        scale = gain / (x.var(-1, unbiased=False, keepdim=True) + epsilon).sqrt()
        return cls(scale, norm.bias - scale * x.mean(-1, keepdim=True))


def _has(module: Any, name: str) -> bool:
    return getattr(module, name, None) is not None


def sent(
    alpha: Tensor, x: Tensor, attends: Attends, head: int, *, with_bias: bool = False
) -> Tensor:
    """What each source token sent to each target through a head, [source, target, d]."""
    heads = len(alpha)
    size = len(attends.output.W) // heads
    shared = heads // (attends.value.W.shape[1] // size)
    value_columns = slice(head // shared * size, (head // shared + 1) * size)
    values = x @ attends.value.W[:, value_columns]
    if with_bias and attends.value.b is not None:
        values = values + attends.value.b[value_columns]
    through = values @ attends.output.W[head * size : (head + 1) * size]
    return torch.stack(
        [alpha[head, :, source, None] * through[source] for source in range(len(through))]
    )


class Plain:
    """A trace decomposed by the formulas."""

    def __init__(self, trace: prosect.Trace) -> None:
        self.model = model_of(trace)
        self.trace = trace
        self.norms: list[Scaled] = []
        self.joined: list[Joined] = []
        self.ends: list[int] = []
        self.inputs: dict[tuple[int, str], Tensor] = {}
        """What each sublayer reads, by layer and term; cross-attention: what it attends to."""
        with torch.no_grad():
            self._start()
            self._run()

    def _start(self) -> None:
        pieces = dict(self.model.embeddings)
        constant = torch.zeros_like(pieces["word"])
        for step in self.model.stem:
            if isinstance(step, nn.Linear):
                pieces = {name: piece @ step.weight.T for name, piece in pieces.items()}
                constant = constant @ step.weight.T + (0.0 if step.bias is None else step.bias)
            else:
                norm = Scaled.by(step, torch.stack(list(pieces.values())).sum(0) + constant)
                pieces = {name: norm.scale * piece for name, piece in pieces.items()}
                constant = norm.scale * constant + norm.rest
        for name, piece in pieces.items():
            self.joined.append(Joined("input", 0, 0, piece, name))
        self.joined.append(Joined("bias", 0, 0, constant))
        self.ends.append(0)

    def _run(self) -> None:
        layers = self.model.layers
        for number, layer in enumerate(layers, start=1):
            x = entry = self.trace.hidden[number - 1]
            for sublayer in layer:
                seen = entry if self.model.parallel else x
                if sublayer.before is not None:
                    seen = sublayer.before(seen)
                x = x + self._sublayer(sublayer, number, seen)
                if sublayer.norm is not None:
                    self.norms.append(Scaled.by(sublayer.norm, x))
                    x = sublayer.norm(x)
            if number == len(layers) and self.model.final is not None:
                self.norms.append(Scaled.by(self.model.final, x))
            self.ends.append(len(self.norms))

    def _sublayer(self, sublayer: Attends | Feeds, number: int, seen: Tensor) -> Tensor:
        """Keep what the sublayer writes, and what of it is bias; returns the whole."""
        if isinstance(sublayer, Feeds):
            mine = sublayer.neurons(seen) @ sublayer.output.W
            bias = torch.zeros(1) if sublayer.output.b is None else sublayer.output.b
        else:
            alpha = self.alpha(number, sublayer.term)
            if sublayer.term == "source":
                assert self.trace.encoder is not None
                seen = self.trace.encoder.hidden[-1]
            each = [sent(alpha, seen, sublayer, head).sum(0) for head in range(len(alpha))]
            mine = torch.stack(each).sum(0)
            bias = self._attention_bias(sublayer, len(alpha))
        self.inputs[number, sublayer.term] = seen
        bias = bias + torch.zeros_like(mine)
        if sublayer.after is not None:
            norm = Scaled.by(sublayer.after, mine + bias)
            mine, bias = norm.scale * mine, norm.scale * bias + norm.rest
        self.joined.append(Joined(sublayer.term, number, len(self.norms), mine))
        self.joined.append(Joined("bias", number, len(self.norms), bias))
        return mine + bias

    def alpha(self, layer: int, term: str) -> Tensor:
        """The attention weights of a layer, from 1."""
        weights = self.trace.cross_attention if term == "source" else self.trace.attention
        assert weights is not None
        return weights[layer - 1]

    @staticmethod
    def _attention_bias(attends: Attends, heads: int) -> Tensor:
        """b_O + b_V W_O: every row of α sums to 1."""
        W_O, bias = attends.output.W, torch.zeros(1)
        if attends.value.b is not None:
            size = len(W_O) // heads
            shared = heads * size // len(attends.value.b)
            for head in range(heads):
                own = attends.value.b[head // shared * size : (head // shared + 1) * size]
                bias = bias + own @ W_O[head * size : (head + 1) * size]
        return bias if attends.output.b is None else bias + attends.output.b

    def G(self, first: int, last: int) -> Tensor | float:
        """The product of g/σ over norms first, …, last − 1, counted from 0."""
        product: Tensor | float = 1.0
        for norm in self.norms[first:last]:
            product = norm.scale * product
        return product

    def parts(self, state: int, **wanted: object) -> Tensor:
        """What the vectors that agree with ``wanted`` are in a hidden state, [token, d]."""
        last = self.ends[state]
        total = torch.zeros_like(self.trace.hidden[state])
        for one in self.joined:
            if one.layer <= state and all(getattr(one, k) == v for k, v in wanted.items()):
                total = total + self.G(one.norms, last) * one.vector
        return total

    def term(self, state: int, term: str) -> Tensor:
        """A term of a hidden state, [token, d]."""
        total = self.parts(state, term=term)
        if term == "bias":
            for number, norm in enumerate(self.norms[: self.ends[state]]):
                total = total + self.G(number + 1, self.ends[state]) * norm.rest
        return total
