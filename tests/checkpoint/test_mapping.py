"""Tensors out of a file of bytes."""

from pathlib import Path

import pytest
import torch

from gpt2cli.checkpoint.mapping import MappedFile
from gpt2cli.errors import GPT2Error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the float32 numbers 0 to 99 after one odd byte and before three."""
    path = tmp_path / "file.bin"
    path.write_bytes(b"\7" + torch.arange(100, dtype=torch.float32).numpy().tobytes() + bytes(3))
    return path


def test_unaligned_numbers_come_on_aligned_memory(path: Path) -> None:
    tensor = MappedFile(path).tensor(1, (4, 25), "float32")
    assert torch.equal(tensor, torch.arange(100, dtype=torch.float32).view(4, 25))
    assert tensor.data_ptr() % 64 == 0


def test_aligned_numbers_are_the_mapping_itself_and_the_file_is_never_written(path: Path) -> None:
    file, before = MappedFile(path), path.read_bytes()
    tensor = file.tensor(2, (3, 2), "int16")
    assert tensor.data_ptr() == file.tensor(2, (6,), "int16").data_ptr()
    tensor.fill_(1)
    assert path.read_bytes() == before


def test_scalars_and_empty_tensors_have_their_shapes(path: Path, tmp_path: Path) -> None:
    assert MappedFile(path).tensor(0, (), "uint8").item() == 7
    assert MappedFile(path).tensor(404, (0, 3), "bfloat16").shape == (0, 3)
    (tmp_path / "empty").write_bytes(b"")
    empty = MappedFile(tmp_path / "empty")
    assert empty.size == 0
    assert empty.tensor(0, (0,), "float32").shape == (0,)
    assert list(empty.chunks(0, 0)) == []


def test_chunks_cover_the_range_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "big").write_bytes(data)
    chunks = list(MappedFile(tmp_path / "big").chunks(5, 2_500_000))
    assert len(chunks) == 3
    assert b"".join(chunks) == data[5:2_500_005]


@pytest.mark.parametrize("shape", [(101,), (2**40, 2**40)])
def test_a_tensor_past_the_end_is_refused(path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(GPT2Error, match=r"file\.bin is cut off: 404 bytes are there"):
        MappedFile(path).tensor(1, shape, "float32")
    with pytest.raises(GPT2Error, match="is cut off"):
        list(MappedFile(path).chunks(404, 1))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GPT2Error, match="is no file"):
        MappedFile(tmp_path)
    with pytest.raises(GPT2Error, match=r"cannot read .*missing: No such file"):
        MappedFile(tmp_path / "missing")
