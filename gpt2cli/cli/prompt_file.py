"""The file of ``--prompts``: a prompt a line, as JSON or as it stands."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ..config import parse_json
from ..errors import GPT2Error
from .text_input import MOST_BYTES, STDIN, decoded, read_bytes

_MOST_SAID = 3  # bad lines that are spelled out


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, the line it stands on, and what its user calls it."""

    line: int
    text: str
    id: str | int | float | None = None


@dataclass(frozen=True)
class BadLines:
    """What is wrong with a file, line by line, to be said all at once."""

    path: Path
    found: list[str] = field(default_factory=list)

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Note a GPT2Error as one of this line."""
        try:
            yield
        except GPT2Error as error:
            self.found.append(f"line {line}: {error}")

    def check(self) -> None:
        """Raise GPT2Error if there was any."""
        if not self.found:
            return
        more = len(self.found) - _MOST_SAID
        said = "; ".join(self.found[:_MOST_SAID]) + (f"; and {more} more lines" if more > 0 else "")
        raise GPT2Error(f"{self.path}: {said}")


def check_suffix(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """A callback of an option: a file whose name says how its prompts are written."""
    if path is not None and str(path) == STDIN:
        raise click.BadParameter("standard input does not say whether it is .jsonl or .txt.")
    if path is not None and path.suffix.lower() not in (".jsonl", ".txt"):
        raise click.BadParameter(f"{str(path)!r} ends neither in .jsonl nor in .txt.")
    return path


def read_prompts(path: Path, encoding: str | None) -> list[Prompt]:
    """The prompts of a file, in order.

    Lines end in LF or CR LF, and a byte order mark is no part of the first. Raises GPT2Error for
    a file without prompts, and for lines that are none, by their numbers.
    """
    text = decoded(read_bytes(None, path, MOST_BYTES) or b"", encoding, str(path)).removeprefix(
        "\ufeff"
    )
    if not text:
        raise GPT2Error(f"{path} is empty; write a prompt a line into it")
    prompts = []
    bad = BadLines(path)
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        with bad.at(number):
            value = line.removesuffix("\r")
            found = _parsed(value) if path.suffix.lower() == ".jsonl" else {"prompt": value}
            prompts.append(Prompt(number, _text(found), _id(found)))
    bad.check()
    return prompts


def _parsed(line: str) -> dict[str, Any]:
    """A line of JSON: an object as it stands, a string as an object that holds it."""
    if not line.strip():
        raise GPT2Error("it is blank; leave it out")
    try:
        value = parse_json(line)
    except json.JSONDecodeError as error:
        raise GPT2Error(f"no JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:
        raise GPT2Error("JSON with a name twice, a number too long or lists too deep") from error
    if isinstance(value, str):
        return {"prompt": value}
    if not isinstance(value, dict):
        raise GPT2Error("neither a JSON string nor an object with a prompt")
    if unknown := [repr(key) for key in value if key not in ("prompt", "id")]:
        raise GPT2Error(f"{', '.join(unknown)} is unknown; a line holds prompt and id")
    return value


def _text(line: dict[str, Any]) -> str:
    text = line.get("prompt")
    if not isinstance(text, str):
        raise GPT2Error("it has no prompt" if text is None else "its prompt is no string")
    if not text:
        raise GPT2Error(
            "the prompt is empty; to start without one write <|endoftext|> there and give --special"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GPT2Error("its prompt holds half a surrogate pair, which is no text") from error
    return text


def _id(line: dict[str, Any]) -> str | int | float | None:
    if "id" not in line:
        return None
    name = line["id"]
    if isinstance(name, str | int) and not isinstance(name, bool):
        return name
    if isinstance(name, float) and math.isfinite(name):
        return name
    raise GPT2Error("its id is neither a string nor a number")
