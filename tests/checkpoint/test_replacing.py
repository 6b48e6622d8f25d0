"""Files that replace others: all of them or none, whenever it is cut short."""

from itertools import count
from pathlib import Path

import pytest

from gpt2cli.checkpoint.replacing import new_files
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
