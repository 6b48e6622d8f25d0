"""Checkpoint → GPT2 on a device, its weights held in a dtype."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from . import exactness, packing
from .checkpoint import Checkpoint
from .errors import GPT2Error
from .layout import CONV1D, HEAD
from .model import ACTIVATIONS, GPT2, MLP


def load(
    checkpoint: Checkpoint,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
    *,
    packed: bool = True,
) -> GPT2:
    """The network of a checkpoint, ready to run.

    `dtype` is what the dense layers' weights are held in, one of `packing.DTYPES`; everything
    else, and all arithmetic, is float32. On a CPU the dense layers are packed for the machine,
    and the file's pages are given back tensor by tensor; with `packed` off, float32 weights on
    aligned memory stay mapped from the file under the released names. Raises GPT2Error when a
    weight is NaN or infinite, when a stored head of a tied model differs from wte, or when the
    file turns out to be damaged.
    """
    device = torch.device(device)
    packed = dtype != "float32" or (packed and device.type == "cpu")
    with torch.device("meta"):
        model = GPT2(checkpoint.config)
    layers = _dense_layers(checkpoint) if packed else []
    apart = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    rest = [name for name in checkpoint.matched.tensors if name not in apart]
    state = {name: _read(checkpoint, name).to(device) for name in rest}
    checkpoint.check_copies()
    if packed:
        # the largest first: what packing it takes besides is gone before the others are there
        model.lm_head = packing.dense(dtype, state.pop(HEAD, state["wte.weight"]).T, None)
        checkpoint.release("wte.weight")
        _give_back()
        _pack(model, checkpoint, layers, device, dtype)
    model.load_state_dict(state, strict=True, assign=True)
    model.requires_grad_(False).eval()
    if packed and device.type == "cpu":
        config = checkpoint.config
        activation = exactness.steady(ACTIVATIONS[config.activation_function], config.inner)
        for mlp in (module for module in model.modules() if isinstance(module, MLP)):
            mlp.activation = activation
        model.row_exact = exactness.row_exact(model)
    return model


def pick_device(name: str) -> torch.device:
    """The device called `name`: ``auto`` is cuda, then mps, then cpu, the first that is there.

    Raises GPT2Error for one that this machine lacks.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if name not in available:
        raise GPT2Error(f"{name!r} is no device; it is auto, cpu, cuda or mps")
    if not available[name]:
        raise GPT2Error(f"this machine has no {name} device that torch can use; try --device cpu")
    return torch.device(name)


def _dense_layers(checkpoint: Checkpoint) -> list[str]:
    names = checkpoint.matched.tensors
    return [name.removesuffix(".weight") for name in names if name.endswith(CONV1D)]


def _pack(
    model: GPT2, checkpoint: Checkpoint, layers: list[str], device: torch.device, dtype: str
) -> None:
    """Put packed layers in their places, on all cores: most packing runs on one."""

    def packed(layer: str) -> nn.Module:
        weight, bias = (_read(checkpoint, f"{layer}.{part}") for part in ("weight", "bias"))
        module = packing.dense(dtype, weight.to(device), bias.to(device))
        checkpoint.release(f"{layer}.weight")
        _give_back()
        return module

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for layer, module in zip(layers, pool.map(packed, layers), strict=True):
            model.set_submodule(layer, module)


def _give_back() -> None:
    """Have glibc return what is free to the system: it would keep some 90 MB of a GPT-2 124M."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except OSError:  # another library, which has its own way
        return


def _read(checkpoint: Checkpoint, name: str) -> Tensor:
    tensor = checkpoint.read(name).to(torch.float32)
    low, high = torch.aminmax(tensor)
    if not (torch.isfinite(low) and torch.isfinite(high)):
        stored = checkpoint.matched.tensors[name]
        raise GPT2Error(f"{stored.file}: {stored.name} holds NaN or infinity; the file is damaged")
    return tensor
