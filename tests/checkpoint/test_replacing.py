"""Files that replace others: all of them or none, whenever it is cut short."""

import fcntl
import os
from itertools import count
from pathlib import Path

import pytest

from gpt2cli.checkpoint.replacing import new_files, scratch
from gpt2cli.errors import GPT2Error

OLD = {"config.json": "old", "model.safetensors": "old", "shard": "old", "notes": "mine"}
NEW = {"config.json": "new", "model.safetensors": "new", "vocab.json": "new", "notes": "mine"}


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def replace(folder: Path) -> None:
    with new_files(folder, lambda written: {"shard"} - written) as new:
        for name in NEW.keys() - {"notes"}:
            (new / name).write_text("new")


def test_new_files_take_the_place_of_old_ones_and_others_stay(folder: Path) -> None:
    replace(folder)
    assert contents(folder) == NEW


@pytest.mark.parametrize("after", [False, True], ids=["before a renaming", "after it"])
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_replacement_that_is_cut_short_at_any_renaming_is_undone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException, after: bool
) -> None:
    rename = Path.rename
    for reached in count():
        left = [reached]

        def faulty(source: Path, target: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] == -1 and not after:
                raise fault
            moved = rename(source, target)
            if left[0] == -1:
                raise fault
            return moved

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", faulty)
            try:
                replace(folder)
            except (GPT2Error, KeyboardInterrupt):
                assert contents(folder) == OLD
                continue
        break
    assert reached == 6  # three old files aside, three new ones in
    assert contents(folder) == NEW


def test_while_files_are_moved_the_folder_is_no_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename
    seen = []

    def watched(source: Path, target: Path) -> Path:
        moved = rename(source, target)
        seen.append((folder / "config.json").exists())
        return moved

    monkeypatch.setattr(Path, "rename", watched)
    replace(folder)
    assert seen == [False] * 5 + [True]


@pytest.mark.parametrize("suffix", ["partial", "old"])
def test_what_a_killed_run_left_goes_with_the_next_and_nothing_else(
    folder: Path, suffix: str
) -> None:
    for name in (f".gpt2cli-abcd1234.{suffix}", f".mine-abcd1234.{suffix}"):
        (folder / name).mkdir()
        (folder / name / "model.safetensors").write_text("half")
    replace(folder)
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {f".mine-abcd1234.{suffix}"}


def test_two_runs_beside_each_other_leave_each_other_alone(folder: Path) -> None:
    with scratch(folder) as one:
        (one / "file").write_text("one")
        with scratch(folder) as other:
            assert (one / "file").read_text() == "one"
        assert not other.exists()
    assert not one.exists()


def test_files_are_not_replaced_while_another_process_replaces_them(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(GPT2Error, match="another process is writing"):
        replace(folder)
    assert contents(folder) == OLD
    os.close(descriptor)
    replace(folder)
    assert contents(folder) == NEW
