"""``gpt2 models``: the names known, and what the Hub client's cache holds of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from program import done

from gpt2cli.presets import ALIASES, PRESETS

FIXTURE = Path(__file__).parents[1] / "fixtures" / "hub" / "hub-released"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(
    cache: Path, repository: str, commit: str, files: dict[str, bytes], *refs: str
) -> dict[str, Path]:
    """A commit as the client keeps it: files are links to blobs, refs say what stands for it."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    blobs = folder / "blobs"
    for each in (snapshot, blobs):
        each.mkdir(parents=True, exist_ok=True)
    for ref in refs:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    for name, data in files.items():
        (blobs / f"{commit}-{name}").write_bytes(data)
        (snapshot / name).symlink_to(blobs / f"{commit}-{name}")
    return {name: snapshot / name for name in files}


def whole() -> dict[str, bytes]:
    return {n: (FIXTURE / n).read_bytes() for n in ("config.json", "model.safetensors")}


def listed(*args: str) -> dict[str, dict]:
    ran = done("models", "--json", "-q", *args)
    assert ran.err == ""
    return {row["model"]: row for row in map(json.loads, ran.text.splitlines())}


def test_every_name_is_listed_with_its_size_though_nothing_is_here(cache):
    rows = listed()
    assert list(rows) == ["austen", *PRESETS]
    assert rows["austen"]["complete"]
    assert {alias: name for name, row in rows.items() for alias in row["aliases"]} == ALIASES
    assert rows["gpt2"] == {
        "model": "gpt2",
        "aliases": ["124M", "117M"],
        "repository": "openai-community/gpt2",
        "parameters": 124_439_808,
        "download_bytes": 548_105_171,
        "bytes": None,
        "revision": None,
        "refs": [],
        "path": None,
        "complete": False,
    }
    table = done("models").text
    assert [line.split()[0] for line in table.splitlines()] == ["model", *rows]
    assert "124,439,808" in table
    assert "1.52 GB" in table  # gpt2-medium's 1,519,984,962 bytes


def test_what_is_cached_has_its_place_size_and_revision(cache):
    paths = put(cache, "openai-community/gpt2", "a" * 40, whole(), "main", "pr/1")
    put(cache, "openai-community/gpt2", "b" * 40, whole(), "v1")
    put(cache, "openai-community/gpt2", "c" * 40, whole())
    rows = listed()
    gpt2 = rows["gpt2"]
    assert gpt2["bytes"] == sum(map(len, whole().values()))
    assert gpt2["path"] == str(paths["config.json"].parent)
    assert (gpt2["revision"], gpt2["refs"], gpt2["complete"]) == ("a" * 40, ["main", "pr/1"], True)
    assert {"gpt2@v1", f"gpt2@{'c' * 40}"} < rows.keys()
    line = next(line for line in done("models").text.splitlines() if line.startswith("gpt2 "))
    assert line.endswith(gpt2["path"])
    assert "main pr/1 aaaaaaa" in line


def test_another_gpt2_is_listed_and_another_model_is_not(cache):
    put(cache, "owner/name", "a" * 40, whole(), "main")
    put(cache, "some/bert", "a" * 40, {"config.json": b'{"model_type": "bert"}'}, "main")
    put(cache, "some/data", "a" * 40, {"README.md": b"#"}, "main")
    rows = listed()
    assert rows.keys() - PRESETS == {"austen", "owner/name"}
    counted = json.loads(done("params", str(FIXTURE), "--json").text)["total"]
    assert rows["owner/name"]["parameters"] == counted


@pytest.mark.parametrize("lost", [["model.safetensors"], ["model.safetensors", "config.json"]])
def test_what_is_here_in_part_is_said_to_be(cache, lost):
    paths = put(cache, "openai-community/gpt2", "a" * 40, whole() | {"more": b"1"}, "main")
    for name in lost[:1]:
        paths[name].resolve().unlink()
    for name in lost[1:]:
        paths[name].unlink()
    assert not listed()["gpt2"]["complete"]
    assert "(in part)" in done("models").text


@pytest.mark.parametrize("damage", ["broken link", "no JSON", "index"])
def test_what_cannot_be_read_is_said_in_a_note_and_the_rest_is_listed(cache, damage):
    put(cache, "owner/good", "a" * 40, whole(), "main")
    index = {"model.safetensors.index.json": b"{}"} if damage == "index" else {}
    config = {"config.json": b"{" if damage == "no JSON" else whole()["config.json"]}
    paths = put(cache, "owner/bad", "a" * 40, config | index, "main")
    if damage == "broken link":
        paths["config.json"].resolve().unlink()
    ran = done("models")
    assert ran.err.startswith("note: owner/bad: ")
    assert ran.err.count("\n") == 1
    assert "owner/good" in ran.text
    assert done("models", "-q").err == ""


def test_a_cache_that_cannot_be_listed_is_no_reason_to_fail(cache):
    cache.write_text("a file")
    ran = done("models")
    assert f"cache in {cache} cannot be read" in ran.err
    assert "austen" in ran.text


def test_listing_loads_neither_torch_nor_the_hubs_http_client(cache):
    code = (
        "import sys; from gpt2cli.cli.models import command\n"
        "command(['-q'], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'httpx', 'httpx2', 'tqdm'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_without_a_home_there_is_nothing_in_it(tmp_path):
    code = "from gpt2cli.cli.models import command; command([], standalone_mode=False)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={}, cwd=tmp_path
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "austen" in ran.stdout
