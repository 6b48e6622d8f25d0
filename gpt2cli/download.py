"""A model's few files, in the Hub client's cache or in a folder, each checked by size and hash.

What the Hub's file listing says of a file is what it is checked against: the SHA-256 of a large
one, git's SHA-1 of a small one. Without network the cache is checked against itself, as the client
names what it holds by the same hashes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .cache import Bar, damaged
from .checkpoint.replacing import scratch
from .errors import GPT2Error, listing
from .hub import (
    ABOUT_TOKENIZER,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    WEIGHTS,
    Wanted,
    cached_folder,
    needed,
    settle,
    weight_files,
)
from .hub_errors import out_of_reach, transport_error
from .naming import Model
from .repository import (
    Advance,
    Commit,
    discard,
    hash_like,
    hub_client,
)

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_PART = 2**20  # bytes that are hashed at once

_READ = {CONFIG, GENERATION_CONFIG, *ABOUT_TOKENIZER, *TOKENIZER, *WEIGHTS}


@dataclass(frozen=True)
class File:
    """A file that was checked, with its size in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """The files of one commit in a folder.

    `asked` says whether the Hub itself could be asked for their hashes, `known` whether there
    were hashes to check every file against: a cache without links does not have them.
    """

    folder: Path
    commit: str
    files: tuple[File, ...]
    asked: bool
    known: bool


def download(model: Model, to: Path | None, *, force: bool, bar: Bar) -> Download:
    """Bring a repository's files here, into the cache or into the folder `to`, and check them all.

    What is here already and whole is kept. In `to` the files are real ones, each appears when it
    is whole, and the tokenizer's are among them. `force` fetches damaged files of the cache
    again, and replaces files of `to` that differ; without it either is an error. Without network
    a complete copy in the cache is enough. Raises GPT2Error for these and as `fetch` does.
    """
    if model.repository is None:
        raise ValueError(f"{model} is no repository")
    wanted = Wanted(weights=True, tokenizer=True)  # the folder is to be a model by itself
    with hub_client(model.repository, model.revision) as api:
        cached = Wanted(weights=True, tokenizer=model.preset is None or to is not None)
        source = _source(api, model.repository, model.revision, wanted, cached)
        if to is not None:
            return _Folder(source, to, force).fill(bar)
        done = source.fill_cache(force, bar)
        if source.commit is not None:
            settle(source.commit, model.revision, wanted, done.folder)
    return done


@dataclass(frozen=True)
class _Entry:
    """A file, its size and hash where they are known, and where the cache has it."""

    name: str
    size: int
    hash: str | None
    cached: Path | None


@dataclass(frozen=True)
class _Source:
    """The files wanted of one commit; `commit` is None when there is only what is cached."""

    repository: str
    sha: str
    entries: list[_Entry]
    commit: Commit | None

    def fill_cache(self, force: bool, bar: Bar) -> Download:
        """Check what the cache has, and fetch the rest."""
        cached = {entry: entry.cached for entry in self.entries if entry.cached is not None}
        whole, differ = _sorted(cached, bar)
        if differ and not (force and self.commit):
            raise self.damaged(differ)
        missing = [entry for entry in self.entries if entry.name not in whole]
        with bar("fetching", sum(entry.size for entry in missing)) as advance:
            for entry in missing:
                if entry in differ:
                    discard(cached[entry])
                whole[entry.name], cached[entry] = self.fetch(entry, advance)
        return self.done(next(iter(cached.values())).parent, whole)

    def fetch(self, entry: _Entry, advance: Advance, into: Path | None = None) -> tuple[File, Path]:
        """A file over the network. Raises GPT2Error, and removes it, when it arrives damaged."""
        if self.commit is None:
            raise ValueError(f"{entry} is in no cache, and there is no network")
        path = self.commit.fetch(entry.name, advance, into)
        file, found = _hashed(entry, path)
        if found != entry.hash or file.size != entry.size:
            raise self.commit.damaged(entry.name, path, f"{found}", f"{entry.hash}")
        return file, path

    def done(self, folder: Path, files: dict[str, File]) -> Download:
        listed = tuple(files[entry.name] for entry in self.entries)
        known = all(entry.hash for entry in self.entries)
        return Download(folder, self.sha, listed, self.commit is not None, known)

    def damaged(self, entries: list[_Entry]) -> GPT2Error:
        """The error of files that the cache has and that are not what the Hub says they are."""
        paths = [entry.cached for entry in entries if entry.cached is not None]
        return damaged(self.repository, self.sha, paths)


@dataclass(frozen=True)
class _Folder:
    """A folder that the files are to lie in."""

    source: _Source
    path: Path
    force: bool

    def fill(self, bar: Bar) -> Download:
        """Keep what is the same, refuse what differs or is in the way, bring the rest."""
        with _writing(self.path):
            self._refuse_strays()
            paths = {entry: self.path / entry.name for entry in self.source.entries}
            there = {entry: path for entry, path in paths.items() if path.exists()}
            whole, differ = _sorted(there, bar)
            if differ and not self.force:
                raise GPT2Error(
                    f"{self.path} has another {listing([e.name for e in differ])}; give --force "
                    "to replace it, or another folder"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            missing = [entry for entry in self.source.entries if entry.name not in whole]
            size = sum(entry.size for entry in missing)
            with bar("fetching", size) as advance, scratch(self.path) as made:
                for entry in missing:
                    whole[entry.name] = self._bring(entry, made, advance)
                    (made / entry.name).replace(self.path / entry.name)
        return self.source.done(self.path, whole)

    def _bring(self, entry: _Entry, made: Path, advance: Advance) -> File:
        """A file in the folder `made`: a copy of the cache's, or fetched."""
        if entry.cached is not None:
            shutil.copyfile(entry.cached, made / entry.name)
            file, found = _hashed(entry, made / entry.name, advance)
            if file.size == entry.size and found == entry.hash:
                return file
            if not (self.force and self.source.commit):
                raise self.source.damaged([entry])
            advance(-file.size)
        return self.source.fetch(entry, advance, made)[0]

    def _refuse_strays(self) -> None:
        """Raise GPT2Error for files that the model does not have and that would be read as its."""
        if self.path.exists() and not self.path.is_dir():
            raise GPT2Error(f"{self.path} is a file; give a folder")
        own = {entry.name for entry in self.source.entries}
        if strays := sorted(name for name in _READ - own if (self.path / name).exists()):
            raise GPT2Error(
                f"{self.path} has {listing(strays)}, which {self.source.repository} does not have "
                "and which would be read with it; give another folder"
            )


def _source(
    api: HfApi, repository: str, revision: str | None, wanted: Wanted, cached: Wanted
) -> _Source:
    """What the Hub lists, or, when it is out of reach, what the cache has if that is complete."""
    try:
        commit = Commit.resolve(api, repository, revision)
    except (OSError, transport_error()) as error:
        folder = cached_folder(repository, revision, cached) if out_of_reach(error) else None
        if folder is None:
            raise
        return _Source(repository, folder.name, _cached_entries(folder), None)
    names = needed(commit, wanted)
    entries = [_Entry(n, commit.sizes[n], commit.hashes[n], commit.cached(n)) for n in names]
    return _Source(repository, commit.sha, entries, commit)


def _cached_entries(folder: Path) -> list[_Entry]:
    """The files of a folder of the cache; links lead to files that are named by their hashes."""
    names = (CONFIG, GENERATION_CONFIG, *ABOUT_TOKENIZER, *TOKENIZER)
    small = [name for name in names if (folder / name).exists()]
    paths = [folder / name for name in [*small, *weight_files(folder)]]
    return [
        _Entry(p.name, p.stat().st_size, p.readlink().name if p.is_symlink() else None, p)
        for p in paths
    ]


def _sorted(paths: dict[_Entry, Path], bar: Bar) -> tuple[dict[str, File], list[_Entry]]:
    """The files that are what they should be, and the entries of those that are not."""
    whole: dict[str, File] = {}
    differ: list[_Entry] = []
    with bar("checking", sum(path.stat().st_size for path in paths.values())) as advance:
        for entry, path in paths.items():
            file, found = _hashed(entry, path, advance)
            if file.size == entry.size and found == entry.hash:
                whole[entry.name] = file
            else:
                differ.append(entry)
    return whole, differ


def _hashed(
    entry: _Entry, path: Path, advance: Advance = lambda _: None
) -> tuple[File, str | None]:
    """What a file is, and its hash in the form of the entry's; None where that has none."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
            advance(len(part))
    found = File(entry.name, path.stat().st_size, digest.hexdigest())
    if entry.hash is None or len(entry.hash) == len(found.sha256):
        return found, entry.hash and found.sha256
    return found, hash_like(entry.hash, path)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the file system refuses, as a GPT2Error; what the Hub's client raises has no number."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise GPT2Error(
            f"cannot use {error.filename or folder}: {error.strerror}; correct that, or give "
            "another folder"
        ) from error
