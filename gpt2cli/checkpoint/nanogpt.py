"""nanoGPT's ``ckpt.pt``: a pickle of ``model`` (the state dict), ``model_args`` and training state.

As train.py and model.py of https://github.com/karpathy/nanoGPT have it: dense weights are
[out, in], the GELU is the erf form, the head is wte, and with ``bias=False`` there is no bias
anywhere. GPT-2's layout has biases, so they are zeros here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ParsedConfig, parse_config
from ..errors import GPT2Error
from ..layout import CONV1D, Shape, shapes
from .names import hub_name
from .stored import Source, StoredTensor, turned
from .torch_pickle import Unpickled, stored_tensors

if TYPE_CHECKING:
    import torch

FILE = "ckpt.pt"

_SIZES = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "block_size": "n_positions",
    "vocab_size": "vocab_size",
}


def holds(value: object) -> bool:
    """Whether an unpickled object is what nanoGPT's train.py saves."""
    return isinstance(value, Mapping) and {"model", "model_args"} <= value.keys()


def open_checkpoint(path: Path, unpickled: Unpickled) -> Source:
    """The checkpoint in an unpickled ``ckpt.pt``; its ``model_args`` are the config."""
    value = unpickled.value
    if not isinstance(value, Mapping) or not isinstance(value["model_args"], Mapping):
        raise GPT2Error(f"{path} has no model_args; save the checkpoint again with train.py")
    args: dict[str, Any] = {str(name): given for name, given in value["model_args"].items()}
    parsed = _config(args, str(path))
    found = stored_tensors(path, value["model"], unpickled)
    stored = [turned(tensor) if tensor.name.endswith(CONV1D) else tensor for tensor in found]
    notes: tuple[str, ...] = ()
    if not args.get("bias", True):
        wanted = shapes(parsed.config).items()
        stored += [_zeros(name, shape, path) for name, shape in wanted if name.endswith(".bias")]
        notes = (f"{path.name} was trained without biases; they are zeros here, and counted",)
    return Source("nanogpt", parsed, stored, hub_name, path.stat().st_size, notes)


def _config(args: Mapping[str, Any], where: str) -> ParsedConfig:
    """The config that model_args describe."""
    if type(args.get("bias", True)) is not bool:
        raise GPT2Error(f"{where}: bias is {args['bias']!r}, neither true nor false")
    rest = {key: value for key, value in args.items() if key not in (*_SIZES, "bias", "dropout")}
    sizes = {name: args.get(key) for key, name in _SIZES.items()}
    parsed = parse_config(rest | sizes | {"activation_function": "gelu"}, where)
    return replace(
        parsed,
        applied=tuple(key for key in args if key in (*_SIZES, "bias") or key in parsed.applied),
        irrelevant=(*parsed.irrelevant, *(key for key in args if key == "dropout")),
    )


def _zeros(name: str, shape: Shape, path: Path) -> StoredTensor:
    """A bias that the model was trained without."""

    def read() -> torch.Tensor:
        import torch

        return torch.zeros(shape)

    remark = "not stored: bias=False, so it is zeros"
    return StoredTensor(name, shape, "float32", 4 * math.prod(shape), path, read, remark=remark)
