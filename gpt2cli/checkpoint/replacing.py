"""Files that appear whole or not at all, in a folder of their own or beside others.

They are written under another name on the same file system and renamed at the end. An error, a
full disk or an interrupt before that leaves the destination as it was, and one between two
renamings undoes them. What a killed process left goes with the next run: who works in a folder
holds its lock, which the system takes back with the process. No folder is deleted but those made
here.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import GPT2Error

if sys.platform != "win32":
    import fcntl

LAST = "config.json"  # a folder that lacks it is not taken for a checkpoint

_PREFIX = ".gpt2cli-"  # of folders made here, before eight random characters


@contextmanager
def new_files(
    folder: Path, outdated: Callable[[set[str]], Iterable[str]] = lambda _: ()
) -> Iterator[Path]:
    """A folder to write files into, which become those of `folder` when the block ends well.

    A `folder` that does not exist comes to be by one renaming; in one that does, each file
    replaces the one of its name, and the files that are `outdated`, given the new ones' names,
    go. Raises GPT2Error when the file system refuses.
    """
    try:
        with scratch(folder if folder.exists() else folder.parent) as made:
            made.chmod(0o777 & ~_umask())  # it may become the folder itself
            yield made
            if folder.exists():
                with _held(folder):
                    _replace(made, folder, outdated)
            else:
                made.rename(folder)
    except BlockingIOError as error:
        raise GPT2Error(f"another process is writing {folder}; run the command again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise GPT2Error(
            f"cannot write {folder}: {reason}; it is as it was before, so correct that and run "
            "the command again"
        ) from error


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, removed in the end, as are those there that killed runs left."""
    _sweep(parent, ".partial")
    made, lock = _own(parent)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        _unlock(lock)


def _own(parent: Path) -> tuple[Path, int | None]:
    """A new folder and its lock."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=".partial", dir=parent))
        lock = _lock(made)
        if made.exists():
            return made, lock
        _unlock(lock)  # before it was locked, another run took it for one that is left


def _replace(made: Path, folder: Path, outdated: Callable[[set[str]], Iterable[str]]) -> None:
    """Move the old files aside and the new ones in; whatever interrupts that, move them back."""
    new = sorted((path.name for path in made.iterdir()), key=lambda name: (name == LAST, name))
    old = sorted({*new, *outdated(set(new))}, key=lambda name: (name != LAST, name))
    aside = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=".old", dir=folder))
    moves = [(folder / name, aside / name) for name in old if (folder / name).exists()]
    moves += [(made / name, folder / name) for name in new]
    begun: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            begun.append((source, target))
            source.rename(target)
    except BaseException:
        for source, target in reversed(begun):
            if target.exists():
                target.rename(source)
        with suppress(OSError):
            aside.rmdir()
        raise
    _sweep(folder, ".old")


def _sweep(parent: Path, suffix: str) -> None:
    """Remove the folders of this kind that nobody works in."""
    for left in parent.glob(f"{_PREFIX}????????{suffix}"):
        with suppress(BlockingIOError), _held(left) as known:
            if known:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock; BlockingIOError where another process does, False where none can."""
    lock = _lock(folder, wait=False)
    try:
        yield lock is not None
    finally:
        _unlock(lock)


def _lock(folder: Path, *, wait: bool = True) -> int | None:
    """A folder's lock, or None where the system has no such locks."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
