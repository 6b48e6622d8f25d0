"""Writes TensorFlow checkpoints of any kind, sound and unsound, for tests of the reader.

Written from the format's description alone and sharing nothing with the reader.
"""

from collections.abc import Iterable
from pathlib import Path

import google_crc32c

FLOAT, DOUBLE, INT32, STRING, INT64, BFLOAT16, HALF = 1, 2, 3, 7, 9, 14, 19

MAGIC = bytes.fromhex("57fb808b247547db")


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def crc(data: bytes) -> int:
    plain = google_crc32c.value(data)
    return ((plain >> 15 | plain << 17) + 0xA282EAD8) % (1 << 32)


def number_field(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def bytes_field(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def header(shards: int = 1, endianness: int = 0, min_consumer: int = 0) -> bytes:
    version = number_field(1, 1) + number_field(2, min_consumer)
    return number_field(1, shards) + number_field(2, endianness) + bytes_field(3, version)


def entry(
    dtype: int,
    shape: Iterable[int],
    data: bytes = b"",
    *,
    shard: int = 0,
    offset: int = 0,
    size: int | None = None,
    more: bytes = b"",
) -> bytes:
    dims = b"".join(bytes_field(2, number_field(1, dim)) for dim in shape)
    return (
        number_field(1, dtype)
        + bytes_field(2, dims)
        + number_field(3, shard)
        + number_field(4, offset)
        + number_field(5, len(data) if size is None else size)
        + varint(6 << 3 | 5)
        + crc(data).to_bytes(4, "little")
        + more
    )


def block(rows: Iterable[tuple[bytes, bytes]], restart_every: int = 16) -> bytes:
    out, restarts, last = bytearray(), [], b""
    for n, (key, value) in enumerate(rows):
        shared = 0
        if n % restart_every == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        last = key
    for restart in restarts or [0]:
        out += restart.to_bytes(4, "little")
    return bytes(out) + max(1, len(restarts)).to_bytes(4, "little")


def table(rows: dict[bytes, bytes], rows_a_block: int = 1000, compression: int = 0) -> bytes:
    """The bytes of a sorted table; `compression` only names one, the block stays as it is."""
    out = bytearray()

    def add(data: bytes, kind: int) -> bytes:
        place = len(out)
        trailer = bytes([kind])
        out.extend(data + trailer + crc(data + trailer).to_bytes(4, "little"))
        return varint(place) + varint(len(data))

    ordered = sorted(rows.items())
    handles = []
    for start in range(0, len(ordered), rows_a_block):
        group = ordered[start : start + rows_a_block]
        handles.append((group[-1][0], add(block(group), compression)))
    meta = add(block([]), 0)
    index = add(block(handles, restart_every=1), 0)
    return bytes(out) + (meta + index).ljust(40, b"\0") + MAGIC


def write(
    prefix: Path,
    variables: dict[str, tuple[int, tuple[int, ...], bytes]],
    *,
    shards: int = 1,
    rows_a_block: int = 1000,
) -> None:
    """A sound checkpoint of (type, shape, bytes) a name, dealt to the shards in turn."""
    data = [bytearray() for _ in range(shards)]
    rows = {b"": header(shards)}
    for n, (name, (dtype, shape, raw)) in enumerate(sorted(variables.items())):
        shard = n % shards
        rows[name.encode()] = entry(dtype, shape, raw, shard=shard, offset=len(data[shard]))
        data[shard] += raw
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(rows, rows_a_block))
    for n, raw in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{n:05d}-of-{shards:05d}").write_bytes(raw)
