"""Safetensors files, single and sharded, as the Hub stores a GPT-2.

The format (https://github.com/huggingface/safetensors#format): 8 bytes of header length, a JSON
header that gives each tensor's dtype, shape and place, then the tensors, little-endian, without
gaps. Only headers are read here; a tensor is mapped when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import GIT_LFS, lfs_pointer, parse_config, parse_json, read_json
from ..errors import GPT2Error
from ..layout import MOST_DIMS, Shape
from .hub_config import hub_source
from .index import shard_tensors
from .mapping import MappedFile
from .names import hub_name
from .stored import Source, StoredTensor

if TYPE_CHECKING:
    import torch

DIALECT = "safetensors"
INDEX_SUFFIX = ".safetensors.index.json"

# The weights of a folder or repository, the one to take first: a file, or the index of shards.
WEIGHTS = ("model.safetensors", "model" + INDEX_SUFFIX)

MOST_HEADER_BYTES = 100_000_000  # the limit of the reference implementation

# Header name → torch's name and bytes a number.
_DTYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}

CODES = {dtype: code for code, (dtype, _) in _DTYPES.items()}  # torch's name → header name


@dataclass(frozen=True)
class Entry:
    """One tensor of a header; `begin` counts bytes from the start of the file."""

    name: str
    dtype: str
    shape: Shape
    begin: int
    nbytes: int


def parse_header(head: bytes, file_bytes: int, where: str) -> list[Entry]:
    """The tensors of a safetensors file of `file_bytes` bytes that starts with `head`.

    `head` is the file up to the end of its header, or more. Raises GPT2Error when it is no
    safetensors header, or when the file is shorter or longer than the header says.
    """
    data = header_length(head, where)
    if len(head) < data or file_bytes < data:
        raise GPT2Error(f"{where} is cut off inside its header; fetch the file again")
    try:
        table = parse_json(head[8:data])
    except (ValueError, MemoryError) as error:
        raise GPT2Error(f"{where} has a damaged header ({error}); fetch the file again") from error
    if not isinstance(table, dict):
        raise GPT2Error(f"{where} has a damaged header (no object); fetch the file again")
    table.pop("__metadata__", None)
    entries = [_entry(name, value, data, where) for name, value in table.items()]
    _check_places(entries, data, file_bytes, where)
    return entries


def header_length(head: bytes, where: str) -> int:
    """Where the data of a safetensors file starts, from its first 8 bytes."""
    if len(head) < 8:
        raise GPT2Error(f"{where} is cut off ({len(head)} bytes); fetch the file again")
    if GIT_LFS.startswith(head[:8]):
        raise lfs_pointer(where)
    length = int.from_bytes(head[:8], "little")
    if length > MOST_HEADER_BYTES:
        raise GPT2Error(
            f"{where} is no safetensors file (it begins with {head[:8]!r}); fetch it again"
        )
    return 8 + length


def find_weights(folder: Path) -> list[Path]:
    """The safetensors weights in a folder, the one to take first."""
    return [folder / name for name in WEIGHTS if (folder / name).exists()]


def open_file(path: Path, n_head: int | None = None) -> Source:
    """The checkpoint in one ``.safetensors`` file, or in the shards that an index names.

    `n_head` is the number of heads where no ``config.json`` lies beside it.
    """
    if path.name.endswith(INDEX_SUFFIX):
        return hub_source(DIALECT, path, shard_tensors(path, stored_tensors), n_head)
    return hub_source(DIALECT, path, stored_tensors(path), n_head)


def open_headers(folder: Path, headers: Mapping[str, tuple[bytes, int]]) -> Source:
    """The checkpoint whose ``config.json`` lies in `folder` and whose weights lie elsewhere.

    `headers` gives, a file name each, the bytes up to the data and the file's size. Its tensors
    can be counted and not read.
    """
    stored: list[StoredTensor] = []
    for name, (head, size) in headers.items():
        stored += _stored(folder / name, parse_header(head, size, name))
    config = folder / "config.json"
    parsed = parse_config(read_json(config), str(config))
    file_bytes = sum(size for _, size in headers.values())
    return Source(DIALECT, parsed, stored, hub_name, file_bytes)


def stored_tensors(path: Path) -> list[StoredTensor]:
    """The tensors of one file, unread."""
    file = MappedFile(path)
    data = header_length(file.read(0, min(8, file.size)), str(path))
    entries = parse_header(file.read(0, min(data, file.size)), file.size, str(path))
    return _stored(path, entries, file)


def _stored(path: Path, entries: list[Entry], file: MappedFile | None = None) -> list[StoredTensor]:
    """What a header lists; without its `file` it can be counted and not read."""
    return [_tensor(path, entry, file) for entry in entries]


def _tensor(path: Path, entry: Entry, file: MappedFile | None) -> StoredTensor:
    stored = StoredTensor(entry.name, entry.shape, entry.dtype, entry.nbytes, path, _not_here)
    if file is None:
        return stored
    read = partial(file.tensor, entry.begin, entry.shape, entry.dtype)
    return replace(stored, read=read, release=partial(file.release, entry.begin, entry.nbytes))


def _not_here() -> torch.Tensor:
    raise ValueError("only the header of this file was fetched")


def _entry(name: str, value: Any, data: int, where: str) -> Entry:
    """One row of a header, checked against itself."""
    try:
        dtype, itemsize = _DTYPES[value["dtype"]]
        begin, end = value["data_offsets"]
        shape = tuple(value["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise GPT2Error(f"{where}: {name} has a row that is not understood ({error!r})") from error
    if any(type(n) is not int or not 0 <= n < 2**63 for n in (begin, end, *shape)):
        raise GPT2Error(f"{where}: {name} has a size or place that is no whole number or too large")
    if len(shape) > MOST_DIMS:
        raise GPT2Error(f"{where}: {name} has {len(shape)} dimensions; {MOST_DIMS} are the most")
    if end - begin != math.prod(shape) * itemsize:
        raise GPT2Error(f"{where}: {name} has {end - begin} bytes, not those of its shape")
    return Entry(name, dtype, shape, data + begin, end - begin)


def _check_places(entries: list[Entry], data: int, file_bytes: int, where: str) -> None:
    """Tensors lie one after another and fill the file."""
    place = data
    for entry in sorted(entries, key=lambda e: (e.begin, e.nbytes)):
        if entry.begin != place:
            raise GPT2Error(f"{where}: {entry.name} overlaps another tensor or leaves a gap")
        place += entry.nbytes
    if place != file_bytes:
        raise GPT2Error(
            f"{where} is {file_bytes} bytes long where its header says {place}; fetch it again"
        )
