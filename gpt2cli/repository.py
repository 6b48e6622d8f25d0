"""One commit of a repository on the Hub: its files, checked, in the Hub client's own cache.

huggingface_hub is imported inside the functions, so that what needs no Hub does not load it. The
client fetches and keeps the files; what it does not do is done here: hashes are compared, a lost
connection that it gives up on is tried again.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import GPT2Error
from .hub_errors import explain, in_line, transport_error
from .hub_setup import cache_folder, check_network

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CLIENT = "gpt2cli"  # what requests say of who sends them
TIMEOUT = 10.0  # seconds without an answer, as the client waits for a file's ETag
ATTEMPTS = 3  # to fetch a file, beyond what the client tries on its own

Advance = Callable[[int], object]  # told how many more bytes are done; fewer, if negative


@dataclass(frozen=True)
class Commit:
    """One commit: the sizes of its files in bytes, their hashes, and how they come into the cache.

    A hash is the SHA-256 of a large file, git's SHA-1 of a small one. Use it inside `hub_client`,
    which turns what can fail here into a GPT2Error.
    """

    api: HfApi
    repository: str
    sha: str
    sizes: dict[str, int]
    hashes: dict[str, str]

    @classmethod
    def resolve(cls, api: HfApi, repository: str, revision: str | None) -> Commit:
        """The commit that a branch or tag stands for now; None is the main branch."""
        from huggingface_hub.hf_api import RepoFile

        check_network()
        try:
            sha = api.model_info(repository, revision=revision or "main", timeout=TIMEOUT).sha
            if sha is None:
                raise KeyError("sha")
            tree = api.list_repo_tree(repository, revision=sha, recursive=True)
            files = [file for file in tree if isinstance(file, RepoFile)]
            sizes = {file.path: file.size for file in files}
            hashes = {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files}
        except UnicodeEncodeError as error:  # nothing else is sent in ASCII
            raise GPT2Error(
                "the access token has a character that none has; `hf auth login` again, or correct "
                "HF_TOKEN"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise GPT2Error(
                f"{api.endpoint} does not answer as the Hub does ({in_line(error)}); check "
                "HF_ENDPOINT, and whether the network asks for a login"
            ) from error
        return cls(api, repository, sha, sizes, hashes)

    def get(self, name: str, *, bar: bool = False) -> Path:
        """Where a file lies in the cache, fetched unless it is there, and checked in any case.

        `bar` shows its progress on stderr if that is a terminal. Raises GPT2Error, and removes
        the file, when it is not what the Hub says it is.
        """
        with _bars(bar):
            path = self._fetch(name, ATTEMPTS)
        self._check(name, path)
        return path

    def fetch(self, name: str, advance: Advance, into: Path | None = None) -> Path:
        """Where a file lies in the cache, fetched unless it is there; or fetched into a folder.

        It is not checked. `advance` is told how much has come. Beside a file in `into` the client
        leaves a folder ``.cache``.
        """
        asked = {"tqdm_class": _counter(advance)}
        place = {} if into is None else {"local_dir": into, "force_download": True}
        with _bars(False):
            return self._fetch(name, ATTEMPTS, **asked, **place)

    def cached(self, name: str) -> Path | None:
        """Where the cache has a file, if it does."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repository, name, revision=self.sha)
        return Path(found) if isinstance(found, str) else None

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of a file, by one range request; nothing is kept.

        Where the server ignores the range, no more than `stop` bytes are read.
        """
        from huggingface_hub import get_session
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        headers = build_hf_headers(library_name=CLIENT)
        headers |= {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        with get_session().stream(
            "GET", self._url(name), headers=headers, timeout=TIMEOUT, follow_redirects=True
        ) as response:
            if response.status_code not in (200, 206):
                raise GPT2Error(
                    f"the Hub answers HTTP {response.status_code} for {self.repository}/{name}"
                )
            skip = start if response.status_code == 200 else 0
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) >= skip + stop - start:
                    break
        return bytes(data[skip : skip + stop - start])

    def note_absent(self, names: Iterable[str]) -> None:
        """Have the client remember that these files do not exist: it keeps the Hub's 404."""
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

        for name in names:
            with suppress(EntryNotFoundError, HfHubHTTPError):
                self.api.hf_hub_download(self.repository, name, revision=self.sha)

    def note_revision(self, revision: str | None, name: str) -> None:
        """Have the client remember what a branch or tag stands for: it does when asked for a file.

        `name` is a file that is already here.
        """
        if revision != self.sha:
            self.api.hf_hub_download(self.repository, name, revision=revision or "main")

    def _fetch(self, name: str, attempts: int, **asked: Any) -> Path:
        """The client resumes after most broken connections; after a reset one it gives up."""
        from huggingface_hub.errors import HfHubHTTPError

        try:
            found = self.api.hf_hub_download(self.repository, name, revision=self.sha, **asked)
        except transport_error() as error:
            if isinstance(error, HfHubHTTPError) or attempts == 1:
                raise
        else:
            _sweep(Path(found))
            return Path(found)
        time.sleep(1)
        return self._fetch(name, attempts - 1, **asked)

    def _check(self, name: str, path: Path) -> None:
        """Compare a file with its ETag: the SHA-256 of a large file, git's SHA-1 of a small one."""
        blob = path.parent / path.readlink() if path.is_symlink() else None
        etag = self._etag(name) if blob is None else blob.name
        if (found := hash_like(etag, path)) != etag:
            raise self.damaged(name, path, found, etag)

    def damaged(self, name: str, path: Path, found: str, expected: str) -> GPT2Error:
        """The error of a file that came with another hash; what came is removed."""
        discard(path)
        return GPT2Error(
            f"{self.repository}/{name} arrived damaged and was removed: its hash is {found}, "
            f"not {expected}; run the command again"
        )

    def _etag(self, name: str) -> str:
        """Asked of the Hub where the cache has no links; links lead to a file named by it."""
        from huggingface_hub import get_hf_file_metadata

        return get_hf_file_metadata(self._url(name), timeout=TIMEOUT).etag or ""

    def _url(self, name: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.repository, name, revision=self.sha, endpoint=self.api.endpoint)


def hash_like(etag: str, path: Path) -> str:
    """The hash of a file that an ETag of this form gives; the ETag itself if it gives none."""
    if len(etag) == 64:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if len(etag) != 40:
        return etag
    content = path.read_bytes()
    forms = [content, b"blob %d\0" % len(content) + content]  # as some mirrors do, and as git does
    hashes = [hashlib.sha1(form, usedforsecurity=False).hexdigest() for form in forms]
    return etag if etag in hashes else hashes[-1]


def discard(path: Path) -> None:
    """Remove a file of the cache: what it is called, and what that leads to."""
    link = [path.parent / path.readlink()] if path.is_symlink() else []
    for each in (path.resolve(), path, *link):
        each.unlink(missing_ok=True)


def _counter(advance: Advance) -> type:
    """What the client takes for a class of progress bars: it passes on how many bytes came.

    Those of an attempt that failed are taken back.
    """

    class Counter:
        def __init__(self, **_: object) -> None:
            self.done = 0

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
            if kind is not None:
                self.update(-self.done)

        def update(self, number: int) -> None:
            self.done += number
            advance(number)

        def close(self) -> None:
            pass

    return Counter


def _sweep(path: Path) -> None:
    """Remove what killed runs left in the cache of a file that has all come now.

    Nobody writes there: the client fetches a file under a lock, and not when it is there already.
    """
    if not path.is_symlink():
        return
    blob = path.parent / path.readlink()
    for part in blob.parent.glob(glob.escape(blob.name) + "*.incomplete"):
        part.unlink(missing_ok=True)


@contextmanager
def hub_client(repository: str, revision: str | None) -> Iterator[HfApi]:
    """The Hub's client, without log lines; whatever fails in it leaves as one GPT2Error.

    A disk that is too full is an error before the download, where the client only warns.
    """
    cache_folder()
    from huggingface_hub import HfApi
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Not enough free disk space")
            yield HfApi(library_name=CLIENT)
    except (OSError, UserWarning, transport_error()) as error:
        raise GPT2Error(explain(error, repository, revision)) from error
    finally:
        hub_logging.set_verbosity(verbosity)


@contextmanager
def _bars(show: bool) -> Iterator[None]:
    """Progress bars as asked for; the client's environment variable has the last word."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    group = "huggingface_hub"
    if show or "HF_HUB_DISABLE_PROGRESS_BARS" in os.environ or are_progress_bars_disabled(group):
        yield
        return
    disable_progress_bars(group)
    try:
        yield
    finally:
        enable_progress_bars(group)
