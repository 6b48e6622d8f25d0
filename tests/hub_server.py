"""A server on 127.0.0.1 that plays the Hugging Face Hub and the CDN of its large files."""

import hashlib
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
from huggingface_hub import constants

from gpt2cli.hub_setup import DEFAULTS

LARGE = (".safetensors", ".bin", ".h5")  # kept apart from git, as the Hub does with large files


@dataclass
class Repository:
    """A repository at one commit, and how the server misbehaves when it is asked for it."""

    files: dict[str, bytes]
    refusal: tuple[int, dict[str, str]] | None = None  # status and headers of every answer
    sent: dict[str, bytes] = field(default_factory=dict)  # what arrives in place of a file
    cut: dict[str, list[int]] = field(default_factory=dict)  # bytes after which a connection ends
    claimed: dict[str, int] = field(default_factory=dict)  # a size that is not the file's
    reset: bool = False  # whether it ends with a reset, not in good order
    stall: dict[str, int] = field(default_factory=dict)  # bytes after which nothing more comes
    plain_etags: bool = False  # SHA-1 of the content, as some mirrors give, not git's

    @property
    def sha(self) -> str:
        """The commit: another one whenever a file is another one."""
        hashes = [(name, hashlib.sha1(self.files[name]).digest()) for name in sorted(self.files)]
        return hashlib.sha1(repr(hashes).encode()).hexdigest()

    def etag(self, name: str) -> str:
        content = self.files[name]
        if name.endswith(LARGE):
            return hashlib.sha256(content).hexdigest()
        head = b"" if self.plain_etags else b"blob %d\0" % len(content)
        return hashlib.sha1(head + content).hexdigest()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None


class HubServer:
    """Start it as a context manager. `requests` lists what it was asked, `sent` counts bytes."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.revisions: dict[tuple[str, str], Repository] = {}  # other than the main branch
        self.requests: list[Request] = []
        self.sent = 0
        self.ranges = True
        self.page: bytes | None = None  # what a network that wants a login answers to everything
        self.silent = False  # whether it takes requests and answers none
        self.circle = False  # whether it sends every request back to where it came from
        self.stalled = threading.Event()
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._servers = [_Server(("127.0.0.1", 0), handler) for _ in ("hub", "cdn")]
        self.url, self.cdn = (f"http://127.0.0.1:{s.server_port}" for s in self._servers)

    def __enter__(self) -> "HubServer":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def asked(self, name: str) -> list[Request]:
        """The requests for the content of a large file, which the Hub passes on to its CDN."""
        paths = f"/cdn/.*/{re.escape(name)}"
        return [r for r in self.requests if r.method == "GET" and re.fullmatch(paths, r.path)]

    def fetched(self) -> set[str]:
        """The names of the files that were asked for."""
        gets = [r.path for r in self.requests if r.method == "GET" and "/api/" not in r.path]
        return {path.rsplit("/", 1)[1] for path in gets}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients go away in the middle here; that is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets; waiting costs 40 ms each

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(Request(self.command, path, self.headers.get("Range")))
        if self.hub.silent:
            return self.hub.released.wait(30) and None
        if self.hub.circle:
            return self._reply(302, {"Location": f"{self.hub.url}{self.path}"}, b"")
        if self.hub.page is not None:
            return self._reply(200, {"Content-Type": "text/html"}, self.hub.page)
        for pattern, method in (
            (r"/api/models/([^/]+/[^/]+)/revision/(.+)", self._revision),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self._tree),
            (r"/cdn/([^/]+/[^/]+)/([^/]+)/(.+)", self._content),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        ):
            if match := re.fullmatch(pattern, path):
                owner_name, revision, *name = map(unquote, match.groups())
                repository = self._repository(owner_name, revision)
                return repository and method(owner_name, repository, *name)
        return self._refuse(404, {})

    def _repository(self, owner_name: str, revision: str) -> Repository | None:
        main = self.hub.repositories.get(owner_name)
        if main is None:
            return self._refuse(401, {"X-Error-Code": "RepoNotFound"})
        if main.refusal is not None:
            return self._refuse(*main.refusal)
        others = [r for (name, _), r in self.hub.revisions.items() if name == owner_name]
        named = {"main": main, **{r.sha: r for r in [main, *others]}}
        found = named.get(revision) or self.hub.revisions.get((owner_name, revision))
        if found is None:
            return self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
        return found

    def _revision(self, owner_name: str, repository: Repository) -> None:
        siblings = [{"rfilename": name} for name in repository.files]
        self._json({"id": owner_name, "sha": repository.sha, "siblings": siblings})

    def _tree(self, owner_name: str, repository: Repository) -> None:
        folders = {name.rsplit("/", 1)[0] for name in repository.files if "/" in name}
        tree = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders]
        for name, content in repository.files.items():
            oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            size = repository.claimed.get(name, len(content))
            entry = {"type": "file", "oid": oid, "size": size, "path": name}
            if name.endswith(LARGE):  # in git there is a pointer, with a hash of its own
                entry["oid"] = "0" * 40
                oid = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": oid, "size": size, "pointerSize": 134}
            tree.append(entry)
        self._json(tree)

    def _resolve(self, owner_name: str, repository: Repository, name: str) -> None:
        commit = {"X-Repo-Commit": repository.sha}
        if name not in repository.files:
            return self._refuse(404, {"X-Error-Code": "EntryNotFound", **commit})
        if not name.endswith(LARGE):
            return self._content(owner_name, repository, name, commit)
        # what the Hub says of its own Xet storage: to be left alone here
        headers = {
            "X-Linked-Etag": f'"{repository.etag(name)}"',
            "X-Linked-Size": str(repository.claimed.get(name, len(repository.files[name]))),
            "X-Xet-Hash": "0" * 64,
            "X-Xet-Refresh-Route": f"{self.hub.url}/api/xet",
            "Location": f"{self.hub.cdn}/cdn/{owner_name}/{repository.sha}/{name}",
        }
        return self._reply(302, headers | commit, b"")

    def _content(
        self,
        owner_name: str,
        repository: Repository,
        name: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        content = repository.sent.get(name, repository.files[name])
        headers = {"ETag": f'"{repository.etag(name)}"', "Accept-Ranges": "bytes"} | (headers or {})
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None or not self.hub.ranges:
            return self._reply(200, headers, content, repository, name)
        start, stop = int(wanted[1]), min(int(wanted[2] or len(content)) + 1, len(content))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return self._reply(206, headers, content[start:stop], repository, name)

    def _json(self, value: object) -> None:
        self._reply(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        self._reply(status, headers, b"")

    def _reply(
        self,
        status: int,
        headers: dict[str, str],
        body: bytes,
        repository: Repository | None = None,
        name: str = "",
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(body)
        if repository is not None and (stall := repository.stall.get(name)) is not None:
            self._send(body[:stall])
            self.hub.stalled.set()
            self.hub.released.wait(30)
            end = stall
        elif repository is not None and repository.cut.get(name):
            end = repository.cut[name].pop(0)
            self._send(body[:end])
        else:
            self._send(body)
        if end < len(body):
            self._hang_up(repository is not None and repository.reset)

    def _send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()
        self.hub.sent += len(data)

    def _hang_up(self, reset: bool) -> None:
        self.close_connection = True
        if reset:  # lingering for no time makes the kernel send a reset
            off = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, off)
            self.connection.close()


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[HubServer]:
    """A Hub without repositories, and a client with this cache that knows it."""
    with HubServer() as server:
        for name, value in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(cache),
            "HF_TOKEN_PATH": str(cache.parent / "token"),
            "HF_HUB_OFFLINE": False,
            **dict.fromkeys(DEFAULTS, True),
        }.items():
            monkeypatch.setattr(constants, name, value)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_DISABLE_PROGRESS_BARS"):
            monkeypatch.delenv(name, raising=False)
        yield server
        huggingface_hub.close_session()
