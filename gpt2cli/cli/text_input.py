"""The text a command works on: an argument, a file, or standard input. Exact to the byte."""

import codecs
import io
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from ..errors import GPT2Error

STDIN = "-"

MOST_BYTES = 2**30  # of a file
MOST_MODEL_BYTES = 2**26  # of a text that a model is to read

_PART = 2**20


def read_bytes(
    argument: str | None, file: Path | None, most: int = MOST_MODEL_BYTES
) -> bytes | None:
    """The bytes of the argument, else of the file, else of standard input.

    ``-`` in either place is standard input, which is never read when there is an argument. None:
    nothing was given and standard input is a terminal, or closed. Raises click.UsageError when
    both were given and GPT2Error when what is named cannot be read or has more than `most` bytes.
    """
    if argument is not None and file is not None:
        raise click.UsageError("A text and --file were both given; give one of them.")
    if argument is not None and argument != STDIN:
        return os.fsencode(argument)
    if file is not None and str(file) != STDIN:
        try:
            with file.open("rb") as opened:
                return _all(opened, str(file), most)
        except OSError as error:
            raise GPT2Error(f"cannot read {file}: {error.strerror}; check the path") from error
    if sys.stdin is None or (argument is None and file is None and sys.stdin.isatty()):
        return None
    try:
        return _all(sys.stdin.buffer, "standard input", most)
    except OSError as error:
        raise GPT2Error(f"cannot read standard input: {error.strerror or error}") from error


def _all(file: BinaryIO, name: str, most: int) -> bytes:
    """All bytes of a file; one that has no end, as ``/dev/zero`` has none, is left at `most`."""
    held = io.BytesIO()
    while held.tell() <= most:
        part = file.read(_PART)
        held.write(part)
        if len(part) < _PART:
            return held.getvalue()
    raise GPT2Error(f"{name} has more than {most:,} bytes, which is too much at once; give less")


def read_text(
    prompt: str | None, file: Path | None, *, encoding: str | None, keep_newline: bool
) -> str | None:
    """The text of the argument, else of the file, else of standard input; see `read_bytes`.

    Of a file or of standard input a byte order mark is dropped, and one final newline, CR LF as a
    whole, unless `keep_newline`. `encoding` is a Python codec's name, UTF-8 when None. Raises
    GPT2Error for an empty text, for bytes that are not in the encoding, and for standard input
    that is closed. A typed prompt that is UTF-8 is taken as such, whatever `encoding` says.
    """
    data = read_bytes(prompt, file)
    if data is None and sys.stdin is None:
        raise GPT2Error(
            "standard input is closed; give a prompt, or --unconditional to start without one"
        )
    if data is None:
        return None
    typed = prompt is not None and prompt != STDIN
    name = "PROMPT" if typed else "standard input"
    if file is not None and str(file) != STDIN:
        name = str(file)
    text = decoded(data, None if typed and _is_utf8(data) else encoding, name)
    if not typed:
        text = text.removeprefix("\ufeff")
    if not (typed or keep_newline) and text.endswith("\n"):
        text = text[:-2] if text.endswith("\r\n") else text[:-1]
    if not text:
        empty = "is a newline alone, which --keep-newline keeps" if data else "is empty"
        raise GPT2Error(f"{name} {empty}; --unconditional starts from the start token instead")
    return text


def decoded(data: bytes, encoding: str | None, name: str) -> str:
    """`data` as a text that has a UTF-8 form; GPT2Error says where in `name` it is none."""
    try:
        text = data.decode(encoding or "utf-8")
        text.encode()
    except UnicodeError as error:
        reason = str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"byte {error.start} is 0x{data[error.start]:02X}"
            if line := data.count(b"\n", 0, error.start):
                reason += f", on line {line + 1}"
        raise GPT2Error(
            f"{name} is not {encoding or 'UTF-8'}: {reason}; {_advice(data)}"
        ) from error
    return text


def _advice(data: bytes) -> str:
    """What to do about bytes in another encoding: how Windows begins a text says which it is."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "it begins as UTF-16 does, so try --encoding utf-16"
    return "name its encoding with --encoding"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_encoding(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """A callback of an option: the name of a codec between text and bytes."""
    try:
        "a".encode("utf-8" if name is None else name)
    except (LookupError, UnicodeError):
        raise click.BadParameter(f"{name!r} is not the name of a text encoding.") from None
    return name
