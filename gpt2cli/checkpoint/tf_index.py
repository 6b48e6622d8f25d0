"""The index of a TensorFlow checkpoint: a row for each variable, and a header.

Rows and header are messages of tensorflow/core/protobuf/tensor_bundle.proto, with shapes and types
of tensorflow/core/framework/ (https://github.com/tensorflow/tensorflow).
"""

import math
from dataclasses import dataclass
from pathlib import Path

from ..errors import GPT2Error
from ..layout import MOST_DIMS, Shape
from .leveldb_table import read_table
from .protobuf import WireError, fields, message, whole

_VERSION = 1  # of the bundle format, the only one so far (tensor_bundle.cc)

# DataType of tensorflow/core/framework/types.proto → torch's name and bytes a number.
_DTYPES = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    8: ("complex64", 8),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    17: ("uint16", 2),
    18: ("complex128", 16),
    19: ("float16", 2),
    22: ("uint32", 4),
    23: ("uint64", 8),
}


@dataclass(frozen=True)
class Entry:
    """One variable's row; `offset` counts bytes from the start of its shard.

    A `sliced` variable has no numbers of its own: they lie in rows of parts.
    """

    dtype: str
    itemsize: int | None
    shape: Shape
    shard: int
    offset: int
    nbytes: int
    crc: int
    sliced: bool


def read_index(path: Path) -> tuple[dict[str, Entry], int]:
    """Every variable's row in the index at `path`, and the number of shards.

    Raises GPT2Error for a file that is no index, a damaged row, and a format that is not read.
    """
    table = read_table(path)
    if b"" not in table:
        raise GPT2Error(f"{path} is no TensorFlow index: it has no header; fetch it again")
    entries = {}
    key = b""
    try:
        count = _shard_count(table.pop(b""), path)
        for key, value in table.items():
            if not key.startswith(b"\0"):  # a part of a sliced variable
                entries[key.decode("utf-8", "backslashreplace")] = _entry(value)
    except WireError as error:
        name = key.decode("utf-8", "backslashreplace") or "its header"
        raise GPT2Error(
            f"{path}: the row of {name} is damaged ({error}); fetch it again"
        ) from error
    return entries, count


def _shard_count(header: bytes, path: Path) -> int:
    """The number of shards in a BundleHeaderProto; GPT2Error for one that asks for more than this.

    Fields: num_shards 1, endianness 2 (1 is big), version 3 with min_consumer 2.
    """
    values = dict(fields(header))
    if whole(values.get(2, 0)):
        raise GPT2Error(f"{path} is big-endian, which is not read; save it on another machine")
    needed = whole(dict(fields(message(values.get(3, b"")))).get(2, 0))
    if needed > _VERSION:
        raise GPT2Error(f"{path} needs a reader of version {needed}; this one knows {_VERSION}")
    count = whole(values.get(1, 0))
    if not 1 <= count <= 99999:  # five digits in a shard's name
        raise WireError(f"it names {count} shards")
    return count


def _entry(row: bytes) -> Entry:
    """A BundleEntryProto, checked against itself.

    Fields: dtype 1, shape 2, shard_id 3, offset 4, size 5, crc32c 6, slices 7.
    """
    values = dict(fields(row))
    kind, shard, offset, nbytes, crc = (whole(values.get(n, 0)) for n in (1, 3, 4, 5, 6))
    dtype, itemsize = _DTYPES.get(kind, (f"TF type {kind}", None))
    shape = _shape(message(values.get(2, b"")))
    sliced = 7 in values
    if min(offset, nbytes, shard) < 0:
        raise WireError("a place or size is negative")
    expected = math.prod(shape) * (itemsize or 0)
    if itemsize and not sliced and nbytes != expected:
        raise WireError(f"{nbytes} bytes are no {[*shape]} of {dtype}")
    return Entry(dtype, itemsize, shape, shard, offset, nbytes, crc, sliced)


def _shape(proto: bytes) -> Shape:
    """A TensorShapeProto: dim 2 with size 1, unknown_rank 3."""
    dims = []
    for number, value in fields(proto):
        if number == 3 and whole(value):
            raise WireError("its shape is unknown")
        if number == 2:
            dims.append(whole(dict(fields(message(value))).get(1, 0)))
    if len(dims) > MOST_DIMS:
        raise WireError(f"its shape has {len(dims)} dimensions")
    if any(dim < 0 for dim in dims):
        raise WireError(f"its shape {dims} is negative")
    return tuple(dims)
