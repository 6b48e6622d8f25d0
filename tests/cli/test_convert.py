"""gpt2 convert: what it writes, what it refuses, and that a destination is never half-written."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import checkpoints as hub
import nanogpt_model
import numpy as np
import pytest
import torch
from program import child, done, refusal, run
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load

FIXTURES = Path(__file__).parents[1] / "fixtures"
WEIGHTS = Path(__file__).parents[2] / "weights"

SOURCES = [
    "hub/hub-released",
    "hub/hub-sharded",
    "hub/hub-bin",
    "hub/hub-float16",
    "hub/hub-bfloat16",
    "hub/nanogpt",
    "hub/nanogpt-nobias-compiled",
    "hub/variant-untied",
    "hub/variant-inverse-layer-scale",
    "hub/variant-inner-erf-eps",
    "openai-tf-finetuned",
    "llmc/model.bin",
    "llmc/model_bf16.bin",
]


def convert(source: Path | str, dest: Path, *options: str) -> Path:
    done("convert", str(source), str(dest), "-q", *options)
    return dest


def same(one: Path, other: Path) -> bool:
    """Whether two checkpoints hold the same network: config, and every tensor bit for bit."""
    ours, theirs = Checkpoint.open(one), Checkpoint.open(other)
    return (
        ours.config == theirs.config
        and ours.matched.tensors.keys() == theirs.matched.tensors.keys()
        and all(torch.equal(ours.read(name), theirs.read(name)) for name in ours.matched.tensors)
    )


@torch.inference_mode()
def logits(path: Path, ids: list[int]) -> torch.Tensor:
    return load(Checkpoint.open(path))(torch.tensor([ids]))[0]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return hub.write(tmp_path / "plain")


@pytest.fixture
def erf(tmp_path: Path) -> Path:
    """A network that nanoGPT's model.py is."""
    return hub.write(tmp_path / "erf", hub.TINY | {"activation_function": "gelu"})


# Safetensors


@pytest.mark.parametrize("name", SOURCES)
def test_every_dialect_becomes_a_folder_of_the_same_tensors_and_logits(
    tmp_path: Path, name: str
) -> None:
    made = convert(FIXTURES / name, tmp_path / "made")
    assert same(made, FIXTURES / name)
    assert {"config.json", "generation_config.json", "model.safetensors"} == files(made).keys()
    ids = [5, 17, 60, 0, 33, 8]
    assert torch.equal(logits(made, ids), logits(FIXTURES / name, ids))


@pytest.mark.parametrize(
    "name", ["hub/hub-bin", "hub/nanogpt-nobias-compiled", "hub/variant-untied", "llmc/model.bin"]
)
def test_transformers_loads_it_without_a_warning_and_computes_the_same(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = convert(FIXTURES / name, tmp_path / "made")
    transformers_logging.enable_propagation()
    model = AutoModelForCausalLM.from_pretrained(made, attn_implementation="eager")
    assert [record.message for record in caplog.records] == []
    ids = [5, 17, 60, 0, 33, 8]
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0]
    assert (logits(made, ids) - theirs).abs().max() < 1e-5
    assert model.dtype == torch.float32


def test_the_reference_implementation_reads_every_file(plain: Path, tmp_path: Path) -> None:
    made = convert(plain, tmp_path / "made", "--shard-size", "20KB")
    index = json.loads((made / "model.safetensors.index.json").read_text())
    shards = {shard: load_file(made / shard) for shard in set(index["weight_map"].values())}
    assert len(shards) > 2
    sizes = [sum(t.nbytes for t in shard.values()) for shard in shards.values()]
    assert sum(sizes) == index["metadata"]["total_size"]
    assert all(n <= 20_000 or len(s) == 1 for n, s in zip(sizes, shards.values(), strict=True))
    assert {name: shard for shard, held in shards.items() for name in held} == index["weight_map"]
    assert same(made, plain)
    assert "model.safetensors" not in files(made)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("source", ["hub/hub-released", "hub/hub-bfloat16", "llmc/model_bf16.bin"])
def test_weights_are_rounded_as_torch_rounds_them(tmp_path: Path, source: str, dtype: str) -> None:
    made = Checkpoint.open(convert(FIXTURES / source, tmp_path / "made", "--dtype", dtype))
    theirs = Checkpoint.open(FIXTURES / source)
    for name in theirs.matched.tensors:
        assert torch.equal(made.read(name), theirs.read(name).to(getattr(torch, dtype)))
    assert json.loads((tmp_path / "made" / "config.json").read_text())["dtype"] == dtype


def test_tensors_lie_aligned_whatever_types_are_mixed(tmp_path: Path) -> None:
    config = hub.TINY | {"n_embd": 9}
    arrays = hub.random_arrays(config)
    mixed = {
        name: hub.cast(array, ["float32", "float16", "bfloat16"][n % 3])
        for n, (name, array) in enumerate(arrays.items())
    }
    hub.write(tmp_path / "m", config, arrays={})
    hub.save(tmp_path / "m" / "model.safetensors", mixed)
    made = convert(tmp_path / "m", tmp_path / "made")
    assert same(made, tmp_path / "m")
    raw = (made / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    for name, row in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            place = start + row["data_offsets"][0]
            assert place % (4 if row["dtype"] == "F32" else 2) == 0


def test_a_number_that_the_type_cannot_hold_is_refused_and_nothing_is_left(
    tmp_path: Path, plain: Path
) -> None:
    arrays = hub.random_arrays()
    arrays["ln_f.bias"][3] = 1e5
    hub.write(plain, arrays=arrays)
    said = refusal("convert", str(plain), str(tmp_path / "made"), "-q", "--dtype", "float16")
    assert "ln_f.bias holds numbers that float16 does not" in said
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]
    arrays["ln_f.bias"][3] = np.nan
    hub.write(plain, arrays=arrays)
    assert "ln_f.bias holds NaN" in refusal("convert", str(plain), str(tmp_path / "made"), "-q")


def test_a_head_that_is_no_copy_of_a_tied_wte_is_refused(tmp_path: Path) -> None:
    head = hub.random_arrays()["wte.weight"] + 1
    folder = hub.write(tmp_path / "m", extra={"lm_head.weight": head})
    assert "differs from wte.weight" in refusal("convert", str(folder), str(tmp_path / "made"))


def test_a_config_keeps_what_training_needs_and_drops_what_is_stale(tmp_path: Path) -> None:
    more = {"attn_pdrop": 0.0, "torch_dtype": "float64", "_name_or_path": "x", "summary_type": "a"}
    more |= {"eos_token_id": [3, 4], "n_ctx": 16, "do_sample": True}
    made = convert(hub.write(tmp_path / "m", hub.TINY | more), tmp_path / "made")
    config = json.loads((made / "config.json").read_text())
    assert (config["attn_pdrop"], config["summary_type"]) == (0.0, "a")
    assert not config.keys() & {"torch_dtype", "_name_or_path", "n_ctx", "do_sample"}
    assert (config["eos_token_id"], config["bos_token_id"]) == ([3, 4], None)


def test_a_generation_config_is_kept_and_an_end_that_only_it_names_too(
    tmp_path: Path, plain: Path
) -> None:
    (plain / "generation_config.json").write_text('{"eos_token_id": 7, "temperature": 0.5}')
    made = convert(plain, tmp_path / "made")
    assert same(made, plain)
    said = json.loads((made / "generation_config.json").read_text())
    assert said == {"eos_token_id": 7, "temperature": 0.5}
    (made / "generation_config.json").unlink()
    assert Checkpoint.open(made).config.eos_token_id == (7,)


# Tokenizers


def test_tokenizer_files_come_along_and_openais_get_the_hubs_names(tmp_path: Path) -> None:
    made = files(convert("austen", tmp_path / "made"))
    for name in ("vocab.json", "merges.txt"):
        assert made[name] == (WEIGHTS / "austen" / name).read_bytes()
    source = shutil.copytree(FIXTURES / "openai-tf", tmp_path / "tf")
    (source / "encoder.json").write_bytes(made["vocab.json"])
    (source / "vocab.bpe").write_bytes(made["merges.txt"])
    renamed = files(convert(source, tmp_path / "renamed"))
    for name in ("vocab.json", "merges.txt"):
        assert renamed[name] == made[name]


def test_gpt2s_own_vocabulary_becomes_the_files_that_it_was_released_in(tmp_path: Path) -> None:
    args = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 16, "bias": False}
    args |= {"vocab_size": 50304}
    saved = {"model": nanogpt_model.random_state(args), "model_args": args}
    torch.save(saved, tmp_path / "ckpt.pt")
    made = convert(tmp_path / "ckpt.pt", tmp_path / "made")
    theirs = AutoTokenizer.from_pretrained(made)
    text = "Hello, world! It's 2019\n\n\tnaïve 🤗"
    ours = [int(word) for word in done("tokens", "-m", "gpt2", text).text.split()]
    assert theirs.encode(text) == ours
    assert theirs.decode(ours) == text
    assert done("tokens", "-m", str(made), text).text.split() == [str(n) for n in ours]
    assert Checkpoint.open(made).config.eos_token_id == (50256,)


# nanoGPT


@pytest.mark.parametrize("dest", ["out", "ckpt.pt", "other.pt"])
def test_nanogpts_model_loads_it_and_computes_the_same(
    tmp_path: Path, erf: Path, dest: str
) -> None:
    made = convert(erf, tmp_path / dest, "--format", "nanogpt")
    path = made / "ckpt.pt" if dest == "out" else made
    args, state = nanogpt_model.read(path)
    ids = [5, 17, 60, 0, 33, 8]
    theirs = nanogpt_model.logits(state, args, ids)
    assert (logits(erf, ids) - theirs).abs().max() < 1e-5
    assert same(path, erf)
    assert all(tensor.is_contiguous() for tensor in state.values())
    assert zipfile.ZipFile(path).testzip() is None


@pytest.mark.parametrize("name", ["hub/nanogpt", "hub/nanogpt-nobias-compiled"])
def test_a_round_trip_over_safetensors_ends_with_the_same_tensors(
    tmp_path: Path, name: str
) -> None:
    there = convert(FIXTURES / name, tmp_path / "hub")
    back = convert(there, tmp_path / "ckpt.pt", "--format", "nanogpt")
    assert same(back, FIXTURES / name)


def test_half_types_stay_so_and_are_mapped_aligned(tmp_path: Path, erf: Path) -> None:
    made = convert(erf, tmp_path / "x.pt", "--format", "nanogpt", "--dtype", "bfloat16")
    opened = Checkpoint.open(made)
    for name in opened.matched.tensors:
        tensor = opened.read(name)
        assert tensor.dtype == torch.bfloat16
        assert tensor.data_ptr() % 64 == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_function": "gelu_new"}, "activation_function is gelu_new"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
        ({"n_inner": 40}, "n_inner is 40"),
        ({"scale_attn_weights": False}, "scale_attn_weights is False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ],
    ids=str,
)
def test_a_model_that_nanogpt_cannot_express_is_refused_by_its_field_even_by_force(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    source = hub.write(tmp_path / "m", hub.TINY | {"activation_function": "gelu"} | changes)
    dest = tmp_path / "out"
    line = refusal("convert", str(source), str(dest), "--format", "nanogpt", "--force")
    assert said in line
    assert "nanoGPT's model.py would compute something else" in line
    assert not dest.exists()


def test_a_width_that_is_spelled_out_is_no_other_width(tmp_path: Path) -> None:
    config = hub.TINY | {"activation_function": "gelu", "n_inner": 96}
    convert(hub.write(tmp_path / "m", config), tmp_path / "x.pt", "--format", "nanogpt")


def test_a_released_size_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    line = refusal("convert", "gpt2", str(tmp_path / "x.pt"), "--format", "nanogpt")
    assert "activation_function is gelu_new" in line


# The destination


def test_what_is_there_is_replaced_by_force_only(tmp_path: Path, plain: Path) -> None:
    other = hub.write(tmp_path / "other", seed=1)
    (other / "README.md").write_text("mine")
    before = files(other)
    line = refusal("convert", str(plain), str(other))
    assert "has config.json, model.safetensors already; give --force" in line
    assert files(other) == before
    convert(plain, other, "--force")
    assert same(other, plain)
    assert files(other)["README.md"] == b"mine"


def test_what_a_replaced_checkpoint_leaves_does_not_come_before_the_new_one(
    tmp_path: Path, plain: Path
) -> None:
    other = hub.write(tmp_path / "other", seed=1)
    (other / "vocab.json").write_text("{}")
    convert(plain, other, "--force", "--shard-size", "20KB")
    assert "model.safetensors" not in files(other)
    assert same(other, plain)
    convert(plain, other, "--force")
    assert not [name for name in files(other) if "-of-" in name or "index" in name]
    assert files(other)["vocab.json"] == b"{}"  # as nothing came to replace it
    convert("austen", other, "--force")
    assert len(files(other)["vocab.json"]) > 2


def test_a_folder_may_be_converted_in_place_and_other_files_beside_do_not_count(
    tmp_path: Path, plain: Path
) -> None:
    before = Checkpoint.open(plain)
    convert(plain, plain, "--force", "--dtype", "bfloat16")
    after = Checkpoint.open(plain)
    assert torch.equal(after.read("wte.weight"), before.read("wte.weight").to(torch.bfloat16))
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "notes.txt").write_text("")
    convert(plain, tmp_path / "some")
    erf = hub.write(tmp_path / "e", hub.TINY | {"activation_function": "gelu"})
    convert(erf, tmp_path / "some" / "x.pt", "--format", "nanogpt")
    line = refusal("convert", str(erf), str(tmp_path / "some" / "x.pt"), "--format", "nanogpt")
    assert "has x.pt already" in line


def test_a_destination_that_cannot_be_is_refused_before_the_source_is_read(
    tmp_path: Path, plain: Path
) -> None:
    line = refusal("convert", "nobody/nothing", str(tmp_path / "no" / "such"))
    assert f"there is no folder {tmp_path / 'no'} to write into" in line
    assert "DEST is empty" in refusal("convert", str(plain), "")
    (tmp_path / "link").symlink_to("nowhere")
    assert "a link that leads nowhere" in refusal("convert", str(plain), str(tmp_path / "link"))
    line = refusal("convert", "nobody/nothing", str(plain / "config.json"))
    assert "is a file, and DEST is a folder" in line
    line = refusal("convert", "gpt2", str(tmp_path / "no" / "x.pt"), "--format", "nanogpt")
    assert f"there is no folder {tmp_path / 'no'}" in line


@pytest.mark.parametrize(
    "args",
    [
        ("m", "d", "--shard-size", "many"),
        ("m", "d", "--shard-size", "0"),
        ("m", "d", "--shard-size", "5PB"),
        ("m", "d", "--format", "nanogpt", "--shard-size", "1GB"),
        ("m", "d.safetensors"),
        ("m", "d.pt"),
        ("m", "d", "--dtype", "int8"),
        ("m", "d", "--format", "tf"),
        ("m",),
    ],
)
def test_wrong_usage_is_2(args: tuple[str, ...]) -> None:
    assert run("convert", *args).code == 2


def test_new_files_have_the_permissions_of_any_other(tmp_path: Path, plain: Path) -> None:
    made = convert(plain, tmp_path / "made")
    (tmp_path / "like").mkdir()
    (tmp_path / "like" / "file").touch()
    assert made.stat().st_mode == (tmp_path / "like").stat().st_mode
    for path in made.iterdir():
        assert path.stat().st_mode == (tmp_path / "like" / "file").stat().st_mode


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_the_destination_as_it_was(
    tmp_path: Path, plain: Path, there: bool
) -> None:
    dest = tmp_path / "dest"
    if there:
        hub.write(dest, seed=1)
    before = files(dest) if there else None

    def at_most_30_kb() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    args = ("convert", str(plain), str(dest), "-q", "--force")
    with child(*args, preexec_fn=at_most_30_kb) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.decode().startswith(f"Error: cannot write {dest}: File too large")
    assert err.count(b"\n") == 1
    assert (files(dest) if dest.exists() else None) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"plain", "dest"}


def test_too_little_room_is_refused_before_anything_is_written(
    tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    line = refusal("convert", str(plain), str(tmp_path / "dest"), "-q")
    assert "bytes of weights, and 1,000 are free there" in line
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


SLOW = """
from time import sleep
from gpt2cli.checkpoint import writing
from gpt2cli.cli import main
write = writing.write_numbers
def slow(file, found, advance):
    write(file, found, advance)
    print("written", flush=True)
    sleep(60)
writing.write_numbers = slow
main()
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_the_destination_as_it_was(
    tmp_path: Path, plain: Path, sent: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", SLOW, "convert", "-q", str(plain), str(tmp_path / "dest")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        assert [path.suffix for path in tmp_path.iterdir() if path != plain] == [".partial"]
        process.send_signal(sent)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_nothing_goes_to_standard_output_and_quiet_is_silent(tmp_path: Path, plain: Path) -> None:
    ran = done("convert", str(plain), str(tmp_path / "a"))
    assert ran.out == b""
    assert f"note: wrote {tmp_path / 'a'}: 28 tensors, " in ran.err
    assert "no tokenizer files came with the model" in ran.err
    assert done("convert", str(plain), str(tmp_path / "b"), "-q").err == ""
