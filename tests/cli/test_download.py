"""``gpt2 download``: what it fetches, what it checks, and where it puts it."""

import hashlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hub_server import Repository, served
from huggingface_hub import constants
from program import done, refusal, run

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.hub import fetch, parse_model
from gpt2cli.presets import weights_folder

HUB = Path(__file__).parents[1] / "fixtures" / "hub"

TOKENIZER = {"vocab.json": b'{"a": 0}', "merges.txt": b"#version: 0.2\n"}
NOT_NEEDED = {"README.md": b"# A model", "tf_model.h5": b"keras", "onnx/model.onnx": b"onnx"}


def files_of(fixture: str) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (HUB / fixture).iterdir() if p.name != "expected.json"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with owner/name, and an empty cache."""
    with served(monkeypatch, tmp_path / "cache") as server:
        files = files_of("hub-released") | TOKENIZER
        server.main = server.repositories["owner/name"] = Repository(files | NOT_NEEDED)
        server.needed = files
        server.cache = tmp_path / "cache"
        yield server


def flip(path: Path) -> bytes:
    """Change a bit in the middle of a file, which keeps its size; what it was."""
    before = path.read_bytes()
    data = bytearray(before)
    data[len(data) // 2] ^= 1
    path.resolve().write_bytes(data)
    return before


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def folder_of(*args: str) -> Path:
    """The folder that a download prints, alone, on its one line."""
    line = done("download", "owner/name", *args).out
    assert line.count(b"\n") == 1
    return Path(os.fsdecode(line[:-1]))


# Into the cache


def test_the_files_that_are_needed_are_fetched_and_their_folder_is_a_model(hub):
    ran = done("download", "owner/name")
    folder = Path(ran.text.rstrip("\n"))
    assert held(folder) == hub.needed
    total = sum(map(len, hub.needed.values())) / 1000
    assert f"{len(hub.needed)} files, {total:.3g} kB, checked against the Hub's hashes" in ran.err
    assert hub.main.sha in ran.err
    hub.requests.clear()
    assert done("params", str(folder)).out == done("params", "owner/name").out.replace(
        b"owner/name", os.fsencode(folder)
    )
    assert hub.requests == []


def test_a_released_size_is_a_model_by_its_folder_and_complete_without_its_tokenizer(hub, offline):
    hub.repositories["openai-community/gpt2"] = hub.main
    folder = fetch(parse_model("124M"))
    assert held(folder).keys() == hub.needed.keys() - TOKENIZER
    offline()
    assert done("download", "gpt2").text == f"{folder}\n"
    offline(False)
    assert done("download", "gpt2").text == f"{folder}\n"
    assert held(folder) == hub.needed


def test_json_has_the_size_and_sha256_of_each_file(hub):
    ran = done("download", "owner/name", "--json", "-q")
    assert ran.err == ""
    found = json.loads(ran.text)
    files = found.pop("files")
    assert found == {
        "model": "owner/name",
        "revision": hub.main.sha,
        "path": str(folder_of()),
    }
    assert {each["name"]: (each["size"], each["sha256"]) for each in files} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in hub.needed.items()
    }


def test_a_second_run_fetches_nothing_that_is_whole(hub):
    folder = folder_of()
    hub.requests.clear()
    assert folder_of() == folder
    assert hub.fetched() == set()


def test_a_second_run_fetches_what_the_branch_stands_for_now(hub):
    before = folder_of()
    hub.main.files["merges.txt"] = b"#version: 0.3\n"
    hub.requests.clear()
    after = folder_of()
    assert after != before
    assert (after / "merges.txt").read_bytes() == b"#version: 0.3\n"
    assert hub.asked("model.safetensors") == []


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("name", ["model.safetensors", "merges.txt"])
def test_a_flipped_byte_in_the_cache_is_named_and_force_fetches_that_file_again(
    hub, monkeypatch, name, links
):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", not links)
    folder = folder_of()
    before = flip(folder / name)
    line = refusal("download", "owner/name")
    assert str(folder / name) in line
    assert "--force" in line
    hub.requests.clear()
    assert folder_of("--force") == folder
    assert (folder / name).read_bytes() == before
    assert hub.fetched() == {name}


def test_a_file_that_arrives_damaged_is_named_and_not_kept(hub):
    hub.main.sent["model.safetensors"] = hub.main.files["model.safetensors"][:-1] + b"?"
    assert "owner/name/model.safetensors arrived damaged and was removed" in refusal(
        "download", "owner/name"
    )
    assert not list(hub.cache.rglob("model.safetensors"))
    hub.main.sent.clear()
    assert held(folder_of()) == hub.needed


def test_a_lost_connection_is_taken_up_again(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.main.reset = True
    hub.main.cut["model.safetensors"] = [1000, 2000]
    assert held(folder_of()) == hub.needed


@pytest.mark.parametrize("args", [["owner/name@v1"], ["owner/name", "--revision", "v1"]])
def test_a_revision_is_an_option_or_part_of_the_name(hub, args):
    old = Repository(hub.main.files | {"merges.txt": b"#version: 0.1\n"})
    hub.revisions["owner/name", "v1"] = old
    folder = Path(done("download", *args).text[:-1])
    assert (folder / "merges.txt").read_bytes() == b"#version: 0.1\n"


def test_two_revisions_are_wrong_usage(hub):
    ran = run("download", "owner/name@v1", "--revision", "v2")
    assert (ran.code, ran.out) == (2, b"")
    assert "MODEL@REV and --revision were both given" in ran.err


# Without network


@pytest.fixture
def offline(hub, monkeypatch):
    """The Hub cannot be asked any more, once this is called; or again."""
    return lambda now=True: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", now)


def test_without_network_what_is_cached_is_checked_by_its_own_hashes(hub, offline):
    folder = folder_of()
    offline()
    ran = done("download", "owner/name")
    assert ran.text == f"{folder}\n"
    assert "the Hub is out of reach" in ran.err
    flip(folder / "model.safetensors")
    for force in ([], ["--force"]):
        assert str(folder / "model.safetensors") in refusal("download", "owner/name", *force)


def test_without_network_and_copy_one_line_names_what_needs_none(hub, offline):
    offline()
    assert "-m austen" in refusal("download", "owner/name")


@pytest.mark.parametrize("to", [[], ["--json"]])
@pytest.mark.parametrize("name", ["austen", str(HUB / "hub-released")])
def test_what_is_here_anyway_is_said_to_be(name, to):
    ran = done("download", name, *to)
    path = weights_folder() / "austen" if name == "austen" else Path(name)
    assert (json.loads(ran.text)["path"] if to else ran.text) == (str(path) + "\n" * (not to))
    assert ran.err == f"note: {name} is here already; nothing is downloaded\n"
    assert "no repository" in refusal("download", name, "--to", "x")
    assert "no revision v1" in refusal("download", name, "--revision", "v1")


# Into a folder


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("fixture", ["hub-released", "hub-sharded"])
def test_to_makes_a_real_folder_of_real_files_that_is_a_model(hub, tmp_path, cached, fixture):
    hub.main.files = files_of(fixture) | TOKENIZER | NOT_NEEDED
    if cached:
        folder_of()
    folder = folder_of("--to", str(tmp_path / "new" / "model"))
    assert folder == tmp_path / "new" / "model"
    assert held(folder) == files_of(fixture) | TOKENIZER
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert Checkpoint.open(folder).matched.tensors.keys()


def test_to_does_not_keep_the_weights_twice(hub, tmp_path):
    folder_of("--to", str(tmp_path / "x"))
    assert not list(hub.cache.rglob("model.safetensors"))


def test_without_network_a_folder_is_filled_from_the_cache(hub, offline, tmp_path):
    folder_of()
    offline()
    assert held(folder_of("--to", str(tmp_path / "x"))) == hub.needed


def test_in_a_folder_identical_files_and_others_are_left_alone(hub, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "notes.txt").write_text("mine")
    weights = tmp_path / "x" / "model.safetensors"
    weights.write_bytes(hub.needed["model.safetensors"])
    os.utime(weights, (1, 1))
    folder_of("--to", str(tmp_path / "x"))
    assert held(tmp_path / "x") == hub.needed | {"notes.txt": b"mine"}
    assert weights.stat().st_mtime == 1
    assert hub.asked("model.safetensors") == []


def test_in_a_folder_another_file_is_replaced_with_force_only(hub, tmp_path):
    (tmp_path / "merges.txt").write_bytes(b"#version: 9\n")
    line = refusal("download", "owner/name", "--to", str(tmp_path))
    assert "another merges.txt" in line
    assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "merges.txt").read_bytes() == b"#version: 9\n"
    folder_of("--to", str(tmp_path), "--force")
    assert (tmp_path / "merges.txt").read_bytes() == hub.needed["merges.txt"]


def test_a_folder_with_files_that_would_be_read_for_the_models_is_refused(hub, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for force in ([], ["--force"]):
        line = refusal("download", "owner/name", "--to", str(tmp_path), *force)
        assert "tokenizer.json, which owner/name does not have" in line
    assert (tmp_path / "tokenizer.json").read_text() == "{}"


def test_a_damaged_copy_in_the_cache_reaches_no_folder(hub, tmp_path):
    before = flip(folder_of() / "model.safetensors")
    line = refusal("download", "owner/name", "--to", str(tmp_path / "x"))
    assert "model.safetensors" in line
    assert "--force" in line
    assert not (tmp_path / "x" / "model.safetensors").exists()
    folder = folder_of("--to", str(tmp_path / "x"), "--force")
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_folder_that_cannot_be_one_is_refused(hub, tmp_path):
    (tmp_path / "file").touch()
    assert "is a file" in refusal("download", "owner/name", "--to", str(tmp_path / "file"))
    assert "file/x" in refusal("download", "owner/name", "--to", str(tmp_path / "file" / "x"))


def start(hub, *args: str, **options) -> subprocess.Popen:
    """The program on its own, with the Hub that HF_ENDPOINT names."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(hub.cache.parent), "COLUMNS": "80"}
    return subprocess.Popen(
        [sys.executable, "-m", "gpt2cli", "download", "owner/name", *args],
        env=kept | places | {"HF_HUB_CACHE": str(hub.cache)},
        stdout=subprocess.PIPE,
        **{"stderr": subprocess.PIPE} | options,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_whole_when_a_run_was_ended_stays_and_nothing_else(hub, tmp_path, number):
    hub.main.stall["model.safetensors"] = 1000
    with start(hub, "--to", str(tmp_path / "x")) as process:
        assert hub.stalled.wait(30)
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (128 + number, b"", b"")
    there = held(tmp_path / "x")
    assert there == {name: hub.needed[name] for name in hub.needed if name != "model.safetensors"}
    hub.main.stall.clear()
    assert held(folder_of("--to", str(tmp_path / "x"))) == hub.needed


def test_on_a_terminal_the_whole_size_and_the_time_left_are_shown(hub):
    total = f"{sum(len(hub.needed[n]) for n in hub.needed if n != 'config.json') / 1000:.3g} kB"
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    with start(hub, stderr=slave) as process:
        os.close(slave)
        process.communicate(timeout=60)
    text = b""
    while select.select([master], [], [], 0)[0]:
        try:
            text += os.read(master, 2**16)
        except OSError:  # Linux says so when nobody holds the other end
            break
    os.close(master)
    assert process.returncode == 0
    assert f"fetching {total}" in text.decode()
    assert "100%" in text.decode()
