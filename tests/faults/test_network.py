"""A server that fails in whatever way: one line, nothing of it is kept, and no endless wait."""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import checkpoints
import pytest
from hub_server import HubServer, Repository, served
from huggingface_hub import constants
from program import child, done, refusal

from gpt2cli import repository

WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with owner/name, an empty cache, and nobody who waits before trying again."""
    source = checkpoints.write(tmp_path / "source")
    files = {path.name: path.read_bytes() for path in source.iterdir()}

    def wait(seconds: float) -> None:
        for name in ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT", "DEFAULT_REQUEST_TIMEOUT"):
            monkeypatch.setattr(constants, name, seconds)
        monkeypatch.setattr(repository, "TIMEOUT", seconds)

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with served(monkeypatch, tmp_path / "cache") as server:
        server.repositories["owner/name"] = Repository(files)
        server.wait = wait
        yield server


def stalls(hub: HubServer, main: Repository) -> None:
    main.stall[WEIGHTS] = 1000
    hub.wait(0.05)


def drops(hub: HubServer, main: Repository) -> None:
    main.cut[WEIGHTS] = [1000] * 99


def resets(hub: HubServer, main: Repository) -> None:
    main.reset = True
    main.cut[WEIGHTS] = [1000] * 99


def sends_less(hub: HubServer, main: Repository) -> None:
    main.sent[WEIGHTS] = main.files[WEIGHTS][:-1]


def sends_more(hub: HubServer, main: Repository) -> None:
    main.sent[WEIGHTS] = main.files[WEIGHTS] + b"?"


def sends_html(hub: HubServer, main: Repository) -> None:
    main.sent[WEIGHTS] = b"<html>Log in</html>"


def sends_html_of_the_same_length(hub: HubServer, main: Repository) -> None:
    main.sent[WEIGHTS] = b"<html>".ljust(len(main.files[WEIGHTS]))


def says_less(hub: HubServer, main: Repository) -> None:
    main.claimed[WEIGHTS] = len(main.files[WEIGHTS]) - 1


def says_more(hub: HubServer, main: Repository) -> None:
    main.claimed[WEIGHTS] = len(main.files[WEIGHTS]) + 1


def says_more_than_any_disk_holds(hub: HubServer, main: Repository) -> None:
    main.claimed[WEIGHTS] = 2**60


def sends_a_config_that_is_html(hub: HubServer, main: Repository) -> None:
    main.sent["config.json"] = b"<html>".ljust(len(main.files["config.json"]))


def answers_nothing(hub: HubServer, main: Repository) -> None:
    hub.silent = True
    hub.wait(0.05)


def answers_html(hub: HubServer, main: Repository) -> None:
    hub.page = b"<html>Log in</html>"


def goes_in_a_circle(hub: HubServer, main: Repository) -> None:
    hub.circle = True


# How each is told.
FETCH = r"cannot fetch owner/name from .* try again with a network"
FAULTS = {
    stalls: FETCH,
    drops: FETCH,
    resets: FETCH,
    sends_less: FETCH,
    sends_more: FETCH,
    sends_html: FETCH,
    sends_html_of_the_same_length: r"owner/name/model\.safetensors arrived damaged and was removed",
    says_less: FETCH,
    says_more: FETCH,
    says_more_than_any_disk_holds: r"Not enough free disk space .* Make room there",
    sends_a_config_that_is_html: r"owner/name/config\.json",
    answers_nothing: FETCH,
    answers_html: r"does not answer as the Hub does .* check HF_ENDPOINT",
    goes_in_a_circle: FETCH,
}


@pytest.mark.parametrize(("fault", "said"), FAULTS.items(), ids=[f.__name__ for f in FAULTS])
@pytest.mark.parametrize("args", [("verify",), ("download",), ("download", "--to")], ids=" ".join)
def test_a_server_that_fails_is_one_line_and_the_next_run_ends_well(
    hub: HubServer,
    tmp_path: Path,
    fault: Callable[[HubServer, Repository], None],
    said: str,
    args: tuple[str, ...],
) -> None:
    command, *more = args
    where = ("owner/name", *more, *([str(tmp_path / "to")] if more else []))
    main = hub.repositories["owner/name"]
    fault(hub, main)
    assert re.search(said, refusal(command, *where))
    kept = [path.name for path in tmp_path.glob("[ct]*/**/*")]
    assert not [
        name for name in kept if name == WEIGHTS or name.endswith((".incomplete", ".partial"))
    ]
    hub.wait(10)
    hub.silent, hub.circle, hub.page = False, False, None
    hub.repositories["owner/name"] = Repository(main.files)
    done(command, *where)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HF_ENDPOINT", "http://127.0.0.1:99999", "HF_ENDPOINT is 'http://127.0.0.1:99999'"),
        ("HF_ENDPOINT", "http://host:port", "HF_ENDPOINT is 'http://host:port'"),
        ("HF_ENDPOINT", "http://[::1", r"HF_ENDPOINT is 'http://\[::1'"),
        ("HF_ENDPOINT", "https://a..b", "HF_ENDPOINT is 'https://a..b'"),
        ("HF_ENDPOINT", "http://a b", "HF_ENDPOINT is 'http://a b'"),
        ("HF_ENDPOINT", "ftp://host", "HF_ENDPOINT is 'ftp://host'"),
        ("HF_ENDPOINT", "", "HF_ENDPOINT is ''"),
        ("HF_HUB_ETAG_TIMEOUT", "soon", "HF_HUB_ETAG_TIMEOUT is 'soon'"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "", "HF_HUB_DOWNLOAD_TIMEOUT is ''"),
        ("HTTPS_PROXY", "http://host:port", "correct those of HTTP_PROXY, HTTPS_PROXY"),
        ("ALL_PROXY", "gopher://host", "correct those of HTTP_PROXY, HTTPS_PROXY"),
        ("SSL_CERT_FILE", os.devnull, "SSL_CERT_FILE .* that are set"),
        ("HF_TOKEN", "\N{SNOWMAN}", "correct HF_TOKEN"),
    ],
)
def test_a_variable_that_the_client_cannot_use_is_named_in_one_line(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    settings = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", name: value}
    kept = {key: each for key, each in os.environ.items() if not key.startswith("HF_")}
    with child("params", "owner/name", env=kept | settings) as gpt2:
        out, err = gpt2.communicate()
    assert (gpt2.returncode, out) == (1, b"")
    assert re.fullmatch(f"Error: .*{said}.*\n", err.decode())


def test_the_models_are_listed_whatever_the_address_of_the_hub_is(tmp_path: Path) -> None:
    settings = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://[::1"}
    with child("models", env=os.environ | settings) as gpt2:
        out, err = gpt2.communicate()
    assert gpt2.returncode == 0
    assert b"austen" in out
    assert b"note: the environment variable HF_ENDPOINT" in err
