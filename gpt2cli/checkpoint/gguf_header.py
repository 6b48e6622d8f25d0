"""The header of a GGUF file: its metadata, and where each tensor lies.

As https://github.com/ggml-org/ggml/blob/master/docs/gguf.md has it. A number of things that a file
claims to hold is believed only as far as the file goes.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..layout import Shape
from .mapping import MappedFile
from .protobuf import WireError

_VERSIONS = (2, 3)
_ALIGNMENT = 32  # bytes, unless general.alignment says otherwise
_MOST_DIMS = 4  # of ggml

# gguf_metadata_value_type → how struct spells a number of it.
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Info:
    """One tensor: ggml's number of its type, its shape in row-major order, and its place.

    `offset` counts bytes from the start of the file.
    """

    name: str
    kind: int
    shape: Shape
    offset: int


@dataclass(frozen=True)
class Header:
    """What a file says before its numbers."""

    metadata: dict[str, Any]
    tensors: list[Info]


class BigEndianError(WireError):
    """A file for machines of the other byte order."""


def read_header(file: MappedFile) -> Header:
    """The header of a file that begins with ``GGUF``.

    Raises GPT2Error when the file is cut off, and WireError when it is damaged or of a form that
    is not known.
    """
    cursor = _Cursor(file, 4)
    version = cursor.number("I")
    if version & 0xFFFF == 0:
        raise BigEndianError("it is big-endian")
    if version not in _VERSIONS:
        raise WireError(f"version {version}")
    n_tensors, n_values = cursor.number("Q"), cursor.number("Q")
    metadata = _without_doubles(_pair(cursor) for _ in range(n_values))
    tensors = _without_doubles(_tensor(cursor) for _ in range(n_tensors))
    start = _aligned(cursor.place, metadata.get("general.alignment", _ALIGNMENT))
    return Header(
        metadata,
        [
            Info(name, kind, shape, start + offset)
            for name, (kind, shape, offset) in tensors.items()
        ],
    )


class _Cursor:
    """A place in a file, which moves on with what is read there."""

    def __init__(self, file: MappedFile, place: int) -> None:
        self.file = file
        self.place = place

    def take(self, nbytes: int) -> bytes:
        data = self.file.read(self.place, nbytes)
        self.place += nbytes
        return data

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        nbytes = count * struct.calcsize(f"<{code}")
        return struct.unpack(f"<{count}{code}", self.take(nbytes))

    def text(self) -> str:
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise WireError("a text is not UTF-8") from error


def _pair(cursor: _Cursor) -> tuple[str, Any]:
    """A key and its value."""
    return cursor.text(), _value(cursor, cursor.number("I"))


def _value(cursor: _Cursor, kind: int) -> Any:
    if kind == _STRING:
        return cursor.text()
    if kind in _NUMBERS:
        return cursor.number(_NUMBERS[kind])
    if kind != _ARRAY:
        raise WireError(f"a value of type {kind}")
    kind, count = cursor.number("I"), cursor.number("Q")
    if kind == _STRING:
        return [cursor.text() for _ in range(count)]
    if kind in _NUMBERS:
        return list(cursor.numbers(_NUMBERS[kind], count))
    raise WireError(f"an array of type {kind}")


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, Shape, int]]:
    """A tensor's name; its type, its shape, and its place after the header."""
    name, n_dims = cursor.text(), cursor.number("I")
    if n_dims > _MOST_DIMS:
        raise WireError(f"{name} has {n_dims} dimensions")
    shape = cursor.numbers("Q", n_dims)[::-1]
    return name, (cursor.number("I"), shape, cursor.number("Q"))


def _without_doubles(pairs: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise WireError(f"{name} stands twice")
        table[name] = value
    return table


def _aligned(place: int, alignment: object) -> int:
    """The first multiple of `alignment`, a power of two, from `place` on."""
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise WireError(f"an alignment of {alignment!r}")
    return math.ceil(place / alignment) * alignment
