"""Runs that are ended at random moments: what is there is whole, and the next run completes it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import checkpoints
import pytest
from hub_server import HubServer, Repository
from killing import Starter, starter
from program import done

from gpt2cli.hub_setup import DEFAULTS
from gpt2cli.tokenizer.merges import spelled

HUB = ("huggingface_hub", "huggingface_hub.hf_api", "gpt2cli.download", "gpt2cli.cli.download")
TORCH = ("torch", "gpt2cli.cli.convert", "gpt2cli.loader", "gpt2cli.generation")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    with starter(tmp_path_factory.mktemp("printed"), *TORCH) as gpt2:
        yield gpt2


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def strays(folder: Path) -> list[Path]:
    """What was written into under a name that is no file's own."""
    return [path for place in (".", "*") for path in folder.glob(f"{place}/.gpt2cli-*")]


def parts(cache: Path) -> list[Path]:
    """What the Hub's client was writing into."""
    return list(cache.rglob("*.incomplete"))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        files = {
            "config.json": json.dumps(checkpoints.TINY).encode(),
            "model.safetensors": b"",
            "vocab.json": b'{"a": 0}',
            "merges.txt": b"#version: 0.2\n",
        }
        weights = bytes(range(256)) * 2**16  # 16 MiB, in a few of the client's parts
        server.repositories["owner/name"] = Repository(files | {"model.safetensors": weights})
        yield server


@pytest.mark.parametrize("to", [True, False], ids=["to a folder", "to the cache"])
def test_a_download_killed_at_any_moment(hub: HubServer, tmp_path: Path, to: bool) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "folder"
    files = hub.repositories["owner/name"].files
    places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(cache)}
    args = ("download", "owner/name", "-q", *(("--to", str(folder)) if to else ()))
    (tmp_path / "printed").mkdir()
    with starter(tmp_path / "printed", *HUB, **places, **dict.fromkeys(DEFAULTS, "1")) as gpt2:
        for ran in gpt2.ended_at_random(*args):
            target = folder if to else next(cache.glob("models--*/snapshots/*"), folder)
            there = held(target) if target.exists() else {}
            assert there.items() <= files.items()
            assert ran.code != 0 or there == files
            assert len(strays(tmp_path)) <= 1
            if there == files:
                (target / "model.safetensors").resolve().unlink()
                (target / "model.safetensors").unlink(missing_ok=True)
        assert gpt2.run(*args).code == 0
    assert held(target) == files
    assert strays(tmp_path) + parts(cache) == []


@pytest.mark.parametrize("old", [False, True], ids=["a new folder", "an old one"])
def test_a_conversion_killed_at_any_moment(gpt2: Starter, tmp_path: Path, old: bool) -> None:
    config = checkpoints.TINY | {"n_embd": 96, "n_layer": 6}
    source, target = checkpoints.write(tmp_path / "source", config), tmp_path / "target"
    args = ("convert", "-q", str(source), "--shard-size", "100KB")
    done(*args, str(tmp_path / "whole"))
    whole = held(tmp_path / "whole")
    possible = (whole, held(source)) if old else (whole,)
    for ran in gpt2.ended_at_random(*args, str(target), "--force"):
        found = held(target) if target.exists() else {}
        assert ran.code != 0 or found == whole
        assert found in possible or "config.json" not in found
        assert len(strays(tmp_path)) <= 2
        if not found:
            continue
        for name in found:
            (target / name).unlink()
        if old:
            checkpoints.write(target, config)
        elif not any(target.iterdir()):
            target.rmdir()
    assert gpt2.run(*args, str(target), "--force").code == 0
    assert held(target) == whole
    assert strays(tmp_path) == []


@pytest.fixture
def batch(tmp_path: Path) -> tuple[str, ...]:
    """The arguments of a run that writes 60 texts."""
    model = checkpoints.write(tmp_path / "model", checkpoints.TINY | {"vocab_size": 256})
    table = {spelled(bytes([byte])): byte for byte in range(256)}
    (model / "vocab.json").write_text(json.dumps(table))
    (model / "merges.txt").write_text("#version: 0.2\n")
    prompts = tmp_path / "in.txt"
    prompts.write_text("".join(f"{'ab' * (number % 3)}{number}\n" for number in range(60)))
    wanted = ("-n", "6", "-s", "1", "--batch-size", "4", "--threads", "1", "-q")
    return ("generate", "-m", str(model), "--prompts", str(prompts), *wanted)


def test_a_batch_killed_at_any_moment(
    gpt2: Starter, tmp_path: Path, batch: tuple[str, ...]
) -> None:
    args, out = (*batch, "-o", str(tmp_path / "out.jsonl")), tmp_path / "out.jsonl"
    done(*batch, "-o", str(tmp_path / "whole.jsonl"))
    whole = (tmp_path / "whole.jsonl").read_bytes()
    for ran in gpt2.ended_at_random(*args):
        found = out.read_bytes() if out.exists() else b""
        assert whole.startswith(found)
        assert ran.code != 0 or found == whole
        if found == whole:
            out.unlink()
    assert gpt2.run(*args).code == 0
    assert out.read_bytes() == whole


def test_a_text_that_a_signal_ends_at_any_moment(gpt2: Starter) -> None:
    wanted = ("-n", "40", "-t", "0", "--threads", "1", "--no-draft", "-q", "My dear")
    args = ("generate", "-m", "austen", *wanted)
    whole = done(*args).out
    for ran in gpt2.ended_at_random(*args, by=(signal.SIGINT, signal.SIGTERM)):
        assert ran.err == b""
        assert ran.out == whole if ran.code == 0 else whole.startswith(ran.out.rstrip(b"\n"))
