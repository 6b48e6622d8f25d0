"""Opening a checkpoint: every dialect of names gives one network, and nothing else opens."""

import json
import shutil
from pathlib import Path

import checkpoints as hub
import numpy as np
import pytest
import torch
from program import done
from program import refusal as refused

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.checkpoint.mapping import MappedFile
from gpt2cli.errors import GPT2Error
from gpt2cli.loader import load

FIXTURES = Path(__file__).parents[1] / "fixtures"

ARRAYS = hub.random_arrays()
MASKS = {f"h.{layer}.attn.bias": np.tril(np.ones((1, 1, 16, 16), np.float32)) for layer in range(2)}
BOOL_MASKS = {name: mask.astype(bool) for name, mask in MASKS.items()}
MASK_VALUES = {f"h.{layer}.attn.masked_bias": np.array(-1e4, "f4") for layer in range(2)}
HEAD = ARRAYS["wte.weight"]


def under(prefix: str, arrays: hub.Arrays) -> hub.Arrays:
    return {prefix + name: array for name, array in arrays.items()}


def same_network(path: Path) -> bool:
    """Whether the checkpoint at `path` loads as exactly the tiny network's weights."""
    state = load(Checkpoint.open(path), packed=False).state_dict()
    return state.keys() == ARRAYS.keys() and all(
        np.array_equal(state[name].numpy(), array) for name, array in ARRAYS.items()
    )


def refusal(path: Path) -> str:
    """The one line with which a checkpoint is refused when it is opened."""
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# Dialects


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "transformer.",
        "module.",
        "_orig_mod.transformer.",
        "module._orig_mod.",
        "_orig_mod.module.transformer.",
    ],
)
def test_wrappers_before_the_names_change_nothing(tmp_path: Path, prefix: str) -> None:
    assert same_network(hub.write(tmp_path / "m", prefix=prefix))


@pytest.mark.parametrize(
    "extra",
    [
        MASKS,
        BOOL_MASKS,
        under("transformer.", BOOL_MASKS | MASK_VALUES),
        {name: value.reshape(1) for name, value in MASK_VALUES.items()},
        {"h.0.attn.bias": np.ones((1, 1, 1024, 1024), bool)},
        {"lm_head.weight": HEAD},
        {"module.lm_head.weight": HEAD},
        {"lm_head.decoder.weight": HEAD},
        under("transformer.", MASKS) | {"lm_head.weight": HEAD, "lm_head.decoder.weight": HEAD},
    ],
    ids=lambda extra: ",".join(extra),
)
def test_mask_buffers_and_copies_of_the_tied_head_change_nothing(
    tmp_path: Path, extra: hub.Arrays
) -> None:
    assert same_network(hub.write(tmp_path / "m", extra=extra))


def test_names_of_several_dialects_may_stand_in_one_file(tmp_path: Path) -> None:
    prefixes = ["", "transformer.", "module.transformer.", "_orig_mod."]
    arrays = {prefixes[n % 4] + name: array for n, (name, array) in enumerate(ARRAYS.items())}
    assert same_network(hub.write(tmp_path / "m", arrays=arrays))


def test_shards_of_prefixed_and_bare_names_are_one_network(tmp_path: Path) -> None:
    names = list(ARRAYS)
    first = {name: ARRAYS[name] for name in names[::2]}
    second = under("transformer.", {name: ARRAYS[name] for name in names[1::2]} | BOOL_MASKS)
    assert same_network(hub.write_shards(tmp_path / "m", {"a.st": first, "b.st": second}))


def test_a_head_of_its_own_is_read_where_the_config_says_untied(tmp_path: Path) -> None:
    config = hub.TINY | {"tie_word_embeddings": False}
    model = load(Checkpoint.open(hub.write(tmp_path / "m", config)), packed=False)
    head = hub.random_arrays(config)["lm_head.weight"]
    assert np.array_equal(model.lm_head.weight.numpy(), head)
    assert not np.array_equal(model.wte.weight.numpy(), head)
    bare = hub.write(tmp_path / "bare", config, arrays=ARRAYS)
    assert "1 missing (lm_head.weight)" in refusal(bare)


@pytest.mark.parametrize("name", ["lm_head.weight", "transformer.lm_head.decoder.weight"])
def test_a_head_that_differs_where_the_config_says_tied_is_refused(
    tmp_path: Path, name: str
) -> None:
    head = HEAD.copy()
    head[60, 23] += 1e-6
    checkpoint = Checkpoint.open(hub.write(tmp_path / "m", extra={name: head}))
    with pytest.raises(GPT2Error, match=f"{name} differs from wte.weight"):
        load(checkpoint)


def test_a_tied_head_may_be_stored_in_a_wider_type(tmp_path: Path) -> None:
    widened = HEAD.astype(np.float16).astype(np.float32)
    folder = hub.write(tmp_path / "m", dtype="float16", extra={"lm_head.weight": widened})
    model = load(Checkpoint.open(folder))
    assert np.array_equal(model.wte.weight.numpy(), widened)


# What does not match the config


def without(*names: str) -> hub.Arrays:
    return {name: array for name, array in ARRAYS.items() if name not in names}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (without("h.1.ln_2.bias"), "1 missing (h.1.ln_2.bias)"),
        (ARRAYS | {"h.2.ln_1.weight": np.ones(24, "f4")}, "1 unexpected (h.2.ln_1.weight)"),
        (ARRAYS | {"h.01.ln_1.weight": np.ones(24, "f4")}, "1 unexpected (h.01.ln_1.weight)"),
        (ARRAYS | {"score.weight": np.ones(24, "f4")}, "1 unexpected (score.weight)"),
        (ARRAYS | {"h.0.attn.bias": np.ones(24, "f4")}, "1 unexpected (h.0.attn.bias)"),
        (
            ARRAYS | {"h.0.attn.bias": np.ones((1, 1, 4, 5), "f4")},
            "1 unexpected (h.0.attn.bias)",
        ),
        (
            ARRAYS | {"h.0.attn.masked_bias": np.ones(2, "f4")},
            "1 unexpected (h.0.attn.masked_bias)",
        ),
        (
            ARRAYS | {"transformer.wte.weight": HEAD},
            "1 stored twice (wte.weight and transformer.wte.weight)",
        ),
        (
            ARRAYS | {"wpe.weight": np.ones((15, 24), "f4")},
            "1 of the wrong shape (wpe.weight is [15, 24], not [16, 24])",
        ),
        (
            ARRAYS | {"h.0.attn.c_attn.weight": ARRAYS["h.0.attn.c_attn.weight"].T},
            "1 of the wrong shape (h.0.attn.c_attn.weight is [72, 24], not [24, 72])",
        ),
        (
            ARRAYS | {"lm_head.weight": np.ones((60, 24), "f4")},
            "1 of the wrong shape (lm_head.weight is [60, 24], not [61, 24])",
        ),
        (
            ARRAYS | {"wpe.weight": np.ones((16, 24))},
            "1 not of float32/float16/bfloat16 (wpe.weight is float64)",
        ),
    ],
)
def test_a_tensor_that_the_config_does_not_ask_for_is_refused_by_name(
    tmp_path: Path, arrays: hub.Arrays, said: str
) -> None:
    hub.write(tmp_path, arrays={})
    hub.save(tmp_path / "model.safetensors", arrays)
    assert refusal(tmp_path).endswith(f"does not hold the tensors of its config: {said}")


def test_all_that_is_wrong_stands_in_one_line(tmp_path: Path) -> None:
    arrays = without("wte.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "ln_f.weight")
    wrong = {
        "h.0.ln_2.weight": np.ones(3, "f4"),
        "ln_f.bias": np.ones(24),
        "a": HEAD,
        "transformer.h.1.ln_1.bias": arrays["h.1.ln_1.bias"],
    }
    hub.write(tmp_path, arrays={})
    hub.save(tmp_path / "model.safetensors", arrays | wrong)
    said = refusal(tmp_path)
    for part in (
        "4 missing (wte.weight, h.0.ln_1.weight, h.0.ln_1.bias, … (1 more))",
        "1 unexpected (a)",
        "1 stored twice (h.1.ln_1.bias and transformer.h.1.ln_1.bias)",
        "1 of the wrong shape (h.0.ln_2.weight is [3], not [24])",
        "1 not of float32/float16/bfloat16 (ln_f.bias is float64)",
    ):
        assert part in said


@pytest.mark.parametrize(
    "changes",
    [{"n_embd": 2**30, "n_head": 1}, {"vocab_size": 2**31 - 1}, {"n_layer": 2**12}],
    ids=str,
)
def test_sizes_beyond_the_file_are_refused_before_anything_of_that_size_is_made(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    hub.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(hub.TINY | changes))
    assert "does not hold the tensors of its config" in refusal(tmp_path)


# Which checkpoint of a folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of one network as safetensors, as a pickle, as a TF checkpoint and as ckpt.pt."""
    folder = hub.write(tmp_path / "many")
    shutil.copytree(FIXTURES / "openai-tf", folder, dirs_exist_ok=True)
    state = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    torch.save(state, folder / "pytorch_model.bin")
    shutil.copy(FIXTURES / "hub" / "nanogpt" / "ckpt.pt", folder)
    return folder


def test_a_folder_of_one_checkpoint_needs_no_note(tmp_path: Path) -> None:
    assert Checkpoint.open(hub.write(tmp_path / "m")).notes == ()
    assert Checkpoint.open(FIXTURES / "openai-tf").notes == ()
    for name in ("hub-sharded", "hub-bin", "nanogpt"):
        assert Checkpoint.open(FIXTURES / "hub" / name).notes == ()


def test_of_several_checkpoints_the_first_kind_is_taken_and_those_left_are_named(
    folder: Path,
) -> None:
    order = ["model.safetensors", "pytorch_model.bin", "model.ckpt.index", "ckpt.pt"]
    dialects = ["safetensors", "pickle", "tf", "nanogpt"]
    for kind, (taken, dialect) in enumerate(zip(order, dialects, strict=True)):
        opened = Checkpoint.open(folder)
        assert (opened.dialect, opened.path.name) == (dialect, taken)
        if left := order[kind + 1 :]:
            (note,) = opened.notes
            assert note.endswith(f"taking {taken}, leaving {', '.join(left)}")
            assert done("params", str(folder)).err == f"note: {note}\n"
        (folder / taken).unlink()


def test_a_whole_file_is_taken_before_an_index_of_shards(folder: Path) -> None:
    hub.write_index(folder, {"wte.weight": "missing.safetensors"})
    (folder / "pytorch_model.bin.index.json").write_text("{}")
    (note,) = Checkpoint.open(folder).notes
    assert "taking model.safetensors, leaving model.safetensors.index.json, pytorch_mod" in note


def test_several_tf_checkpoints_are_no_error_beside_weights_that_come_before(
    folder: Path,
) -> None:
    (folder / "checkpoint").unlink()
    for name in ("model-2000.index", "model-2000.data-00000-of-00001"):
        (folder / name).write_bytes(b"")
    (note,) = Checkpoint.open(folder).notes
    assert "leaving pytorch_model.bin, model-2000.index, model.ckpt.index, ckpt.pt" in note
    for name in ("model.safetensors", "pytorch_model.bin"):
        (folder / name).unlink()
    assert "holds several TF checkpoints" in refusal(folder)


def test_the_tf_checkpoint_that_is_named_is_taken_before_those_left(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "openai-tf", tmp_path / "m")
    for name in ("a.index", "a.data-00000-of-00001"):
        (folder / name).write_bytes(b"")
    (note,) = Checkpoint.open(folder).notes
    assert "taking model.ckpt.index, leaving a.index" in note


def test_an_index_of_something_else_is_no_tf_checkpoint(tmp_path: Path) -> None:
    folder = hub.write(tmp_path / "m")
    (folder / "faiss.index").write_bytes(b"IxFI")
    assert Checkpoint.open(folder).notes == ()
    (folder / "model.safetensors").unlink()
    assert "holds no checkpoint" in refusal(folder)


def test_a_folder_without_weights_and_a_path_to_nothing_are_refused(tmp_path: Path) -> None:
    hub.write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "holds no checkpoint" in refusal(tmp_path)
    assert f"{tmp_path / 'none'} does not exist" in refusal(tmp_path / "none")
    assert "none.index: No such file" in refusal(tmp_path / "none.index")


def test_a_folder_of_files_by_other_names_says_to_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    (tmp_path / "124M.bin").write_bytes(b"")
    assert "name the file itself (124M.bin, small.gguf)" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"<!DOCTYPE html>", "a web page"),
        (b"\n <?xml version='1.0'?>", "a web page"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x1f\x8b\x08", "compressed by gzip"),
        (b'{"a": 1}', "it is JSON"),
        (b"tjgg\1\0\0\0", "from before GGUF"),
        ((20240327).to_bytes(4, "little"), "llm.c's debug state"),
        ((20240520).to_bytes(4, "little"), "llm.c's training data"),
        (b"", "it is empty"),
        (b"\0\1\2\3what", r"it begins with b'\x00\x01\x02\x03what'"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_what_it_looks_like(
    tmp_path: Path, begin: bytes, said: str
) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(begin)
    assert f"{path} is no checkpoint" in (line := refusal(path))
    assert said in line
    assert "GGUF are read" in line


def test_a_part_of_a_tf_checkpoint_says_what_to_name(tmp_path: Path) -> None:
    path = FIXTURES / "openai-tf" / "model.ckpt.data-00000-of-00001"
    assert "whose model.ckpt.index is to be named" in refusal(path)


def test_a_file_is_known_by_its_first_bytes_whatever_it_is_called(tmp_path: Path) -> None:
    folder = hub.write(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "weights")
    assert same_network(folder / "weights")
    shutil.copy(FIXTURES / "llmc" / "model.bin", tmp_path / "other.pt")
    assert Checkpoint.open(tmp_path / "other.pt").dialect == "llmc"


def test_a_file_may_be_named_itself_and_its_folder_gives_the_config(tmp_path: Path) -> None:
    folder = hub.write(tmp_path / "m")
    opened = Checkpoint.open(folder / "model.safetensors")
    assert opened.folder == folder
    assert opened.file_bytes == (folder / "model.safetensors").stat().st_size
    assert same_network(folder / "model.safetensors")


# The files beside the weights


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[]", "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"n_embd": 1' + b"0" * 5000 + b"}", "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_config_that_is_no_json_object_is_refused(
    tmp_path: Path, name: str, text: bytes, said: str
) -> None:
    hub.write(tmp_path)
    (tmp_path / name).write_bytes(text)
    assert f"{tmp_path / name} {said}" in refusal(tmp_path)


def test_a_missing_config_is_named_and_one_that_is_a_folder_too(tmp_path: Path) -> None:
    hub.write(tmp_path)
    (tmp_path / "config.json").unlink()
    assert "has no config.json beside it" in refusal(tmp_path)
    (tmp_path / "config.json").mkdir()
    assert "config.json: Is a directory" in refusal(tmp_path)


def test_end_ids_come_from_the_generation_config_before_the_config(tmp_path: Path) -> None:
    hub.write(tmp_path, hub.TINY | {"eos_token_id": 1, "bos_token_id": 2})
    assert Checkpoint.open(tmp_path).config.eos_token_id == (1,)
    generation = {"eos_token_id": [3, 4], "temperature": 0.7, "_from_model_config": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    opened = Checkpoint.open(tmp_path)
    assert (opened.config.eos_token_id, opened.config.bos_token_id) == ((3, 4), 2)
    assert opened.notes == ()


def test_unknown_fields_are_named_once_and_on_one_line(tmp_path: Path) -> None:
    hub.write(tmp_path, hub.TINY | {"zeta": 1, "two\nlines": 2, "\x1b[2J": 3})
    (note,) = Checkpoint.open(tmp_path).notes
    assert done("params", str(tmp_path)).err == f"note: {note}\n"
    assert note.endswith(r"config.json: ignoring \x1b[2J, two\nlines, zeta, unknown to GPT-2")


# Headers alone


def test_opening_reads_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*args: object) -> None:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(MappedFile, "tensor", read)
    nothing = {name: np.full_like(array, np.nan) for name, array in ARRAYS.items()}
    opened = Checkpoint.open(hub.write(tmp_path / "m", arrays=nothing))
    assert opened.matched.tensors.keys() == ARRAYS.keys()
    with pytest.raises(AssertionError, match="a weight was read"):
        opened.read("wte.weight")


def test_headers_alone_can_be_counted_and_not_read(tmp_path: Path) -> None:
    raw = (hub.write(tmp_path) / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").unlink()
    head = raw[: 8 + int.from_bytes(raw[:8], "little")]
    opened = Checkpoint.from_headers(tmp_path, {"model.safetensors": (head, len(raw))})
    assert opened.matched.tensors.keys() == ARRAYS.keys()
    assert opened.file_bytes == len(raw)
    with pytest.raises(ValueError, match="only the header"):
        opened.read("wte.weight")


# A file without a config


def bare(folder: Path, config: dict[str, object] = hub.TINY, **options) -> Path:
    """A file of weights with nothing beside it."""
    hub.write(folder, config, **options)
    (folder / "config.json").unlink()
    return folder / "model.safetensors"


@pytest.mark.parametrize("changes", [{}, {"n_inner": 40}, {"tie_word_embeddings": False}], ids=str)
def test_without_a_config_sizes_are_those_of_the_tensors(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    config = hub.TINY | changes
    stated = Checkpoint.open(hub.write(tmp_path / "m", config))
    opened = Checkpoint.open(bare(tmp_path / "bare", config, prefix="transformer."), 3)
    assert opened.config == stated.config
    (note,) = opened.notes
    assert "the rest is taken as released (gelu_new, layer_norm_epsilon 1e-05)" in note


def test_without_a_config_a_head_that_equals_wte_is_a_copy_of_it(tmp_path: Path) -> None:
    opened = Checkpoint.open(bare(tmp_path, extra={"lm_head.weight": HEAD} | BOOL_MASKS), 3)
    assert opened.config.tie_word_embeddings
    assert [copy.name for copy in opened.matched.copies] == ["lm_head.weight"]


def test_without_a_config_the_number_of_heads_is_asked_for(tmp_path: Path) -> None:
    path = bare(tmp_path / "m")
    assert "give --n-head N" in refusal(path)
    assert "does not divide into --n-head 7" in refused("params", str(path), "--n-head", "7")
    wide = bare(tmp_path / "wide", hub.TINY | {"n_embd": 128, "n_head": 2})
    assert "give --n-head 2" in refusal(wide)
    for command in ("params", "verify"):
        assert (
            "no config lies beside model.safetensors"
            in done(command, str(path), "--n-head", "3").err
        )


def test_a_number_of_heads_that_the_config_contradicts_is_refused(tmp_path: Path) -> None:
    folder = hub.write(tmp_path)
    assert Checkpoint.open(folder, 3).config.n_head == 3
    with pytest.raises(GPT2Error, match="has 3 heads by its own config, not 4"):
        Checkpoint.open(folder, 4)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"model.embed_tokens.weight": HEAD}, "wte.weight is not among its tensors"),
        (without("wpe.weight"), "wpe.weight is not among its tensors"),
        (without("h.1.ln_2.bias"), "1 missing (h.1.ln_2.bias)"),
    ],
)
def test_without_a_config_another_model_is_refused(
    tmp_path: Path, arrays: hub.Arrays, said: str
) -> None:
    path = bare(tmp_path, arrays=arrays)
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path, 3)
    assert said in str(refused.value)


def test_a_tf_checkpoint_without_hparams_is_read_with_the_number_of_heads(tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / "openai-tf", tmp_path / "m")
    stated = Checkpoint.open(folder).config
    (folder / "hparams.json").unlink()
    assert "or give --n-head" in refusal(folder)
    assert Checkpoint.open(folder, stated.n_head).config == stated


# One network in every dialect


@pytest.mark.parametrize("name", ["hub-sharded", "hub-prefixed", "hub-bin"])
def test_the_same_model_stored_in_another_way_has_the_same_weights(name: str) -> None:
    ours, theirs = (Checkpoint.open(FIXTURES / "hub" / n) for n in (name, "hub-released"))
    assert ours.config == theirs.config
    assert ours.matched.tensors.keys() == theirs.matched.tensors.keys()
    assert all(torch.equal(ours.read(key), theirs.read(key)) for key in theirs.matched.tensors)


@pytest.mark.parametrize(
    ("path", "reference"),
    [
        ("hub/hub-bin", "hub/hub-bin/expected.json"),
        ("hub/nanogpt", "hub/nanogpt/expected.json"),
        ("hub/nanogpt-nobias-compiled", "hub/nanogpt-nobias-compiled/expected.json"),
        ("llmc/model.bin", "llmc/expected.json"),
        ("llmc/model_bf16.bin", "llmc/expected_bf16.json"),
    ],
)
def test_every_dialect_gives_the_logits_that_its_own_program_computed(
    path: str, reference: str
) -> None:
    expected = json.loads((FIXTURES / reference).read_text())
    model = load(Checkpoint.open(FIXTURES / path))
    with torch.inference_mode():
        ours = np.array([model(torch.tensor([ids]))[0].numpy() for ids in expected["input_ids"]])
    assert np.abs(ours - np.array(expected["logits"])).max() < 1e-5
