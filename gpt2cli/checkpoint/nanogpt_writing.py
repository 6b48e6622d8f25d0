"""nanoGPT's ``ckpt.pt`` written, a tensor in memory at a time.

torch.save would hold every tensor that is turned at once, so the file is put together here: a zip
archive, stored and not compressed, with a pickle of the structure (``data.pkl``) and the bytes of
each storage (``data/N``), as torch/serialization.py has it (https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..config import GPT2Config
from ..errors import GPT2Error
from ..layout import CONV1D, HEAD, Shape
from .stored import StoredTensor
from .writing import ITEMSIZES, Advance, Tensors, numbers, write_numbers

_ROOT = "ckpt"  # the folder inside the archive
_ALIGNED = 64  # bytes
_ZIP64_ROW = 20  # bytes that zipfile puts into the header of a large entry

# What nanoGPT's model.py computes, whatever it is told.
_FIXED: dict[str, object] = {
    "activation_function": "gelu",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}


def refuse_inexpressible(config: GPT2Config) -> None:
    """Raise GPT2Error, which names the fields, for a model that nanoGPT's model.py is not."""
    problems = [
        f"{name} is {getattr(config, name)}, and it computes with {value}"
        for name, value in _FIXED.items()
        if getattr(config, name) != value
    ]
    if config.inner != 4 * config.n_embd:
        problems.append(f"n_inner is {config.inner}, and it computes with {4 * config.n_embd}")
    if problems:
        raise GPT2Error(
            f"nanoGPT's model.py would compute something else: {'; '.join(problems)}; convert to "
            "safetensors instead"
        )


def write_nanogpt(
    path: Path, config: GPT2Config, tensors: Tensors, dtype: str | None, advance: Advance
) -> None:
    """Write a ``ckpt.pt`` that nanoGPT's sample.py loads; for train.py the optimizer is missing.

    Raises GPT2Error as `writing.numbers` does, and for a
    config that nanoGPT cannot express.
    """
    refuse_inexpressible(config)
    storages = [_Storage(str(n), t, dtype) for n, t in enumerate(tensors.values())]
    dense = [name.endswith(CONV1D) for name in tensors]
    state: OrderedDict[str, object] = OrderedDict(
        (f"transformer.{name}", _Weight(storage, turned))
        for name, storage, turned in zip(tensors, storages, dense, strict=True)
    )
    state[HEAD] = state["transformer.wte.weight"]
    value = {
        "model": state,
        "model_args": _model_args(config),
        "iter_num": 0,
        "best_val_loss": 1e9,  # what train.py starts from
        "config": {},
    }
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{_ROOT}/data.pkl"), _pickled(value))
        archive.writestr(zipfile.ZipInfo(f"{_ROOT}/byteorder"), "little")
        for storage, turned in zip(storages, dense, strict=True):
            _write_storage(archive, file, storage, turned, advance)
        archive.writestr(zipfile.ZipInfo(f"{_ROOT}/version"), "3\n")


def _model_args(config: GPT2Config) -> dict[str, object]:
    return {
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "block_size": config.n_positions,
        "bias": True,
        "vocab_size": config.vocab_size,
        "dropout": 0.0,
    }


@dataclass(frozen=True)
class _Storage:
    """The numbers of one tensor, as an entry of the archive."""

    key: str
    tensor: StoredTensor
    to: str | None

    @property
    def dtype(self) -> str:
        return self.to or self.tensor.dtype

    @property
    def count(self) -> int:
        return math.prod(self.tensor.shape)


@dataclass(frozen=True)
class _Weight:
    """A tensor of the state dict; a dense weight is [out, in] there."""

    storage: _Storage
    turned: bool

    @property
    def shape(self) -> Shape:
        shape = self.storage.tensor.shape
        return shape[::-1] if self.turned else shape


class _Pickler(pickle.Pickler):
    """Writes a `_Weight` as torch writes a tensor: how to rebuild it, and where its storage is."""

    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        if not isinstance(obj, _Storage):
            return None
        import torch

        kinds = {
            "float32": torch.FloatStorage,
            "float16": torch.HalfStorage,
            "bfloat16": torch.BFloat16Storage,
        }
        return ("storage", kinds[obj.dtype], obj.key, "cpu", obj.count)

    def reducer_override(self, obj: object) -> Any:
        if not isinstance(obj, _Weight):
            return NotImplemented
        from torch._utils import _rebuild_tensor_v2

        strides = tuple(math.prod(obj.shape[n + 1 :]) for n in range(len(obj.shape)))
        hooks: OrderedDict[str, object] = OrderedDict()
        return _rebuild_tensor_v2, (obj.storage, 0, obj.shape, strides, False, hooks)


def _pickled(value: object) -> bytes:
    out = io.BytesIO()
    _Pickler(out, protocol=2).dump(value)
    return out.getvalue()


def _write_storage(
    archive: zipfile.ZipFile, file: BinaryIO, storage: _Storage, turned: bool, advance: Advance
) -> None:
    """One entry, its bytes at a multiple of 64 as torch puts them, so that they can be mapped."""
    entry = zipfile.ZipInfo(f"{_ROOT}/data/{storage.key}")
    entry.file_size = storage.count * ITEMSIZES[storage.dtype]
    large = entry.file_size > zipfile.ZIP64_LIMIT // 2
    header = 30 + len(entry.filename) + 4 + large * _ZIP64_ROW
    padding = -(file.tell() + header) % _ALIGNED
    entry.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(entry, "w", force_zip64=large) as out:
        found = numbers(storage.tensor, storage.to)
        write_numbers(out, found.T.contiguous() if turned else found, advance)
    storage.tensor.release()
