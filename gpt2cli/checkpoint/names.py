"""The names that programs of the Hub's family give to the released tensors."""

import re

from ..layout import HEAD
from .stored import Skipped, StoredTensor

# Wrappers that leave their name in front: transformers' head model, torch.compile, DataParallel.
_PREFIXES = ("transformer.", "_orig_mod.", "module.")

_HEADS = (HEAD, "lm_head.decoder.weight")  # the second as in DialoGPT's original files

_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def hub_name(tensor: StoredTensor) -> str | Skipped | None:
    """The released name of a tensor in a Hub-style file.

    ``h.N.attn.bias`` is a causal mask there, ``h.N.attn.c_attn.bias`` a weight.
    """
    name = tensor.name
    while prefix := next((p for p in _PREFIXES if name.startswith(p)), None):
        name = name.removeprefix(prefix)
    if name in _HEADS:
        return HEAD
    if _MASK.fullmatch(name):
        return _mask(name, tensor)
    return name


def _mask(name: str, tensor: StoredTensor) -> Skipped | None:
    """A mask buffer is one number (``masked_bias``) or [1, 1, n, n]; anything else is unknown."""
    if name.endswith("masked_bias"):
        return Skipped("mask value") if tensor.shape in ((), (1,)) else None
    square = len(tensor.shape) == 4 and tensor.shape[:2] == (1, 1)
    return Skipped("causal mask") if square and tensor.shape[2] == tensor.shape[3] else None
