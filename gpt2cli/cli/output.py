"""Standard output: bytes go out at once, text as UTF-8 whatever the locale."""

import json
import os
import sys
from collections.abc import Iterable


def emit(data: bytes) -> None:
    """Write bytes to stdout and flush them.

    Raises BrokenPipeError when the reader has left, another OSError for a full disk and the like.
    """
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def emit_lines(lines: Iterable[str]) -> None:
    """Write lines of text as `emit` does; a path that is no UTF-8 shows its bytes as escapes."""
    emit("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))


def json_line(value: object) -> bytes:
    """One line of JSON in UTF-8; a lone surrogate, as in a path that is no UTF-8, is escaped."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return line.encode("utf-8", "backslashreplace") + b"\n"


def literal(token: bytes) -> str:
    """The token as a Python literal: a string where its bytes are whole characters."""
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)


def in_colour() -> bool:
    """Whether stdout is a terminal that shows colours, and its user has not said NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not sys.stdout.isatty():
        return False
    if sys.platform == "win32":  # where a console is asked to show them; click depends on this
        import colorama

        colorama.just_fix_windows_console()
    return True
