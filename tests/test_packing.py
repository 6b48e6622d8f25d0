"""Packed layers: the right numbers, in any company, and plain layers where a kernel is missing."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gpt2cli import packing
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.exactness import row_exact, steady
from gpt2cli.loader import load
from gpt2cli.model import GPT2, KVCache, gelu_tanh, padded_keys
from gpt2cli.presets import weights_folder

SHAPES = [(24, 72), (64, 64), (192, 576), (768, 192), (192, 1001)]
EXACT = ["float32", "int8"]

# Relative to the largest output: rounding of 24, 11, 8 and 7 bits over sums of up to 768 terms.
ERROR = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "int8": 1.5e-2}


@pytest.fixture(scope="module")
def austen() -> Checkpoint:
    return Checkpoint.open(weights_folder() / "austen")


@pytest.fixture(autouse=True)
def fresh_probes() -> Iterator[None]:
    packing._works.cache_clear()
    yield
    packing._works.cache_clear()


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(kind: str, weight: Tensor) -> nn.Module:
        raise AttributeError(kind)

    monkeypatch.setattr(packing, "_trial", missing)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("dtype", packing.DTYPES)
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES)
def test_a_layer_computes_what_its_weights_say(monkeypatch, kernels, dtype, n_in, n_out):
    if not kernels:
        without_kernels(monkeypatch)
    weight, bias, x = numbers(n_in, n_out), numbers(n_out, seed=1), numbers(2, 5, n_in, seed=2)
    out = packing.dense(dtype, weight, bias)(x)
    expected = x.double() @ weight.double() + bias.double()
    assert out.shape == (2, 5, n_out)
    assert out.dtype == torch.float32
    assert (out - expected).abs().max() < ERROR[dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES)
def test_a_rows_result_is_bit_equal_beside_any_others_even_an_outlier(dtype, n_in, n_out):
    layer = packing.dense(dtype, numbers(n_in, n_out), numbers(n_out, seed=1))
    x = numbers(513, n_in, seed=2)
    x[3] *= 1e4
    alone = torch.cat([layer(row[None]) for row in x])
    for rows in [*range(2, 41), 64, 130, 512, 513]:
        assert torch.equal(layer(x[:rows]), alone[:rows]), rows


def test_many_rows_go_in_parts_where_together_their_sums_differ(monkeypatch):
    layer, x = packing.dense("float32", numbers(24, 72), None), numbers(130, 24)
    expected = torch.cat([layer(part) for part in x.split(10)])
    linear = packing._PackedFloat32._linear
    monkeypatch.setattr(packing, "_ALIKE", {})
    monkeypatch.setattr(
        packing._PackedFloat32, "_linear", lambda self, x: linear(self, x) + float(len(x) > 100)
    )
    for _ in range(2):  # as found out, and as remembered
        assert torch.equal(layer(x), expected)
    assert [*packing._ALIKE.values()] == [False]


@pytest.mark.parametrize("dtype", packing.DTYPES)
def test_rows_and_weights_of_zeros_are_no_nan(dtype):
    weight = numbers(24, 72)
    weight[:, 5] = 0
    out = packing.dense(dtype, weight, None)(torch.zeros(3, 24))
    assert torch.equal(out, torch.zeros(3, 72))


def test_weights_beyond_float16_stay_float32():
    weight = numbers(24, 72)
    weight[0, 0] = 70000.0
    x = numbers(3, 24)
    torch.testing.assert_close(packing.dense("float16", weight, None)(x), x @ weight)


@pytest.mark.parametrize("dtype", packing.DTYPES)
def test_a_layer_keeps_none_of_the_memory_it_was_made_from(dtype):
    weight, bias, x = numbers(24, 72), numbers(72), numbers(3, 24)
    layer = packing.dense(dtype, weight, bias)
    before = layer(x)
    weight.fill_(0)
    bias.fill_(0)
    assert torch.equal(layer(x), before)


def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch):
    wrong = packing._PackedFloat32(numbers(64, 16), None)
    monkeypatch.setattr(packing, "_trial", lambda kind, weight: wrong)
    assert isinstance(packing.dense("int8", numbers(24, 72), None), packing._Plain)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_layer_on_another_device_is_plain(dtype):
    layer = packing.dense(dtype, numbers(24, 72).to("meta"), None)
    assert layer(numbers(3, 24).to("meta")).shape == (3, 72)


@pytest.mark.parametrize("dtype", EXACT)
def test_a_position_has_the_same_logits_in_any_chunks_and_beside_any_rows(austen, dtype):
    model = load(austen, dtype=dtype)
    assert model.row_exact
    ids = torch.randint(4096, (3, 420), generator=torch.Generator().manual_seed(4))
    whole = model(ids, cache(model, 3))
    for sizes in ([1] * 12 + [7, 30, 371], [185] + [1] * 12 + [223], [419, 1], [8, 16, 396]):
        alone = cache(model, 1)
        parts = [model(part, alone) for part in ids[:1].split(sizes, dim=1)]
        assert torch.equal(torch.cat(parts, dim=1), whole[:1]), sizes


def cache(model: GPT2, rows: int) -> KVCache:
    return KVCache.empty(model.config, rows, 420)


def test_keys_are_padded_to_where_the_sums_of_attention_keep_their_order():
    sizes = {n: padded_keys(n) for n in (1, 64, 65, 192, 193, 384, 385, 512, 513, 705, 1024)}
    assert sizes == {
        1: 64, 64: 64, 65: 128, 192: 192, 193: 384, 384: 384, 385: 448, 512: 512,
        513: 576, 705: 896, 1024: 1024,
    }  # fmt: skip


@pytest.mark.parametrize(("threads", "width"), [(1, 80), (2, 768), (7, 3072)])
def test_an_activation_gives_a_row_the_same_bits_however_threads_share_it_out(threads, width):
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        activation, x = steady(gelu_tanh, width), numbers(90, width)
        alone = torch.cat([activation(row) for row in x.split(1)])
        assert all(torch.equal(activation(x[:rows]), alone[:rows]) for rows in range(2, 91))
    finally:
        torch.set_num_threads(usual)
    torch.testing.assert_close(alone, gelu_tanh(x))
    assert activation(x.view(9, 10, width)).shape == (9, 10, width)


class _Unsteady(nn.Module):
    """A layer whose rows depend on how many there are."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + 1e-6 * x.shape[1]
        return out


@pytest.mark.parametrize("place", ["h.0.attn.c_proj", "h.0.mlp.c_fc", "lm_head"])
def test_a_kernel_that_is_not_row_exact_is_found_out(austen, place):
    model = load(austen)
    assert row_exact(model)
    model.set_submodule(place, _Unsteady(model.get_submodule(place)))
    assert not row_exact(model)


# int8 against the quality of llama.cpp's q8_0: weights and activations in blocks of 32 with a
# scale each (https://github.com/ggml-org/llama.cpp, ggml-quants.c)


class _Blocks(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = _in_blocks(weight.T).T, bias

    def forward(self, x: Tensor) -> Tensor:
        out = _in_blocks(x) @ self.weight
        return out if self.bias is None else out + self.bias


def _in_blocks(x: Tensor) -> Tensor:
    blocks = x.unflatten(-1, (-1, 32))
    scale = (blocks.abs().amax(-1, keepdim=True) / 127).half().float().clamp(min=1e-30)
    return ((blocks / scale).round() * scale).flatten(-2)


def _with_layers(model: GPT2, make) -> GPT2:
    """A plain network with every dense layer made anew by `make(weight, bias)`."""
    for name, layer in [*model.named_modules()]:
        if name.endswith(("c_attn", "c_proj", "c_fc")):
            model.set_submodule(name, make(layer.weight, layer.bias))
    model.lm_head = make(model.wte.weight.T, None)
    return model


def _planted(model: GPT2) -> GPT2:
    """The same function with outlier channels: gains × 40, and the rows that read them ÷ 40."""
    for block in model.h:
        for norm, layer in ((block.ln_1, block.attn.c_attn), (block.ln_2, block.mlp.c_fc)):
            for parameter, factor in ((norm.weight, 40), (norm.bias, 40), (layer.weight, 1 / 40)):
                parameter.data = parameter.data.clone()
                parameter.data[[7, 90, 150]] *= factor
    return model


@pytest.mark.parametrize("change", [lambda model: model, _planted], ids=["austen", "outliers"])
def test_int8_loses_no_more_than_blocks_of_eight_bits(austen, change):
    ids = torch.randint(4095, (4, 128), generator=torch.Generator().manual_seed(5))

    def loss(make) -> float:
        model = change(load(austen, packed=False))
        exact = F.log_softmax(model(ids), -1)
        other = F.log_softmax(_with_layers(model, make)(ids), -1)
        return float((exact.exp() * (exact - other)).sum(-1).mean())

    ours = loss(lambda weight, bias: packing.dense("int8", weight, bias))
    assert 0 < ours < loss(_Blocks)
