"""Files that appear whole or not at all, in a folder of their own or beside others.

They are written under another name on the same file system and renamed at the end. An error, a
full disk or an interrupt before that leaves the destination as it was, and one between two
renamings undoes them; no folder is deleted but those made here.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import GPT2Error

LAST = "config.json"  # a folder that lacks it is not taken for a checkpoint


@contextmanager
def new_files(
    folder: Path, outdated: Callable[[set[str]], Iterable[str]] = lambda _: ()
) -> Iterator[Path]:
    """A folder to write files into, which become those of `folder` when the block ends well.

    A `folder` that does not exist comes to be by one renaming; in one that does, each file
    replaces the one of its name, and the files that are `outdated`, given the new ones' names,
    go. Raises GPT2Error when the file system refuses.
    """
    made: Path | None = None
    try:
        made = _beside(folder)
        yield made
        if folder.exists():
            _replace(made, folder, outdated)
        else:
            made.rename(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GPT2Error(
            f"cannot write {folder}: {reason}; it is as it was before, so correct that and run "
            "the command again"
        ) from error
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _replace(made: Path, folder: Path, outdated: Callable[[set[str]], Iterable[str]]) -> None:
    """Move the old files aside and the new ones in; whatever interrupts that, move them back."""
    new = sorted((path.name for path in made.iterdir()), key=lambda name: (name == LAST, name))
    old = sorted({*new, *outdated(set(new))}, key=lambda name: (name != LAST, name))
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".old", dir=folder))
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
    shutil.rmtree(aside, ignore_errors=True)


def _beside(folder: Path) -> Path:
    """A new folder on the file system of `folder`, with the permissions of any other new one."""
    parent = folder if folder.exists() else folder.parent
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=parent))
    mask = os.umask(0)
    os.umask(mask)
    made.chmod(0o777 & ~mask)
    return made
