"""One file that appears whole or not at all, in place of another of its name."""

import os
import tempfile
from pathlib import Path

from ..errors import GPT2Error


def check_writable(path: Path, *read: Path | None) -> None:
    """Raise GPT2Error when `path` cannot become a file, or is one of those that are read.

    It is for the time before there is anything to write.
    """
    try:
        reason = _unwritable(path.resolve())
        if path.exists() and any(each.exists() and path.samefile(each) for each in read if each):
            reason = "it is read in this run"
    except (OSError, RuntimeError) as error:  # RuntimeError: before Python 3.13, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        raise GPT2Error(f"cannot write {path}: {reason}; name another file")


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path`. A link stays, and the file that it leads to is replaced.

    Raises GPT2Error when the file system refuses.
    """
    target = path.resolve()
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as folder:
            whole = Path(folder) / "whole"
            whole.write_bytes(data)
            whole.replace(target)
    except OSError as error:
        raise GPT2Error(
            f"cannot write {path}: {error.strerror or error}; correct that, or name another file"
        ) from error


def _unwritable(target: Path) -> str:
    """Why the file that `target` would be cannot be put in place; nothing when it can."""
    if target.is_dir():
        return "it is a folder"
    if target.is_symlink() or (target.exists() and not target.is_file()):
        return "it is no regular file"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    writable = os.access(target.parent, os.W_OK)
    return "" if writable else f"no permission to write in {target.parent}"
