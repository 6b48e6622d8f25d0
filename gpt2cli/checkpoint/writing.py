"""Checkpoints written: Hub-style safetensors with their config, a tensor in memory at a time.

The format is that of `safetensors`; ``config.json`` has the fields of transformers' GPT2Config,
and the index of shards those of transformers' own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..config import GPT2Config
from ..errors import GPT2Error
from .safetensors import CODES, WEIGHTS
from .stored import StoredTensor

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, StoredTensor]
Advance = Callable[[int], None]  # called with the bytes that were written

ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}

# Bytes that are handed to the file system at once, and between two moves of a progress bar.
_CHUNK = 1 << 24


def written_bytes(tensors: Tensors, dtype: str | None) -> int:
    """The bytes that the numbers of these tensors take in `dtype`, None for the types they have."""
    return sum(_nbytes(tensor, dtype) for tensor in tensors.values())


def write_safetensors(
    folder: Path, tensors: Tensors, dtype: str | None, shard_bytes: int | None, advance: Advance
) -> None:
    """Write ``model.safetensors``, or shards of at most `shard_bytes` of numbers and their index.

    Numbers are rounded to `dtype` where one is given. Raises GPT2Error for numbers that are not
    finite, or not any more in `dtype`.
    """
    shards = list(_shards(tensors, dtype, shard_bytes))
    if len(shards) == 1:
        return _write_file(folder / WEIGHTS[0], tensors, dtype, advance)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / name, shard, dtype, advance)
        weight_map |= dict.fromkeys(shard, name)
    size = {"total_size": written_bytes(tensors, dtype)}
    write_json(folder / WEIGHTS[1], {"metadata": size, "weight_map": weight_map})
    return None


def write_json(path: Path, value: object) -> None:
    """An indented JSON file, as the Hub's programs write them."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def hub_config(config: GPT2Config, dtype: str, rest: Mapping[str, Any]) -> dict[str, Any]:
    """The ``config.json`` of a config; `rest` are fields that say nothing about the network.

    Each field is spelled out, null too: transformers' defaults for ids are those of GPT-2.
    """
    ends = config.eos_token_id
    own = asdict(config) | {"eos_token_id": ends[0] if len(ends) == 1 else list(ends) or None}
    head = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "dtype": dtype}
    return {**rest, **head, **own}


def numbers(tensor: StoredTensor, dtype: str | None) -> torch.Tensor:
    """The numbers of a tensor to be written, contiguous, in `dtype` or the type they have."""
    import torch

    found = tensor.read()
    _refuse_infinite(found, tensor, "holds NaN or infinity; the file is damaged")
    if dtype is not None and str(found.dtype) != f"torch.{dtype}":
        found = found.to(getattr(torch, dtype))
        _refuse_infinite(found, tensor, f"holds numbers that {dtype} does not; choose another")
    return found.contiguous()


def write_numbers(file: IO[bytes], found: torch.Tensor, advance: Advance) -> None:
    """Append the bytes of a contiguous tensor, little-endian."""
    import torch

    raw = memoryview(found.reshape(-1).view(torch.uint8).numpy().data)
    for start in range(0, len(raw), _CHUNK):
        advance(file.write(raw[start : start + _CHUNK]))


def _refuse_infinite(found: torch.Tensor, tensor: StoredTensor, problem: str) -> None:
    import torch

    low, high = torch.aminmax(found)
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise GPT2Error(f"{tensor.file}: {tensor.name} {problem}")


def _nbytes(tensor: StoredTensor, dtype: str | None) -> int:
    return math.prod(tensor.shape) * ITEMSIZES[dtype or tensor.dtype]


def _shards(
    tensors: Tensors, dtype: str | None, shard_bytes: int | None
) -> Iterator[dict[str, StoredTensor]]:
    """Tensors in their order, as many in a shard as fit; one that fits nowhere has its own."""
    shard: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        whole = written_bytes(shard, dtype) + _nbytes(tensor, dtype)
        if shard and shard_bytes is not None and whole > shard_bytes:
            yield shard
            shard = {}
        shard[name] = tensor
    yield shard


def _write_file(path: Path, tensors: Tensors, dtype: str | None, advance: Advance) -> None:
    """One safetensors file. Wider types come first, so that every tensor lies aligned."""
    order = sorted(tensors.items(), key=lambda item: -ITEMSIZES[dtype or item[1].dtype])
    with path.open("wb") as file:
        file.write(_header(dict(order), dtype))
        for _, tensor in order:
            write_numbers(file, numbers(tensor, dtype), advance)
            tensor.release()


def _header(tensors: Tensors, dtype: str | None) -> bytes:
    rows: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        end = place + _nbytes(tensor, dtype)
        code = CODES[dtype or tensor.dtype]
        rows[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
