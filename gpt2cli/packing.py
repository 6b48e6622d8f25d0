"""A model's dense layers, packed for the CPU: float32, or weights held in half types or int8.

Activations, sums and logits are float32 at every precision. The kernels are the ones that
torch's own compiler and quantized modules call; where a machine or a torch lacks one, a plain
layer holds the same numbers. M is rows, K a layer's inputs, N its outputs. To try such a machine,
the environment variable GPT2_PACKED lists the kernels that are there: float32,float16,int8.
"""

import functools
import os
import threading
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .errors import GPT2Error
from .layout import DTYPES

__all__ = ["DTYPES", "dense"]

_VARIABLE = "GPT2_PACKED"
_KERNELS = ("float32", "float16", "int8")
_ROW_HINT = 64  # of the layouts oneDNN offers, one whose sums do not depend on the rows
_FEW_ROWS = 16
_MOST_ROWS = 64  # that are known to be summed alike
_ALIKE: dict[tuple[int, ...], bool] = {}  # K, N, rows, threads: whether so many are as well
_AT_ONCE = 1024  # outputs that are quantised together: a head takes no room twice
_LARGEST_HALF = 65504.0
_FILTERING = threading.Lock()
_LEVELS = 63  # activations are 7 bits and a sign for FBGEMM: with more its sums of two overflow


def dense(dtype: str, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """A layer [..., K] → [..., N] with float32 weight [K, N], held in `dtype` and packed.

    It keeps no reference to `weight`. A half type that a weight would overflow is float32.
    """
    if dtype == "int8":
        return _int8(weight, bias)
    if dtype in ("float16", "bfloat16") and _largest(weight) <= _LARGEST_HALF:
        return _half(weight.to(getattr(torch, dtype)), bias)
    return (
        _PackedFloat32(weight, bias)
        if _packs("float32", weight)
        else _Plain(weight.clone(), None, bias)
    )


class _PackedFloat32(nn.Module):
    """oneDNN's dense layer on weights in its own order.

    Some of its versions sum many rows in another order than few; there many are several times few.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.T, _ROW_HINT)
        self.bias = _plain_copy(bias)
        self.shape = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        if len(rows) < _least_rows():
            padded = self._linear(F.pad(rows, (0, 0, 0, _least_rows() - len(rows))))
            return padded[: len(rows)].view(*x.shape[:-1], -1)
        if len(rows) <= _MOST_ROWS:
            return self._linear(x)
        case = (*self.shape, len(rows), torch.get_num_threads())
        out = self._linear(rows)
        if case not in _ALIKE:
            _ALIKE[case] = self._is_alike(rows, out)
        if not _ALIKE[case]:
            out = torch.cat([self._linear(part) for part in torch.split(rows, _MOST_ROWS)])
        return out.view(*x.shape[:-1], -1)

    def _linear(self, x: Tensor) -> Tensor:
        return _pointwise(x, self.packed, self.bias)

    def _is_alike(self, rows: Tensor, out: Tensor) -> bool:
        """Whether the first, some middle and the last rows have the sums that few rows have."""
        places = [slice(i, i + _FEW_ROWS) for i in (0, len(rows) // 2, len(rows) - _FEW_ROWS)]
        return all(torch.equal(self._linear(rows[place]), out[place]) for place in places)


def _pointwise(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return out


@functools.cache
def _least_rows() -> int:
    """How many rows oneDNN is given at least.

    Its versions for AVX-512 sum a lone row in an order of its own when K is over 1,024, and read
    the weights a sixth slower for it than for four.
    """
    weight = torch.linspace(-9, 9, 64 * 2048).view(64, 2048).sin()
    x = torch.linspace(-9, 9, 4 * 2048).view(4, 2048).cos()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROW_HINT)
    alike = torch.equal(_pointwise(x[:1], packed, None), _pointwise(x, packed, None)[:1])
    return 1 if alike else 4


class _PackedFloat16(nn.Module):
    """FBGEMM's dense layer on float16 weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight.T.contiguous(), bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self.packed)
        return out


class _PackedInt8(nn.Module):
    """FBGEMM's dense layer on int8 weights with a scale an output.

    A row x of activations is divided by its largest magnitude and rounded to 63 levels a side,
    and what the rounding left over is a second row: together 13 bits, so that what is lost is
    what int8 weights lose. Every row has its own scale, so its result depends on no other row.
    """

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        """`weight` is int8 [N, K], `scale` float32 [N]."""
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack(_quantized(weight, scale), None)
        self.bias = torch.zeros(()) if bias is None else bias.detach().clone()
        self.least = torch.tensor(1e-30)  # a row of zeros is divided by it

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        largest = rows.abs().amax(-1, True)
        step = torch.add(self.least, largest, alpha=1 / _LEVELS)
        scaled = rows / step
        rest = (scaled - scaled.round()).mul_(2 * _LEVELS)
        both = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            torch.cat([scaled, rest]), 1.0, _LEVELS + 1, self.packed
        )
        high, low = both.chunk(2)
        out = torch.addcmul(self.bias, high, step).addcmul_(low, step, value=0.5 / _LEVELS)
        return out.view(*x.shape[:-1], -1)


class _Plain(nn.Module):
    """The same numbers without a kernel for them: widened when they are used."""

    def __init__(self, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> None:
        """`weight` is [K, N] in the type it is held in; `scale` is [N] for int8."""
        super().__init__()
        self.weight, self.scale, self.bias = weight, scale, _plain_copy(bias)

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.weight.float()
        if self.scale is not None:
            out = out * self.scale
        return out if self.bias is None else out + self.bias


def _half(weight: Tensor, bias: Tensor | None) -> nn.Module:
    # float16 holds every bfloat16 from 2^-17 to 65504 exactly, and smaller ones within 2^-25
    if _packs("float16", weight):
        return _PackedFloat16(weight.float(), _plain_copy(bias))
    return _Plain(weight.clone(), None, bias)


def _int8(weight: Tensor, bias: Tensor | None) -> nn.Module:
    scale = torch.maximum(weight.amax(0), -weight.amin(0)).clamp_(min=1e-30).div_(127)
    whole = torch.empty(weight.T.shape, dtype=torch.int8, device=weight.device)
    pieces = [torch.split(each, _AT_ONCE) for each in (whole, weight.T, scale)]
    for to, part, step in zip(*pieces, strict=True):
        to.copy_((part.T / step).round_().to(torch.int8).T)
    if _packs("int8", weight):
        return _PackedInt8(whole, scale, bias)
    return _Plain(whole.T, scale, bias)


def _quantized(weight: Tensor, scale: Tensor) -> Tensor:
    """int8 [N, K] as the tensor that FBGEMM packs; torch says that it will go away one day."""
    with _FILTERING, warnings.catch_warnings():  # filters are one for all threads
        warnings.filterwarnings("ignore", ".*quantized tensor creation functions.*")
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        return torch._make_per_channel_quantized_tensor(weight, scale.double(), zeros, 0)


def _largest(weight: Tensor) -> float:
    low, high = torch.aminmax(weight)
    return max(-float(low), float(high))


def _plain_copy(bias: Tensor | None) -> Tensor | None:
    """A bias of its own, so that the file it was mapped from can be let go."""
    return None if bias is None else bias.detach().clone()


def _packs(kind: str, weight: Tensor) -> bool:
    """Whether a weight can be packed: the kernels are the CPU's."""
    return weight.device.type == "cpu" and _works(kind)


@functools.cache
def _works(kind: str) -> bool:
    """Whether this machine's torch has the kernel for a precision and computes right with it."""
    if kind not in _kernels():
        return False
    weight = torch.linspace(-1, 1, 64 * 16).view(64, 16).sin()
    x = torch.linspace(-3, 3, 5 * 64).view(5, 64).cos()
    try:
        out = _trial(kind, weight)(x)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool((out - x @ weight).abs().max() < {"int8": 0.1, "float16": 0.02}.get(kind, 1e-4))


def _kernels() -> set[str]:
    """The kernels that may be tried; GPT2Error where the environment names one that is none."""
    asked = os.environ.get(_VARIABLE, ",".join(_KERNELS))
    named = {name for name in asked.split(",") if name}
    if not named <= {*_KERNELS}:
        raise GPT2Error(
            f"the environment variable {_VARIABLE} is {asked!r}, where some of "
            f"{','.join(_KERNELS)} can stand, or nothing; correct or unset it"
        )
    return named


def _trial(kind: str, weight: Tensor) -> nn.Module:
    if kind == "float32":
        return _PackedFloat32(weight, None)
    if kind == "float16":
        return _PackedFloat16(weight, None)
    scale = weight.abs().amax(0) / 127
    return _PackedInt8((weight / scale).round().to(torch.int8).T.contiguous(), scale, None)
