"""As much of the protobuf wire format as a TensorFlow checkpoint uses.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Iterator

Value = int | bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(Exception):
    """Bytes that are not what their format says; the message says how."""


def varint(data: bytes, place: int) -> tuple[int, int]:
    """The unsigned 64-bit number at `place` of `data`, seven bits a byte, and the place after it.

    Raises WireError when it is cut off or longer than 64 bits.
    """
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            raise WireError("a number is cut off")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise WireError("a number does not end")
    if number >> 64:
        raise WireError("a number is longer than 64 bits")
    return number, place


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield each field of a message: its number, and its value as an unsigned int or as bytes.

    Raises WireError when the message is cut off or holds a wire type that is not used any more.
    """
    place = 0
    while place < len(message):
        tag, place = varint(message, place)
        wire = tag & 7
        if wire == _VARINT:
            number, place = varint(message, place)
            yield tag >> 3, number
            continue
        if wire == _BYTES:
            length, place = varint(message, place)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise WireError(f"a field has wire type {wire}")
        if length > len(message) - place:
            raise WireError("a field is cut off")
        raw = message[place : place + length]
        place += length
        yield tag >> 3, raw if wire == _BYTES else int.from_bytes(raw, "little")


def whole(value: Value) -> int:
    """A field's value as the signed 64-bit number it stands for; WireError when it is bytes."""
    if isinstance(value, bytes):
        raise WireError("a message stands where a number is due")
    return value - (1 << 64) if value >> 63 else value


def message(value: Value) -> bytes:
    """A field's value as the message it holds; WireError when it is a number."""
    if isinstance(value, int):
        raise WireError("a number stands where a message is due")
    return value
