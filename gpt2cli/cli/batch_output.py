"""The file of ``-o``: whole lines, appended under a lock, that a later run goes on from."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import GPT2Error

if sys.platform != "win32":
    import fcntl


class Output:
    """An output file that this process holds; `end` is where its whole lines end.

    What lies after `end` goes with the next line that is written, so a file that is to be
    replaced is there until there is something to replace it with.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.path = path
        self.end = 0
        self._file = file

    @classmethod
    @contextlib.contextmanager
    def held(cls, path: Path) -> Iterator[Output]:
        """The file at `path`, made where there is none; one that stays empty goes again.

        Raises GPT2Error when it cannot be written or another process holds it. The system lets
        go of it when the process ends, in whatever way.
        """
        new = not os.path.lexists(path)
        try:
            if path.exists() and not path.is_file():
                raise GPT2Error(f"{path} is no ordinary file; name another one with -o")
            file = _locked(path)
        except OSError as error:
            raise GPT2Error(f"cannot write {path}: {error.strerror or error}") from error
        with file:
            try:
                yield cls(path, file)
            finally:
                if new and not os.fstat(file.fileno()).st_size:
                    path.unlink(missing_ok=True)

    def lines(self) -> Iterator[bytes]:
        """The lines that are there; the last may lack its newline."""
        with self.path.open("rb") as file:
            yield from file

    def first(self) -> dict[str, Any]:
        """The first line, empty where there is no whole one."""
        line = next(self.lines(), b"")
        return parsed(line) if line.endswith(b"\n") else {}

    def append(self, lines: bytes) -> None:
        """Write whole lines, or, where that fails or is interrupted, none of them."""
        try:
            self._file.truncate(self.end)
            rest = memoryview(lines)
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self.end)
            if isinstance(error, OSError):
                raise GPT2Error(
                    f"cannot write {self.path}: {error.strerror}; its lines so far are whole, so "
                    "correct that and go on with the same command"
                ) from error
            raise
        self.end += len(lines)


def parsed(line: bytes) -> dict[str, Any]:
    """A line's object, empty where it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _locked(path: Path) -> FileIO:
    """The file at `path`, open to append to and locked: the one that has this name now."""
    while True:
        file = FileIO(path, "a+")
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
            file.close()  # whoever held it has just removed it
        except BlockingIOError:
            file.close()
            raise GPT2Error(
                f"another process is writing {path}; wait for it, or name another file with -o"
            ) from None
        except BaseException:
            file.close()
            raise
