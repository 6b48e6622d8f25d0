"""Files that appear whole or not at all, in a folder of their own or beside others.

They are written under another name on the same file system and renamed at the end. An error, a
full disk or an interrupt before that leaves the destination as it was; no folder is deleted but
the one made here.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import GPT2Error


@contextmanager
def new_files(folder: Path) -> Iterator[Path]:
    """A folder to write files into, which become those of `folder` when the block ends well.

    A `folder` that does not exist comes to be by one renaming; in one that does, each file
    replaces the one of its name. Raises GPT2Error when the file system refuses.
    """
    made: Path | None = None
    try:
        made = _beside(folder)
        yield made
        if folder.exists():
            for path in sorted(made.iterdir()):
                path.replace(folder / path.name)
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


def _beside(folder: Path) -> Path:
    """A new folder on the file system of `folder`, with the permissions of any other new one."""
    parent = folder if folder.exists() else folder.parent
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=parent))
    mask = os.umask(0)
    os.umask(mask)
    made.chmod(0o777 & ~mask)
    return made
