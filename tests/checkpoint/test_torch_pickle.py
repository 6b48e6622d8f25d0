"""Pickles of torch.save, in both forms: what is read, and that nothing in them ever runs."""

import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import checkpoints as hub
import numpy as np
import pytest
import torch
from program import done

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.checkpoint.mapping import MappedFile
from gpt2cli.errors import GPT2Error

ARRAYS = hub.random_arrays()

State = dict[str, torch.Tensor]
Save = Callable[[object, Path], None]


def save_zip(value: object, path: Path) -> None:
    torch.save(value, path)


def save_legacy(value: object, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


each_form = pytest.mark.parametrize("save", [save_zip, save_legacy])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(hub.TINY))
    return tmp_path / "pytorch_model.bin"


def state(prefix: str = "", dtype: torch.dtype = torch.float32) -> State:
    return {
        prefix + name: torch.from_numpy(array.copy()).to(dtype) for name, array in ARRAYS.items()
    }


def same_tensors(path: Path, expected: State | None = None) -> bool:
    """Whether the checkpoint at `path` holds exactly these tensors, by default the tiny ones."""
    opened = Checkpoint.open(path)
    expected = state() if expected is None else expected
    return opened.matched.tensors.keys() == expected.keys() and all(
        torch.equal(opened.read(name), tensor) for name, tensor in expected.items()
    )


def refusal(path: Path) -> str:
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# What is read


@each_form
@pytest.mark.parametrize("prefix", ["", "transformer.", "module._orig_mod.transformer."])
def test_a_state_dict_of_any_prefix_is_read(path: Path, save: Save, prefix: str) -> None:
    named = OrderedDict(state(prefix))
    named._metadata = {"": {"version": 1}}  # as Module.state_dict leaves it
    save(named, path)
    assert same_tensors(path)
    assert same_tensors(path.parent)


@each_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_stay_as_they_are_stored(path: Path, save: Save, dtype: torch.dtype) -> None:
    save(state(dtype=dtype), path)
    assert same_tensors(path, state(dtype=dtype))


@each_form
def test_tensors_may_share_a_storage_and_lie_in_it_in_any_order(path: Path, save: Save) -> None:
    whole = torch.cat([tensor.flatten() for tensor in reversed(state().values())])
    views: State = {}
    place = 0
    for name, tensor in reversed(state().items()):
        views[name] = whole[place : place + tensor.numel()].view(tensor.shape)
        place += tensor.numel()
    views["lm_head.decoder.weight"] = views["wte.weight"]
    save(views, path)
    assert same_tensors(path)


@each_form
def test_a_tensor_may_be_stored_turned_and_be_a_parameter(path: Path, save: Save) -> None:
    turned = {
        name: torch.nn.Parameter(tensor.t().contiguous().t() if tensor.dim() == 2 else tensor)
        for name, tensor in state().items()
    }
    save(turned, path)
    assert same_tensors(path)


@each_form
def test_shards_are_those_that_the_index_names(path: Path, save: Save) -> None:
    names = list(ARRAYS)
    shards = {"one.bin": names[::2], "two.bin": names[1::2]}
    for shard, held in shards.items():
        save({name: state()[name] for name in held}, path.parent / shard)
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    index = path.with_name("pytorch_model.bin.index.json")
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert same_tensors(path.parent)
    index.write_text(json.dumps({"weight_map": weight_map | {"wte.weight": "two.bin"}}))
    assert "wte.weight is listed in two.bin and not there" in refusal(index)


def test_opening_the_older_form_reads_no_number(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_legacy(state(), path)
    reads = []
    mapped = MappedFile.tensor
    monkeypatch.setattr(MappedFile, "tensor", lambda *args: reads.append(args) or mapped(*args))
    opened = Checkpoint.open(path)
    assert reads == []
    assert torch.equal(opened.read("wte.weight"), state()["wte.weight"])
    assert len(reads) == 1


def test_params_says_how_each_stored_name_was_mapped(path: Path) -> None:
    extra = {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16),
        "lm_head.weight": state()["wte.weight"],
    }
    save_zip(state("transformer.") | extra, path)
    lines = done("params", str(path), "--tensors").text.splitlines()
    assert any(line.endswith("stored as transformer.h.1.ln_2.bias") for line in lines)
    assert any(line.endswith("ignored: causal mask") for line in lines)
    assert any(line.endswith("ignored: copy of wte.weight, its tied head") for line in lines)


# What is refused


class Runs:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def dump(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value, protocol=2))


@pytest.mark.parametrize("save", [save_zip, save_legacy, dump])
@pytest.mark.parametrize("nested", [False, True])
def test_a_pickle_that_would_run_something_is_refused_by_its_name_and_runs_nothing(
    path: Path, save: Save, nested: bool
) -> None:
    witness = path.parent / "ran"
    evil = Runs(witness)
    save(state() | {"h.0.attn.bias": evil} if nested else evil, path)
    said = refusal(path)
    if save is not dump:
        assert "asks to run posix.system" in said
    assert "nothing of it was run" in said
    assert not witness.exists()
    pickle.loads(pickle.dumps(evil))  # and elsewhere it does run
    assert witness.exists()


@each_form
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"epoch": 3, "optimizer": {}}, "under 'epoch' (its first names are epoch, optimizer)"),
        ([1, 2], "holds a list, not names and tensors"),
        ({}, "holds a dict, not names and tensors"),
        (torch.ones(3), "holds a Tensor, not names and tensors"),
        ({5: torch.ones(3)}, "under 5"),
        ({"wte.weight": torch.ones(3, 3).to_sparse()}, "sparse or quantised"),
    ],
    ids=range(6),
)
def test_a_pickle_of_something_else_says_what_it_holds(
    path: Path, save: Save, value: object, said: str
) -> None:
    save(value, path)
    assert said in refusal(path)


@each_form
def test_a_pickle_cut_off_anywhere_is_refused(path: Path, save: Save) -> None:
    save(state(), path)
    sound = path.read_bytes()
    for length in range(1, len(sound), 1499):
        path.write_bytes(sound[:length])
        assert str(path) in refusal(path)


def test_the_last_storage_of_the_older_form_may_not_be_short(path: Path) -> None:
    save_legacy(state(), path)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    assert f"{len(sound) - 1} bytes are there, {len(sound)} are needed" in refusal(path)


@each_form
def test_a_tensor_that_is_missing_or_extra_is_refused_by_name(path: Path, save: Save) -> None:
    named = state()
    del named["h.1.ln_2.bias"]
    save(named | {"h.2.ln_1.bias": torch.ones(24)}, path)
    said = refusal(path)
    assert "1 missing (h.1.ln_2.bias)" in said
    assert "1 unexpected (h.2.ln_1.bias)" in said


def test_a_pickle_without_a_config_is_read_with_the_number_of_heads(path: Path) -> None:
    (path.parent / "config.json").unlink()
    save_zip(state(), path)
    assert "give --n-head" in refusal(path)
    opened = Checkpoint.open(path, 3)
    assert np.array_equal(opened.read("wte.weight").numpy(), ARRAYS["wte.weight"])


def test_a_zip_archive_of_something_else_says_what_is_in_it(path: Path) -> None:
    np.savez(path.with_name("weights.npz"), wte=ARRAYS["wte.weight"])
    said = refusal(path.with_name("weights.npz"))
    assert "is a zip archive of wte.npy and not of torch.save" in said
