"""Places that cannot be used: no room, no permission, no home folder, no standard streams."""

import ctypes
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import checkpoints
import pytest
from hub_server import HubServer, Repository, served
from huggingface_hub import constants
from program import child, done, refusal

from gpt2cli.presets import weights_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "model")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with owner/name, and an empty cache."""
    source = checkpoints.write(tmp_path / "source")
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    with served(monkeypatch, tmp_path / "cache") as server:
        server.repositories["owner/name"] = Repository(files)
        yield server


@pytest.fixture
def forbid() -> Iterator[Callable[[Path, int], None]]:
    """Changes what may be done with a path while the test runs, and has it bind root too."""
    changed = []

    def change(path: Path, mode: int) -> None:
        changed.append((path, path.stat().st_mode))
        path.chmod(mode)

    system = ctypes.CDLL(None)
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of Linux's structure, this thread
    sets = (ctypes.c_uint32 * 6)()
    linux = hasattr(system, "capset") and system.capget(head, sets) == 0
    before = sets[0]
    sets[0] &= ~0b110  # without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    if linux:
        system.capset(head, sets)
    yield change
    sets[0] = before
    if linux:
        system.capset(head, sets)
    for path, mode in reversed(changed):
        path.chmod(mode)


# No room


@pytest.mark.parametrize("to", [True, False], ids=["to a folder", "to the cache"])
def test_a_download_to_a_full_disk_leaves_no_part_and_the_next_completes_it(
    hub: HubServer, tmp_path: Path, to: bool
) -> None:
    args = ("download", "owner/name", *(("--to", str(tmp_path / "to")) if to else ()))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # the weights are larger
    try:
        assert "File too large" in refusal(*args)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    names = [path.name for path in tmp_path.glob("[ct]*/**/*")]
    assert "config.json" in names
    assert not [name for name in names if name.endswith((".incomplete", ".partial"))]
    done(*args)


# No permission


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "."])
@pytest.mark.parametrize("command", ["params", "verify", "generate", "convert"])
def test_a_model_that_may_not_be_read_is_named(forbid, model, tmp_path, command, name) -> None:
    forbid(model / name, 0)
    args = {"generate": ("-m", str(model), "a"), "convert": (str(model), str(tmp_path / "x"))}
    line = refusal(command, *args.get(command, (str(model),)))
    assert str(model / name) in line
    assert "Permission denied" in line


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "generation_config.json"])
def test_a_file_beside_the_weights_that_may_not_be_read_is_named(forbid, tmp_path, name) -> None:
    model = shutil.copytree(weights_folder() / "austen", tmp_path / "austen")
    (model / "generation_config.json").write_text("{}")
    forbid(model / name, 0)
    assert str(model / name) in refusal("generate", "-m", str(model), "-n", "1", "a")


@pytest.mark.parametrize(
    "args",
    [
        ("convert", "austen", "{}/x"),
        ("verify", "austen", "--record", "{}/x.json"),
        ("score", "-m", "austen", "a b", "--html", "{}/x.html"),
        ("tokens", "-m", "austen", "-f", "{}/x"),
        ("generate", "-m", "austen", "-f", "{}/x"),
        ("generate", "-m", "austen", "--prompts", "{}/x.txt", "-o", "out"),
        ("generate", "-m", "austen", "--prompts", "{}/../in.txt", "-o", "{}/x"),
        ("download", "owner/name", "--to", "{}/x"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("mode", [0, 0o500], ids=["closed", "read-only"])
def test_a_folder_that_may_not_be_used_is_named(forbid, hub, tmp_path, args, mode) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "folder").mkdir()
    forbid(tmp_path / "folder", mode)
    line = refusal(*(each.format(tmp_path / "folder") for each in args))
    assert str(tmp_path / "folder") in line
    missing = mode and {"-f", "{}/x.txt"} & {*args}
    assert ("No such file" if missing else "Permission denied") in line


# A cache that is read-only, and no home folder


def test_a_complete_model_in_a_read_only_cache_is_used_and_another_is_one_line(
    forbid, hub, tmp_path
) -> None:
    done("download", "owner/name")
    cache = tmp_path / "cache"
    found = {*cache.rglob("*")}
    for path in (cache, *found):
        if path.is_dir() and not path.is_symlink():
            forbid(path, 0o500)
    for args in (("verify", "owner/name"), ("download", "owner/name"), ("models",)):
        done(*args)
    assert {*cache.rglob("*")} == found
    hub.repositories["openai-community/gpt2"] = hub.repositories["owner/name"]
    for args in (("verify", "gpt2"), ("download", "gpt2")):
        assert "Permission denied" in refusal(*args)


def test_without_a_usable_home_what_needs_none_works_and_the_rest_is_one_line(
    hub, tmp_path, monkeypatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "home" / "hub"))
    for args in (("generate", "-m", "austen", "-n", "1", "a"), ("models",), ("params", "gpt2")):
        done(*args)
    assert "set HF_HOME" in refusal("generate", "-m", "owner/name", "a")
    assert "set HF_HOME" in refusal("download", "owner/name")


@pytest.mark.parametrize("command", ["download owner/name", "generate -m owner/name a"])
def test_for_a_user_without_a_home_no_folder_of_its_sign_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "~/.cache/huggingface/hub")
    assert "no home folder" in refusal(*command.split())
    assert "no home folder" in done("models").err
    assert list(tmp_path.iterdir()) == []


# Standard streams


def test_with_standard_error_closed_nothing_is_lost_and_no_file_gets_what_is_said(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("a\n" * 3)
    prompts = ("--prompts", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out.jsonl"))
    args = ("generate", "-m", "austen", "-n", "2", "-s", "1", "--threads", "1", *prompts)
    with child(*args, stderr=None, preexec_fn=lambda: os.close(2)) as process:
        assert process.communicate(timeout=60) == (b"", None)
    assert process.returncode == 0
    found = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    assert "note" not in done(*args).out.decode()
    assert found == (tmp_path / "out.jsonl").read_bytes()


def gone() -> int:
    """The writing end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("where", [gone, lambda: os.open("/dev/full", os.O_WRONLY)])
@pytest.mark.parametrize(
    ("args", "code"), [(("tokens", "-m", "austen", "a"), 0), (("tokens", "-m", "./no", "a"), 1)]
)
def test_with_a_standard_error_that_takes_nothing_a_run_ends_as_it_would(
    where, args: tuple[str, ...], code: int
) -> None:
    place = where()
    with child(*args, stderr=place) as process:
        os.close(place)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert bool(out) == (code == 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_text_for_a_full_disk_is_one_line() -> None:
    args = ("generate", "-q", "-m", "austen", "-n", "2", "--threads", "1", "a")
    with Path("/dev/full").open("wb") as full, child(*args, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == b"Error: cannot write to standard output: No space left on device\n"
