"""Byte pair merges: how files spell them, and whether tiktoken follows them.

A merges list names pairs and applies the first of them that stands in the text; tiktoken knows
ranks only and joins any neighbours whose bytes together are a token. Both give the same ids when
every listed pair is the one by which tiktoken arrives at its token; `first_unreached` decides
that for a whole list.

The spelling of bytes as printable characters is ``bytes_to_unicode`` of OpenAI's
``src/encoder.py`` (https://github.com/openai/gpt-2).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import GPT2Error

Pair = tuple[bytes, bytes]

# SHA-256 of the released vocab.bpe, which the Hub serves as merges.txt.
RELEASED_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


def _alphabet() -> dict[int, str]:
    """Byte → the character that stands for it: itself where printable, else from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(0x100 + index) for index, byte in enumerate(hidden)
    }


_CHARACTER = _alphabet()
_BYTE = {character: byte for byte, character in _CHARACTER.items()}


def spelled(data: bytes) -> str:
    """How vocabulary files spell these bytes: ``b" the"`` is ``Ġthe``."""
    return "".join(map(_CHARACTER.__getitem__, data))


def unspelled(token: str) -> bytes | None:
    """The bytes that a token of a vocabulary file stands for; None when it is no such spelling."""
    try:
        return bytes(map(_BYTE.__getitem__, token))
    except KeyError:
        return None


def pair(parts: object, where: str) -> Pair:
    """One merge from its two parts as a file spells them; `where` names the place in errors."""
    if isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) for part in parts):
        left, right = map(unspelled, parts)
        if left and right:
            return left, right
    raise GPT2Error(
        f"{where}: {parts!r} is no merge of two byte-level tokens; fetch the file again"
    )


def read_merges(path: Path) -> list[Pair]:
    """The merges of a ``merges.txt`` or ``vocab.bpe``, in order.

    Raises GPT2Error, naming the line, for anything but two tokens and one space between them.
    """
    try:
        lines = [line.removesuffix("\r") for line in path.read_bytes().decode().split("\n")]
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GPT2Error(f"{path} is not UTF-8; fetch the file again") from error
    while lines and not lines[-1]:
        lines.pop()
    header = int(bool(lines) and lines[0].startswith("#version"))
    return [
        pair(line.split(" "), f"{path}, line {number}")
        for number, line in enumerate(lines[header:], header + 1)
    ]


def are_released(merges: Iterable[Pair]) -> bool:
    """Whether these are GPT-2's own merges, by the SHA-256 of the released file."""
    lines = [f"{spelled(left)} {spelled(right)}\n" for left, right in merges]
    text = "#version: 0.2\n" + "".join(lines)
    return hashlib.sha256(text.encode()).hexdigest() == RELEASED_SHA256


def first_unreached(merges: Sequence[Pair], ranks: Mapping[bytes, int]) -> int | None:
    """The index of the first merge that tiktoken would not make, or None when it makes all.

    `ranks` gives every single byte a rank below 256 and the result of merge i the rank 256 + i.
    A merge passes when tiktoken, run on its token's bytes with the earlier ranks alone, ends with
    exactly its two parts.
    """
    parts: dict[bytes, Pair] = {}
    for index, (left, right) in enumerate(merges):
        joined = left + right
        known = all(len(part) == 1 or part in parts for part in (left, right))
        if not known or joined in parts or not _meet(left, right, 256 + index, parts, ranks):
            return index
        parts[joined] = (left, right)
    return None


def _meet(
    left: bytes, right: bytes, limit: int, parts: Mapping[bytes, Pair], ranks: Mapping[bytes, int]
) -> bool:
    """Whether `left` and `right` grow to their full length beside each other.

    Merges happen in the order of their ranks, so the state at the border is found by undoing, from
    the end, whichever of the two neighbours was made later. The border survives when at no time
    the bytes on both sides of it are together a token that is due before the next merge of either
    side. Costs a look-up a merge undone, where running tiktoken's loop costs a scan.
    """
    while True:
        if ranks.get(left + right, limit) < limit:
            return False
        if len(left) == len(right) == 1:
            return True
        if ranks[left] > ranks[right]:
            limit = ranks[left]
            left = parts[left][1]
        else:  # of two equal merges the left one is made first, so a rank that is equal comes first
            limit = ranks[right] + 1
            right = parts[right][0]
