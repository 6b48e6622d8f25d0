"""Safetensors files and their index: what is read, and what is refused by name."""

from pathlib import Path

import checkpoints as hub
import numpy as np
import oracle
import pytest
import torch
from safetensors.numpy import save_file

from gpt2cli.checkpoint.safetensors import open_file, stored_tensors
from gpt2cli.errors import GPT2Error

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hub"


def refusal(path: Path, data: bytes | None = None) -> str:
    """The one line with which a file of these bytes is refused when it is opened."""
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(GPT2Error) as refused:
        open_file(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return hub.write(tmp_path / "model") / "model.safetensors"


# What is read


@pytest.mark.parametrize("fixture", ["hub-released", "hub-bfloat16", "hub-float16"])
def test_names_shapes_and_numbers_are_those_of_the_file(fixture: str) -> None:
    theirs = oracle.read_hub(FIXTURES / fixture)
    stored = {t.name: t for t in stored_tensors(FIXTURES / fixture / "model.safetensors")}
    assert theirs.keys() <= stored.keys()
    for name, array in theirs.items():
        tensor = stored[name].read()
        assert str(tensor.dtype) == f"torch.{stored[name].dtype}"
        assert tensor.shape == stored[name].shape
        assert np.array_equal(tensor.double().numpy(), array)


def test_every_type_that_the_reference_implementation_writes_is_read(tmp_path: Path) -> None:
    types = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"]
    arrays = {kind: np.array([[0, 1], [1, 0], [1, 1]], kind) for kind in types}
    arrays |= {"scalar": np.array(7, "i4"), "empty": np.zeros((0, 3), "f4")}
    save_file(arrays, tmp_path / "m.safetensors")
    stored = {tensor.name: tensor for tensor in stored_tensors(tmp_path / "m.safetensors")}
    assert stored.keys() == arrays.keys()
    for name, array in arrays.items():
        read = stored[name].read().numpy()
        assert read.dtype == array.dtype
        assert np.array_equal(read, array)
        assert stored[name].nbytes == array.nbytes


def test_a_read_maps_the_file_where_its_data_is_aligned_and_copies_where_not(
    tmp_path: Path,
) -> None:
    rows = {"w": hub.row("F32", (4, 4), 0, 64)}
    for pad in range(4):
        path = tmp_path / f"{pad}.safetensors"
        path.write_bytes(hub.packed(rows, np.arange(16, dtype="<f4").tobytes(), pad=pad))
        (stored,) = stored_tensors(path)
        first, second = stored.read(), stored.read()
        assert first.data_ptr() % 4 == 0
        assert torch.equal(first.flatten(), torch.arange(16.0))
        mapped = (len(hub.packed(rows)) + pad) % 4 == 0
        assert (first.data_ptr() == second.data_ptr()) == mapped


# Damage


def test_a_file_cut_off_anywhere_is_refused(path: Path) -> None:
    sound = path.read_bytes()
    data = 8 + int.from_bytes(sound[:8], "little")
    for length in (*range(0, data, 7), data - 1):
        assert f"{path} is cut off" in refusal(path, sound[:length])
    for length in (data, data + 1, len(sound) - 1):
        assert f"{path} is {length} bytes long where its header says" in refusal(
            path, sound[:length]
        )


def test_bytes_after_the_last_tensor_and_a_folder_are_refused(path: Path) -> None:
    sound = path.read_bytes()
    assert f"is {len(sound) + 1} bytes long where its header says" in refusal(path, sound + b"\0")
    path.unlink()
    path.mkdir()
    assert "is no file" in refusal(path)


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        b"\xff" * 8 + b"{}",
        (2**63).to_bytes(8, "little") + b"{}",
        (100_000_001).to_bytes(8, "little") + b"{}",
    ],
)
def test_what_begins_with_no_header_length_is_said_to_be_no_safetensors_file(
    path: Path, data: bytes
) -> None:
    assert "is no safetensors file" in refusal(path, data)


def test_a_git_lfs_pointer_says_how_to_get_the_file(path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    assert "is a Git LFS pointer" in refusal(path, pointer)


def test_a_header_longer_than_its_file_is_cut_off(path: Path) -> None:
    said = refusal(path, (100_000_000).to_bytes(8, "little") + b"{}")
    assert "is cut off inside its header" in said


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"a": 1' + b"0" * 5000 + b"}",
        b'{"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
        b'"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    ],
    ids=range(7),
)
def test_a_header_that_is_no_json_object_of_distinct_names_is_damaged(
    path: Path, text: bytes
) -> None:
    assert "has a damaged header" in refusal(path, len(text).to_bytes(8, "little") + text + b"\0")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (None, "not understood"),
        (7, "not understood"),
        ({}, "not understood"),
        (hub.row("F128", (1,), 0, 16), "not understood"),
        (hub.row("F32", (4,), 0, 16) | {"dtype": ["F32"]}, "not understood"),
        (hub.row("F32", (4,), 0, 16) | {"shape": 4}, "not understood"),
        (hub.row("F32", (4,), 0, 16) | {"data_offsets": [0]}, "not understood"),
        (hub.row("F32", (4,), 0, 16) | {"data_offsets": [0, 16, 32]}, "not understood"),
        (hub.row("F32", (4,), 0, 16) | {"shape": "4"}, "no whole number"),
        (hub.row("F32", (4,), 0, 16) | {"shape": [4.0]}, "no whole number"),
        (hub.row("F32", (4,), 0, 16) | {"data_offsets": [False, 16]}, "no whole number"),
        (hub.row("F32", (-4,), 0, 16), "no whole number"),
        (hub.row("F32", (4,), -16, 0), "no whole number"),
        (hub.row("F32", (5,), 0, 16), "w has 16 bytes, not those of its shape"),
        (hub.row("F32", (2**32, 2**32), 0, 0), "w has 0 bytes, not those of its shape"),
        (hub.row("F32", (4,), 16, 0), "w has -16 bytes, not those of its shape"),
        (hub.row("F32", (2**40, 2**40), 0, 2**82), "too large"),
        (hub.row("F32", (2**30, 2**30), 0, 2**62), "where its header says"),
        (hub.row("U8", (1,) * 9, 0, 1), "w has 9 dimensions"),
        (hub.row("F32", (8,), 0, 32), "where its header says"),
        (hub.row("F32", (3,), 4, 16), "overlaps another tensor or leaves a gap"),
        (hub.row("F32", (3,), 0, 12), "where its header says"),
    ],
)
def test_a_row_that_contradicts_itself_or_the_file_is_refused_by_name(
    path: Path, row: object, said: str
) -> None:
    message = refusal(path, hub.packed({"w": row}, bytes(16)))
    assert said in message
    assert str(path) in message


@pytest.mark.parametrize("second", [(8, 24), (0, 16), (20, 36), (2**62, 2**62 + 16)])
def test_tensors_that_overlap_or_leave_a_gap_are_refused(
    path: Path, second: tuple[int, int]
) -> None:
    rows = {"a": hub.row("F32", (4,), 0, 16), "b": hub.row("F32", (4,), *second)}
    message = refusal(path, hub.packed(rows, bytes(32)))
    assert "overlaps another tensor or leaves a gap" in message


# Shards


HALVES = {
    "a.safetensors": {"wte.weight": np.zeros((2, 3), np.float32)},
    "b.safetensors": {"wpe.weight": np.ones((4, 3), np.float32)},
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return hub.write_shards(tmp_path / "m", HALVES) / "model.safetensors.index.json"


def test_shards_are_those_that_the_index_names_and_no_others(index: Path) -> None:
    (index.parent / "c.safetensors").write_bytes(b"never read")
    source = open_file(index)
    assert {tensor.name: tensor.file.name for tensor in source.stored} == {
        "wte.weight": "a.safetensors",
        "wpe.weight": "b.safetensors",
    }
    assert source.file_bytes == sum((index.parent / shard).stat().st_size for shard in HALVES)


def test_a_shard_may_be_a_link_to_a_file_elsewhere(index: Path, tmp_path: Path) -> None:
    shard = index.parent / "a.safetensors"
    shard.rename(tmp_path / "blob")
    shard.symlink_to(tmp_path / "blob")
    assert len(open_file(index).stored) == 2


@pytest.mark.parametrize(
    "name",
    [
        "../a.safetensors",
        "..",
        ".",
        "",
        "sub/a.safetensors",
        "/etc/passwd",
        "a\0b",
        "\ud800",
        5,
        None,
        ["a.safetensors"],
    ],
)
def test_a_shard_that_is_no_file_of_the_folder_is_refused(index: Path, name: object) -> None:
    hub.write_index(index.parent, {"wte.weight": "a.safetensors", "wpe.weight": name})
    assert f"names {name!r}, which is no file of its own folder" in refusal(index)


@pytest.mark.parametrize("weight_map", [None, {}, [], "a.safetensors"])
def test_an_index_without_a_map_is_refused(index: Path, weight_map: object) -> None:
    hub.write_index(index.parent, weight_map)
    assert "has no weight_map" in refusal(index)


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"[" * 100_000, b"\xff\xfe\xff"])
def test_an_index_that_is_no_json_object_is_refused(index: Path, data: bytes) -> None:
    assert str(index) in refusal(index, data)


def test_a_shard_that_is_missing_or_cannot_exist_is_named(index: Path) -> None:
    (index.parent / "a.safetensors").unlink()
    assert "names a.safetensors, which is not there" in refusal(index)
    hub.write_index(index.parent, {"wpe.weight": "b.safetensors", "wte.weight": "x" * 300})
    assert "xxx, which is not there" in refusal(index)


def test_an_index_and_shards_that_disagree_are_refused_with_every_tensor(index: Path) -> None:
    hub.write_index(index.parent, dict.fromkeys(["wte.weight", "wpe.weight"], "a.safetensors"))
    assert "wpe.weight is listed in a.safetensors and not there" in refusal(index)
    hub.write_index(index.parent, {"wte.weight": "b.safetensors", "wpe.weight": "b.safetensors"})
    assert "wte.weight is listed in b.safetensors and not there" in refusal(index)
    swapped = {"wte.weight": "b.safetensors", "wpe.weight": "a.safetensors"}
    hub.write_index(index.parent, swapped)
    message = refusal(index)
    for name, shard in swapped.items():
        assert f"{name} is listed in {shard} and not there" in message
    hub.save(index.parent / "b.safetensors", HALVES["a.safetensors"] | HALVES["b.safetensors"])
    hub.write_index(index.parent, {"wte.weight": "a.safetensors", "wpe.weight": "b.safetensors"})
    assert "wte.weight is in b.safetensors and not listed there" in refusal(index)


def test_weights_without_a_config_are_refused(index: Path) -> None:
    (index.parent / "config.json").unlink()
    assert "has no config.json beside it and is no GPT-2" in refusal(index)
    assert "has no config.json beside it and is no GPT-2" in refusal(index.parent / "a.safetensors")
