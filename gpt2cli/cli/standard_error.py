"""Standard error: what cannot be said there is left out, and ends no run."""

import io
import os
import sys
from typing import Any


def make_sure() -> None:
    """Have a standard error that can be written, whatever the program was started with.

    Where it is closed, the next file that is opened would take its place, and get what is said.
    """
    if sys.stderr is not sys.__stderr__:
        return  # somebody else's
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stderr = io.TextIOWrapper(
        _Standard(2, "w", closefd=False),
        encoding=getattr(sys.stderr, "encoding", None),
        errors="backslashreplace",
        write_through=True,
    )


class _Standard(io.FileIO):
    """A file whose reader may have left, or whose disk may be full."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)
