"""What others do meanwhile: a second run of the same target, a file replaced or cut off."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import checkpoints
import pytest
import torch
from hub_server import HubServer, Repository
from program import child, done

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.hub_setup import DEFAULTS
from gpt2cli.loader import load


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def twice(*args: str, **environment: str) -> list[tuple[int, bytes, str]]:
    """How two runs of the same command end that start at once."""
    runs = [child(*args, env=os.environ | environment) for _ in range(2)]
    ends = []
    for process in runs:
        with process:
            out, err = process.communicate(timeout=120)
            ends.append((process.returncode, out, err.decode()))
    return sorted(ends)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[dict[str, bytes], dict[str, str]]]:
    """What owner/name holds, and the environment in which its Hub is known."""
    files = held(checkpoints.write(tmp_path / "source"))
    with HubServer() as server:
        server.repositories["owner/name"] = Repository(files)
        places = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
        yield files, places | dict.fromkeys(DEFAULTS, "1")


@pytest.mark.parametrize("to", [True, False], ids=["to a folder", "to the cache"])
def test_two_downloads_of_one_target_both_end_well(hub, tmp_path: Path, to: bool) -> None:
    files, places = hub
    args = ("download", "owner/name", "-q", *(("--to", str(tmp_path / "to")) if to else ()))
    for code, out, err in twice(*args, **places):
        assert (code, err) == (0, "")
        assert held(Path(os.fsdecode(out[:-1]))) == files
    assert not list(tmp_path.rglob("*.incomplete"))


def test_of_two_batches_into_one_file_one_writes_and_the_other_says_so_or_comes_after(
    tmp_path: Path,
) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(9)))
    batch = ("-m", "austen", "--prompts", str(tmp_path / "in.txt"), "-n", "5", "-s", "3", "-q")
    args = ("generate", *batch, "--threads", "1", "-o", str(tmp_path / "out.jsonl"))
    first, second = twice(*args)
    assert first == (0, b"", "")
    assert second == (0, b"", "") or (second[0] == 1 and "another process is writing" in second[2])
    found = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()
    done(*args)
    assert found == (tmp_path / "out.jsonl").read_bytes()


def test_two_conversions_into_one_folder_leave_one_whole_checkpoint(tmp_path: Path) -> None:
    source = checkpoints.write(tmp_path / "source")
    args = ("convert", str(source), "-q", "--force", "--shard-size", "10KB")
    done(*args, str(tmp_path / "whole"))
    for code, out, err in twice(*args, str(tmp_path / "x")):
        assert out == b""
        assert code == 0 or (code == 1 and err.count("\n") == 1), err
    assert held(tmp_path / "x") == held(tmp_path / "whole")


@torch.inference_mode()
def logits(checkpoint: Checkpoint, dtype: str = "float32", packed: bool = True) -> torch.Tensor:
    return load(checkpoint, dtype=dtype, packed=packed)(torch.arange(9)[None])


@pytest.mark.parametrize("pad", [0, 3], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(
    ("dtype", "packed"), [("float32", False), ("float32", True), ("int8", True)]
)
def test_a_file_that_another_replaces_gives_its_old_bytes(
    tmp_path: Path, pad: int, dtype: str, packed: bool
) -> None:
    model = checkpoints.write(tmp_path / "model", pad=pad)
    other = checkpoints.write(tmp_path / "other", seed=1, pad=pad)
    before, after = (logits(Checkpoint.open(p), dtype, packed) for p in (model, other))
    opened = Checkpoint.open(model)
    (other / "model.safetensors").replace(model / "model.safetensors")
    opened.prefetch()
    assert torch.equal(logits(opened, dtype, packed), before)
    assert torch.equal(logits(Checkpoint.open(model), dtype, packed), after)


def test_a_file_that_is_removed_gives_its_old_bytes(tmp_path: Path) -> None:
    model = checkpoints.write(tmp_path / "model")
    before, opened = logits(Checkpoint.open(model)), Checkpoint.open(model)
    (model / "model.safetensors").unlink()
    opened.prefetch()
    assert torch.equal(logits(opened), before)


CUT = """
import os, sys
from pathlib import Path
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
opened = Checkpoint.open(Path(sys.argv[1]))
os.truncate(Path(sys.argv[1]) / "model.safetensors", 0)
load(opened)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="no mapped files as POSIX has them")
def test_a_file_that_is_cut_off_in_place_while_it_is_read_may_end_the_process_as_documented(
    tmp_path: Path,
) -> None:
    model = checkpoints.write(tmp_path / "model", checkpoints.TINY | {"n_embd": 192})
    ran = subprocess.run([sys.executable, "-c", CUT, model], capture_output=True)
    assert ran.returncode == -signal.SIGBUS
    documented = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text()
    assert "SIGBUS" in documented
