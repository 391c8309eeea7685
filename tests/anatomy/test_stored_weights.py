"""Weights that are no plain parameter give what the equivalent plain model gives, or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from transformers.pytorch_utils import Conv1D

import prosect
from prosect.anatomy.vocabulary import Dense, Norm
from prosect.anatomy.weights import StoredWeight
from support.families import FAMILIES, TEXTS, random_model, word_pieces


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


class Packed(torch.Tensor):
    """A quantised weight in the manner of torchao: numbers are made when it is used."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.as_subclass(torch.Tensor) / 2 if type(arg) is cls else arg for arg in args]
        if func is nn.functional.linear:
            return func(*plain, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


class Halved(nn.Linear):
    """A linear layer that computes with something else than its weight."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.linear(input, self.weight / 2, self.bias)


class Rounding(nn.Linear):
    """A layer that quantises what it reads."""

    def forward(self, input: Tensor) -> Tensor:
        scale = input.abs().max().clamp_min(1e-9) / 127
        return super().forward((input / scale).round() * scale)


def layers_of(model: Any) -> list[Any]:
    """Some linear layers of a BERT: of values, of attention and of the feed-forward."""
    layer = model.base_model.encoder.layer[1]
    return [
        layer.attention.self.query,
        layer.attention.self.value,
        layer.attention.output.dense,
        layer.intermediate.dense,
        layer.output.dense,
    ]


def double(layer: nn.Linear) -> None:
    parametrize.register_parametrization(layer, "weight", Doubled())


def weight_norm(layer: nn.Linear) -> None:
    parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(1.5)  # pyright: ignore


def old_weight_norm(layer: nn.Linear) -> None:
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer)
    with torch.no_grad():
        layer.get_parameter("weight_g").mul_(1.5)  # the attribute is stale until a forward pass


def spectral_norm(layer: nn.Linear) -> None:
    parametrizations.spectral_norm(layer)


def old_spectral_norm(layer: nn.Linear) -> None:
    nn.utils.spectral_norm(layer)
    layer.eval()


def pruned(layer: nn.Linear) -> None:
    prune.l1_unstructured(layer, "weight", amount=0.5)
    prune.l1_unstructured(layer, "bias", amount=0.5)
    prune.random_unstructured(layer, "weight", amount=0.2)
    with torch.no_grad():
        layer.weight_orig.mul_(1.5)  # pyright: ignore


def of_class(kind: type[nn.Linear]) -> Callable[[nn.Linear], None]:
    def change(layer: nn.Linear) -> None:
        layer.__class__ = kind

    return change


def packed(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Packed), requires_grad=False)


def plain_twin(model: Any) -> Any:
    """The same model with plain weights, those that its layers compute with."""
    twin = random_model("bert")
    for ours, theirs in zip(layers_of(model), layers_of(twin), strict=True):
        unit = torch.eye(ours.in_features, dtype=torch.float64)
        with torch.no_grad():
            theirs.bias.copy_(ours(0 * unit[:1])[0])
            theirs.weight.copy_((ours(unit) - theirs.bias).T)
    return twin


@pytest.mark.parametrize(
    "change",
    [
        double,
        weight_norm,
        old_weight_norm,
        spectral_norm,
        old_spectral_norm,
        pruned,
        of_class(Halved),
        packed,
    ],
    ids=lambda change: getattr(change, "__name__", "subclass"),
)
def test_computed_weights_give_what_plain_ones_give(change: Callable[[nn.Linear], None]) -> None:
    model = random_model("bert")
    for layer in layers_of(model):
        change(layer)
    model.eval()
    dense = Dense(layers_of(model)[0])
    x = torch.randn(3, 32, dtype=torch.float64)
    stale = x @ dense.weight + dense.bias  # read before any forward pass
    assert torch.allclose(stale, dense.module(x), rtol=0, atol=1e-12)
    plain = prosect.Lens(plain_twin(model), word_pieces()).trace(TEXTS[0])
    trace = prosect.Lens(model, word_pieces()).trace(TEXTS[0])
    assert not torch.allclose(trace.hidden, model_trace().hidden, atol=1e-3) or change in (
        spectral_norm,
        old_spectral_norm,
    )
    for kind in ("ATBFFRESLN", "value_zeroing"):
        got, expected = trace.map(kind), plain.map(kind)
        assert (got.values - expected.values).abs().max() < 1e-10 * expected.values.abs().max()
        assert got.error < 1e-10
    got, expected = (one.attribution(probes=2).values for one in (trace, plain))
    assert (got - expected).abs().max() < 1e-10


def model_trace() -> prosect.Trace:
    return prosect.Lens(random_model("bert"), word_pieces()).trace(TEXTS[0])


def test_reading_computed_weights_changes_nothing_in_training() -> None:
    """In training mode spectral norm takes a step of its power iteration at each reading."""
    layer = nn.Linear(5, 5)
    spectral_norm(layer)
    layer.train()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    assert torch.equal(Dense(layer).weight, Dense(layer).weight)
    assert layer.training
    assert all(torch.equal(before[name], t) for name, t in layer.state_dict().items())


def test_a_parametrised_gain_is_that_of_the_norm() -> None:
    norm = nn.LayerNorm(4)
    parametrize.register_parametrization(norm, "weight", Doubled())
    assert torch.equal(Norm(norm).gain, torch.full((4,), 2.0))
    assert not Norm(norm).gain.requires_grad  # pyright: ignore


@pytest.mark.parametrize("columns", [None, slice(2, 4)])
def test_a_plain_weight_is_a_view(columns: slice | None) -> None:
    for layer in (nn.Linear(3, 6), Conv1D(6, 3)):
        weight = Dense(layer, columns).weight
        assert weight.untyped_storage().data_ptr() == layer.weight.untyped_storage().data_ptr()
        assert not weight.requires_grad


def test_a_weight_says_which_tensors_it_is_made_of() -> None:
    layer = nn.Linear(3, 6)
    (own,) = Dense(layer).stored.tensors
    assert own is layer.weight
    other = torch.ones(6, 3)
    assert torch.equal(Dense(layer, slice(0, 2)).stored.make(other), torch.ones(3, 2))
    low, high = torch.randn(2, 3), torch.randn(6, 2)
    summed = Dense(layer).stored.plus_product(low, high, 0.5)
    assert [id(tensor) for tensor in summed.tensors] == [id(layer.weight), id(low), id(high)]
    expected = layer.weight.T + 0.5 * (high @ low).T
    assert torch.allclose(summed.read(), expected)


def test_half_precision_is_not_rounded_again_by_an_adapter() -> None:
    own = torch.randn(4, 4).bfloat16()
    low, high = torch.randn(1, 4), 1e-4 * torch.randn(4, 1)
    stored = StoredWeight("weight", (own,), lambda tensor: tensor).plus_product(low, high, 1.0)
    assert stored.read().dtype == torch.float32
    assert torch.equal(stored.read(), own.float() + (high @ low).T)


@pytest.mark.parametrize("inference", [False, True])
def test_weights_are_read_alike_under_autocast_and_inference_mode(inference: bool) -> None:
    low, high = torch.randn(2, 4), torch.randn(4, 2)
    own = torch.randn(4, 4)
    stored = StoredWeight("weight", (own,), lambda tensor: tensor).plus_product(low, high, 1.0)
    expected = stored.read()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(inference):
        got = stored.read()
    assert torch.equal(got, expected)
    assert not got.is_inference()


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_a_model_without_values_is_refused(family: str) -> None:
    model = random_model(family).to("meta")
    with pytest.raises(prosect.UnsupportedModelError, match="is on the meta device") as raised:
        prosect.Lens(model, FAMILIES[family].tokenizer())
    assert "weight" in str(raised.value)


def test_layers_that_quantise_what_they_read_are_refused() -> None:
    model = random_model("bert")
    layers_of(model)[2].__class__ = Rounding
    with pytest.raises(prosect.UnsupportedModelError, match="Rounding does not compute x W"):
        prosect.Lens(model, word_pieces())


def test_a_forward_that_was_replaced_in_one_layer_is_tried_out() -> None:
    model = random_model("bert")
    layer = layers_of(model)[2]
    own = layer.forward
    layer.forward = lambda x: own(x)
    assert prosect.Lens(model, word_pieces()).trace(TEXTS[0]).map("ATB").error < 1e-12
    layer.forward = lambda x: own(x).relu()
    with pytest.raises(prosect.UnsupportedModelError, match="does not compute x W"):
        prosect.Lens(model, word_pieces())


def test_dynamic_int8_is_refused() -> None:
    model = random_model("bert", torch.float32)
    with pytest.warns(DeprecationWarning, match="quantization"):
        int8: Any = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)
    with pytest.raises(prosect.UnsupportedModelError, match="load the model unquantised") as raised:
        prosect.Lens(int8, word_pieces())
    assert "\n" not in str(raised.value)
    assert not prosect.doctor(int8)["trace"].supported


def test_a_weight_that_something_unknown_computes_is_refused() -> None:
    model = random_model("bert")
    layer = layers_of(model)[0]
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    with pytest.raises(prosect.UnsupportedModelError, match="is no parameter of it"):
        prosect.Lens(model, word_pieces())


def test_what_is_no_linear_layer_is_refused() -> None:
    model = random_model("bert")
    layer = model.base_model.encoder.layer[1]
    layer.attention.output.dense = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
    with pytest.raises(prosect.UnsupportedModelError, match="Sequential stands where a linear"):
        prosect.Lens(model, word_pieces())
