"""LevelDB's sorted table, in which TensorFlow keeps the index of a checkpoint.

The format is described in LevelDB's ``doc/table_format.md``
(https://github.com/google/leveldb/blob/main/doc/table_format.md): data blocks of rows, an index
block of handles to them, and a footer of 48 bytes. A row's key leaves out what it shares with
the key before it. Each block is followed by a byte that names its compression and by a masked
CRC-32C of block and byte.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import google_crc32c

from ..errors import GPT2Error
from .protobuf import WireError, varint

_FOOTER = 48  # bytes: two handles padded to 40, and the magic number
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_TRAILER = 5  # bytes: compression, CRC-32C
_MOST_UNFOLDED = 16  # bytes of keys a byte of file; variables of a network have about one
_COMPRESSIONS = {1: "snappy", 2: "zstd"}


def masked_crc32c(chunks: Iterable[bytes]) -> int:
    """The CRC-32C of `chunks` one after another, turned and offset as LevelDB stores it."""
    crc = 0
    for chunk in chunks:
        crc = google_crc32c.extend(crc, chunk)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_table(path: Path) -> dict[bytes, bytes]:
    """Every row of the table in the file at `path`, in the order of its keys.

    Raises GPT2Error when the file cannot be read, is no such table, or is damaged.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, say, which may never end
            raise GPT2Error(f"{path} is no file; name the checkpoint's own files")
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _FOOTER))
            footer = file.read()
            if len(footer) < _FOOTER or not footer.endswith(_MAGIC):
                raise GPT2Error(f"{path} is no TensorFlow index, or is cut off; fetch it again")
            file.seek(0)
            data = file.read()
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    try:
        return _table(data[:-_FOOTER], footer, path)
    except WireError as error:
        raise GPT2Error(f"{path} is damaged ({error}); fetch the file again") from error


def _table(data: bytes, footer: bytes, path: Path) -> dict[bytes, bytes]:
    _, _, place = _handle(footer, 0)  # of the block of filters, which TensorFlow leaves empty
    offset, size, _ = _handle(footer, place)
    table: dict[bytes, bytes] = {}
    last: bytes | None = None
    end = unfolded = 0
    for _, handle in _rows(_block(data, offset, size, path)):
        offset, size, _ = _handle(handle, 0)
        if offset < end:
            raise WireError("its blocks overlap")
        end = offset + size
        for key, value in _rows(_block(data, offset, size, path)):
            if last is not None and key <= last:
                raise WireError("its keys are out of order")
            unfolded += len(key)
            if unfolded > _MOST_UNFOLDED * len(data):
                raise WireError("its keys share too much")
            table[key] = value
            last = key
    return table


def _handle(data: bytes, place: int) -> tuple[int, int, int]:
    """Where a block lies and how long it is, and the place after the handle that says so."""
    offset, place = varint(data, place)
    size, place = varint(data, place)
    return offset, size, place


def _block(data: bytes, offset: int, size: int, path: Path) -> bytes:
    """A block's own bytes, checked against its CRC-32C; GPT2Error when they are compressed."""
    end = offset + size
    if end + _TRAILER > len(data):
        raise WireError(f"a block ends at byte {end}, past the end")
    stored = int.from_bytes(data[end + 1 : end + _TRAILER], "little")
    if masked_crc32c([data[offset : end + 1]]) != stored:
        raise WireError(f"the block at byte {offset} does not have its CRC-32C")
    if kind := data[end]:
        name = _COMPRESSIONS.get(kind, f"method {kind}")
        raise GPT2Error(f"{path} is compressed ({name}), which is not read; save it uncompressed")
    return data[offset:end]


def _rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each row before the restart points, which only serve to seek."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise WireError("a block has no room for its restart points")
    place, key = 0, b""
    while place < end:
        shared, place = varint(block, place)
        rest, place = varint(block, place)
        length, place = varint(block, place)
        if shared > len(key) or place + rest + length > end:
            raise WireError("a row reaches past its block")
        key = key[:shared] + block[place : place + rest]
        place += rest
        yield key, block[place : place + length]
        place += length
