"""The script that trained the embedded checkpoint trains another, which the program reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

SCRIPT = Path(__file__).parents[1] / "weights" / "austen" / "train.py"

SMALL = (
    *("--steps", "20", "--every", "10", "--layers", "2", "--heads", "2", "--width", "32"),
    *("--positions", "32", "--batch", "4", "--vocabulary", "600"),
)

TEXT = """CHAPTER I

The morning was mild, and the two sisters walked down to the shore
before breakfast -- a habit which their aunt thought _very_ unwise.

"You will be tired by noon," said she; "and who is to read to me then?"

"I shall, ma'am," said the younger, "if you will let it be a novel."
"""


def train(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with one text of a few thousand characters."""
    (tmp_path / "text").mkdir()
    chapter = TEXT + "\n" + TEXT.replace("CHAPTER I\n", "") + "\n"
    (tmp_path / "text" / "shore.txt").write_text(chapter * 6, encoding="utf-8")
    return tmp_path / "text"


def test_twenty_steps_on_a_small_text_make_a_checkpoint_that_generates(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "models" / "shore"
    done = train(text, out, *SMALL)
    assert done.returncode == 0, done.stderr
    losses = [
        float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")
    ]
    assert len(losses) == 2
    assert losses[1] < losses[0] < 7
    assert sorted(path.name for path in out.parent.iterdir()) == ["shore"]

    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    vocabulary = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    merges = (out / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert len(vocabulary) == config["vocab_size"] == len(merges) - 1 + 257 == 600
    assert vocabulary["<|endoftext|>"] == config["eos_token_id"] == 599
    with safe_open(out / "model.safetensors", "pt") as file:
        assert file.get_slice("h.1.mlp.c_fc.weight").get_shape() == [32, 128]
        assert file.get_slice("wte.weight").get_dtype() == "F16"

    command = [sys.executable, "-m", "gpt2cli", "generate", "-m", out, "The morning"]
    spoken = subprocess.run(
        [*command, "-n", "5", "--seed", "1"], capture_output=True, timeout=300, check=False
    )
    assert spoken.returncode == 0, spoken.stderr
    assert spoken.stdout.startswith(b"The morning")
    assert len(spoken.stdout) > len(b"The morning\n")


def test_a_folder_that_holds_something_is_never_written_over(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")
    done = train(text, out, *SMALL)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    (out / "notes").rename(tmp_path / "notes")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "model.safetensors").write_text("an hour's work")
    assert "was interrupted" in train(text, out, *SMALL).stderr


def test_text_that_is_too_short_or_missing_is_refused(text: Path, tmp_path: Path) -> None:
    whole = (text / "shore.txt").read_text(encoding="utf-8")
    (text / "shore.txt").write_text(whole[: len(whole) // 2], encoding="utf-8")
    done = train(text, tmp_path / "out")
    assert done.returncode == 1
    assert "and 1028 are needed" in done.stderr
    (text / "shore.txt").unlink()
    assert "holds no .txt files" in train(text, tmp_path / "out").stderr
    assert not (tmp_path / "out").exists()
