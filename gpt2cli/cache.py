"""What the Hub client's cache holds of GPT-2, as its folders say it. No network.

The layout is the client's (https://huggingface.co/docs/huggingface_hub/guides/manage-cache):
``models--OWNER--NAME`` has ``refs/BRANCH``, each with the commit that the branch stands for, and
``snapshots/COMMIT/FILE``, links to ``blobs/HASH``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .config import read_json
from .errors import GPT2Error, listing
from .hub import CONFIG, GENERATION_CONFIG, has_weights, weight_files
from .hub_setup import cache_folder
from .presets import PRESETS
from .repository import Advance, hash_like

# Shows the progress of what is done, "checking" or "fetching", over so many bytes.
Bar = Callable[[str, int], AbstractContextManager[Advance]]

_PREFIX = "models--"
_HASHES = (40, 64)  # hexadecimal digits of git's SHA-1 and of SHA-256


@dataclass(frozen=True)
class Snapshot:
    """One commit of a repository in the cache: `size` in bytes, `refs` what stands for it.

    `complete` says whether its weights are there; `problem` what cannot be read of it, or "".
    """

    repository: str
    commit: str
    refs: tuple[str, ...]
    folder: Path
    size: int
    complete: bool
    problem: str = ""

    @property
    def model(self) -> str:
        """The MODEL that it is: a name or repository, and a revision other than the main branch."""
        named = next((n for n, p in PRESETS.items() if p.repository == self.repository), None)
        name = named or self.repository
        return name if "main" in self.refs else f"{name}@{next(iter(self.refs), self.commit)}"


def snapshots() -> Iterator[Snapshot]:
    """Every commit in the cache of a released size or of another GPT-2, by name.

    One that may be a GPT-2 and cannot be read has a `problem`. Raises GPT2Error for a cache that
    is there and cannot be listed.
    """
    cache = cache_folder()
    try:
        folders = sorted(path for path in cache.iterdir() if path.name.startswith(_PREFIX))
    except FileNotFoundError:
        return
    except OSError as error:
        raise GPT2Error(
            f"the Hub's cache in {cache} cannot be read: {error.strerror}; correct that, or set "
            "HF_HOME to another folder"
        ) from error
    for folder in folders:
        repository = folder.name.removeprefix(_PREFIX).replace("--", "/")
        if repository.count("/") == 1:
            yield from _snapshots(repository, folder)


def check_hashes(repository: str, folder: Path, bar: Bar) -> tuple[str, ...]:
    """The names of a commit's config and weights, each with the hash that the Hub told of it.

    `folder` is the commit's. The client names a file by its hash and links to it: where it could
    make no links there are no hashes, and nothing is checked. Raises GPT2Error for a file with
    another hash.
    """
    small = [name for name in (CONFIG, GENERATION_CONFIG) if (folder / name).exists()]
    paths = [folder / name for name in [*small, *weight_files(folder)]]
    hashes = {path: path.readlink().name for path in paths if path.is_symlink()}
    known = {path: told for path, told in hashes.items() if len(told) in _HASHES}
    differ = []
    with bar("checking", sum(path.stat().st_size for path in known)) as advance:
        for path, told in known.items():
            if hash_like(told, path) != told:
                differ.append(path)
            advance(path.stat().st_size)
    if differ:
        raise damaged(repository, folder.name, differ)
    return tuple(path.name for path in known)


def damaged(repository: str, commit: str, paths: list[Path]) -> GPT2Error:
    """The error of files that the cache has and that are not what the Hub says they are."""
    return GPT2Error(
        f"damaged in the Hub's cache, by size or hash: {listing([*map(str, paths)])}; "
        f"`gpt2 download --force {repository}@{commit}` fetches what is damaged again"
    )


def _snapshots(repository: str, folder: Path) -> Iterator[Snapshot]:
    try:
        refs = _refs(folder / "refs")
        commits = sorted(path for path in (folder / "snapshots").iterdir() if path.is_dir())
    except FileNotFoundError:
        return
    except OSError as error:
        problem = f"{error.filename} cannot be read: {error.strerror}"
        yield Snapshot(repository, "", (), folder, 0, complete=False, problem=problem)
        return
    for commit in commits:
        names = tuple(ref for ref, stands_for in refs.items() if stands_for == commit.name)
        if (found := _snapshot(repository, commit, names)) is not None:
            yield found


def _refs(folder: Path) -> dict[str, str]:
    """The commit that each branch and tag stands for; a branch may have slashes."""
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace").strip()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _snapshot(repository: str, folder: Path, refs: tuple[str, ...]) -> Snapshot | None:
    """What a commit's folder holds, unless that is no GPT-2 or nothing."""
    size, complete, problem = 0, False, ""
    try:
        if not (_is_gpt2(folder) or _is_released(repository)):
            return None
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        complete = has_weights(folder)
    except GPT2Error as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename} cannot be read: {error.strerror}"
    if size == 0 and not problem:
        return None
    return Snapshot(repository, folder.name, refs, folder, size, complete, problem)


def _is_gpt2(folder: Path) -> bool:
    config = folder / CONFIG
    there = config.exists() or config.is_symlink()  # one that leads nowhere is an error to read
    return there and read_json(config).get("model_type") == "gpt2"


def _is_released(repository: str) -> bool:
    return any(repository == preset.repository for preset in PRESETS.values())
