"""llm.c's debug state, as its train_gpt2.py wrote it, against what else was recorded of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gpt2cli.config import GPT2Config
from gpt2cli.errors import GPT2Error
from gpt2cli.verification.debug_state import DebugState

LLMC = Path(__file__).parents[1] / "fixtures" / "llmc"
STATE = LLMC / "debug_state.bin"
CONFIG = GPT2Config(vocab_size=300, n_positions=24, n_embd=32, n_layer=2, n_head=4)


def test_ids_and_logits_are_those_recorded_apart() -> None:
    reference = DebugState.read(STATE).reference(CONFIG)
    expected = json.loads((LLMC / "expected.json").read_text())
    assert reference.input_ids.tolist() == expected["input_ids"]
    np.testing.assert_allclose(reference.logits, expected["logits"], atol=1e-6)


def test_the_loss_is_that_of_the_logits_on_the_targets() -> None:
    reference = DebugState.read(STATE).reference(CONFIG)
    assert reference.targets is not None
    loss = torch.nn.functional.cross_entropy(
        reference.logits.flatten(0, 1).double(), reference.targets.flatten()
    )
    assert reference.loss == pytest.approx(float(loss), abs=1e-6)


def changed(path: Path, place: int, value: int) -> Path:
    numbers = np.fromfile(STATE, "<i4")
    numbers[place] = value
    numbers.tofile(path)
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: changed(path, 1, 1), "of version 1, and only 2 is read"),
        (lambda path: changed(path, 2, 0), "0 rows of 8 tokens are not all there"),
        (lambda path: changed(path, 3, -1), "2 rows of -1 tokens are not all there"),
        (lambda path: changed(path, 3, 2**31 - 1), "are not all there"),
        (lambda path: path.write_bytes(STATE.read_bytes()[:1000]), "cut off within its header"),
        (lambda path: path.write_bytes(STATE.read_bytes()[:1100]), "are not all there"),
    ],
)
def test_a_file_that_is_no_whole_state_is_refused_by_name(tmp_path: Path, make, said: str) -> None:
    path = tmp_path / "state.bin"
    make(path)
    assert DebugState.claims(path)
    with pytest.raises(GPT2Error, match=r"state\.bin") as caught:
        DebugState.read(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("field", ["vocab_size", "n_embd", "n_layer"])
def test_a_state_of_another_model_is_refused_by_name(field: str) -> None:
    other = GPT2Config(**(vars(CONFIG) | {field: 2 * getattr(CONFIG, field)}))
    with pytest.raises(GPT2Error, match="no debug state of this model"):
        DebugState.read(STATE).reference(other)


def test_other_files_are_not_taken_for_a_state(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (LLMC / "model.bin", tmp_path / "empty", tmp_path / "none", tmp_path):
        assert not DebugState.claims(path)
