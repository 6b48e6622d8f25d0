"""``gpt2 params``: the counts, from the config and the file headers alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import vocabularies
from program import done, refusal, run

from gpt2cli.config import parse_config
from gpt2cli.layout import shapes

FIXTURES = Path(__file__).parents[1] / "fixtures"
HUB = FIXTURES / "hub"

GPT2 = checkpoints.TINY | {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
}


def counted(*args: str) -> dict:
    ran = done("params", *args, "--json")
    assert ran.out.count(b"\n") == 1
    return json.loads(ran.out)


def table(*args: str) -> dict[str, list[str]]:
    """The printed lines by their first words: the number, and the remark."""
    lines = done("params", *args).text.splitlines()[1:]
    return {line[:20].strip(): line[20:].split(maxsplit=1) for line in lines}


def hollow(folder: Path, config: dict) -> str:
    """A checkpoint whose data is a hole: nothing is stored, and reading it gives zeros."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    rows, end = {}, 0
    for name, shape in shapes(parse_config(config, "test").config).items():
        begin, end = end, end + 4 * int(np.prod(shape))
        rows[name] = checkpoints.row("F32", shape, begin, end)
    head = checkpoints.packed(rows)
    path = folder / "model.safetensors"
    path.write_bytes(head)
    os.truncate(path, len(head) + end)
    return str(folder)


# The counts


def test_gpt2_has_the_published_numbers(tmp_path):
    for model in ("gpt2", "124M", "117M", hollow(tmp_path, GPT2)):
        found = counted(model)
        assert found["total"] == 124_439_808
        assert found["embeddings"] == 39_383_808
        assert found["per_block"] == 7_087_872
        assert found["untied_extra"] == 38_597_376
        assert found["n_layer"] == 12
        assert found["kv_bytes_per_token"] == 73_728
        assert found["components"] == {
            "wte": 38_597_376,
            "wpe": 786_432,
            # gain and bias; [768, 2304] and [768, 768]; [768, 3072] and back; all with biases
            "block": {"ln_1": 1536, "attn": 2_362_368, "ln_2": 1536, "mlp": 4_722_432},
            "ln_f": 1536,
        }


@pytest.mark.parametrize(
    ("names", "total", "without_embeddings", "untied", "kv"),
    [
        (("gpt2-medium", "355M", "345M"), 354_823_168, 302_311_424, 406_286_336, 196_608),
        (("gpt2-large", "774M"), 774_030_080, 708_390_400, 838_359_040, 368_640),
        (("gpt2-xl", "1558M"), 1_557_611_200, 1_475_561_600, 1_638_022_400, 614_400),
        # half of gpt2's blocks
        (("distilgpt2",), 81_912_576, 42_528_768, 120_509_952, 36_864),
    ],
)
def test_the_other_released_sizes_have_theirs(names, total, without_embeddings, untied, kv):
    for name in names:
        found = counted(name)
        assert found["total"] == total
        assert found["total"] - found["embeddings"] == without_embeddings
        assert found["total"] + found["untied_extra"] == untied
        assert found["kv_bytes_per_token"] == kv


def test_the_table_says_the_same(tmp_path):
    lines = table("gpt2")
    assert {name: line[0] for name, line in lines.items()} == {
        "wte": "38,597,376",
        "wpe": "786,432",
        "embeddings": "39,383,808",
        "ln_1": "1,536",
        "attn": "2,362,368",
        "ln_2": "1,536",
        "mlp": "4,722,432",
        "a block": "7,087,872",
        "blocks": "85,054,464",  # 12 of them
        "ln_f": "1,536",
        "total": "124,439,808",
        "without embeddings": "85,056,000",
        "untied head": "38,597,376",
        "on disk": "548,105,171",  # as the repository's file listing has it
        "KV cache": "73,728",
    }
    assert lines["blocks"][1] == "× 12"


def test_the_json_has_the_documented_keys():
    found = counted("austen")
    assert found.keys() >= {
        "model",
        "total",
        "embeddings",
        "per_block",
        "n_layer",
        "untied_extra",
        "components",
        "kv_bytes_per_token",
        "config",
    }
    assert found["model"] == "austen"
    assert found["components"].keys() == {"wte", "wpe", "block", "ln_f"}
    assert found["config"].keys() == {"applied", "irrelevant", "unknown"}


def test_an_untied_head_is_counted_and_would_add_nothing():
    found = counted(str(HUB / "variant-untied"))
    assert found["untied_extra"] == 0
    assert found["components"]["lm_head"] == found["components"]["wte"]
    parts = found["components"]
    blocks = found["n_layer"] * found["per_block"]
    assert found["total"] == 2 * parts["wte"] + parts["wpe"] + blocks + parts["ln_f"]
    assert "untied head" not in table(str(HUB / "variant-untied"))


def test_every_field_of_a_config_is_sorted_by_what_became_of_it(tmp_path):
    config = checkpoints.TINY | {"n_inner": None, "resid_pdrop": 0.1, "colour": "green"}
    ran = done("params", str(checkpoints.write(tmp_path, config)), "--json")
    fields = json.loads(ran.out)["config"]
    assert sorted(fields["applied"]) == sorted([*checkpoints.TINY, "n_inner"])
    assert (fields["irrelevant"], fields["unknown"]) == (["resid_pdrop"], ["colour"])
    assert "colour" in ran.err
    assert done("params", "-q", str(tmp_path)).err == ""


def test_bytes_on_disk_are_those_of_the_files_that_hold_the_weights():
    for name in ("hub-released", "hub-float16", "hub-sharded"):
        size = sum(path.stat().st_size for path in (HUB / name).glob("*.safetensors"))
        assert counted(str(HUB / name))["file_bytes"] == size
        assert table(str(HUB / name))["on disk"][0] == f"{size:,}"


# The tensors


def test_every_tensor_is_listed_with_its_shape_stored_type_and_name(tmp_path):
    mask = np.tril(np.ones((1, 1, 16, 16), bool))
    wte = checkpoints.random_arrays()["wte.weight"]
    model = checkpoints.write(
        tmp_path,
        prefix="transformer.",
        dtype="float16",
        extra={
            "transformer.h.0.attn.bias": mask,
            "transformer.h.0.attn.masked_bias": np.float32(-1e4).reshape(()),
            "lm_head.weight": wte.astype(np.float16),
        },
    )
    found = {each["name"]: each for each in counted(str(model), "--tensors")["tensors"]}
    assert len(found) == 2 + 2 * 12 + 2 + 3
    assert found["h.1.attn.c_attn.weight"] == {
        "name": "h.1.attn.c_attn.weight",
        "shape": [24, 72],
        "dtype": "float16",
        "mapping": "stored as transformer.h.1.attn.c_attn.weight",
    }
    assert found["h.0.attn.c_attn.bias"]["shape"] == [72]
    assert found["transformer.h.0.attn.bias"]["dtype"] == "bool"
    for name in ("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"):
        assert found[name]["mapping"].startswith("ignored: ")
        assert "mask" in found[name]["mapping"]
    assert "tied head" in found["lm_head.weight"]["mapping"]

    listing = done("params", str(model), "--tensors").text.partition("\n\n")[2].splitlines()
    assert len(listing) == len(found)
    words = listing[2].split()
    assert words[:4] == ["h.0.ln_1.weight", "[24]", "float16", "stored"]


def test_a_released_size_lists_its_tensors_without_a_file():
    found = counted("gpt2", "--tensors")["tensors"]
    assert len(found) == 2 + 12 * 12 + 2
    assert sum(int(np.prod(each["shape"])) for each in found) == 124_439_808


def test_openais_own_names_and_shapes_are_mapped():
    found = counted(str(FIXTURES / "openai-tf"), "--tensors")
    rows = {each["name"]: each for each in found["tensors"]}
    assert rows["h.0.ln_1.weight"]["mapping"] == "stored as model/h0/ln_1/g"
    assert rows["h.0.attn.c_attn.weight"]["shape"] == [48, 144]
    assert sum(int(np.prod(row["shape"])) for row in rows.values()) == found["total"]


# Padding


def with_tokenizer(folder: Path, size: int) -> Path:
    """The folder, with the files of a tokenizer of that many ids in it."""
    return vocabularies.save(folder, vocabularies.trained(1, size=size))


def test_a_padded_vocabulary_is_told_from_its_tokenizers(tmp_path):
    model = hollow(tmp_path / "a", GPT2 | {"vocab_size": 50304})
    found = counted(model)
    assert found["total"] == 124_475_904
    assert (found["vocab_size"], found["tokenizer_size"]) == (50304, 50257)
    number, remark = table(model)["padding"]
    assert number == "36,096"  # 47 rows of 768
    assert remark == "47 of these rows are past the tokenizer's 50,257"

    with_tokenizer(tmp_path / "b", 300)
    small = checkpoints.write(tmp_path / "b", checkpoints.TINY | {"vocab_size": 320})
    found = counted(str(small))
    assert (found["vocab_size"], found["tokenizer_size"]) == (320, 300)
    assert table(str(small))["padding"][0] == "480"  # 20 rows of 24


def test_no_padding_is_told_of_where_there_is_none_or_nobody_knows(tmp_path):
    with_tokenizer(tmp_path / "whole", 300)
    whole = checkpoints.write(tmp_path / "whole", checkpoints.TINY | {"vocab_size": 300})
    nothing = checkpoints.write(tmp_path / "nothing")
    other = checkpoints.write(tmp_path / "other", checkpoints.TINY | {"vocab_size": 50304})
    (other / "vocab.txt").write_text("[PAD]\n")
    small = with_tokenizer(checkpoints.write(tmp_path / "small"), 300)
    sizes = {"gpt2": 50257, "austen": 4096, str(whole): 300}
    for model in (*sizes, *map(str, (nothing, other, small))):
        assert counted(model)["tokenizer_size"] == sizes.get(model)
        assert "padding" not in table(model)


# What it takes


def test_a_data_section_that_is_a_hole_is_never_read(tmp_path):
    xl = GPT2 | {"n_embd": 1600, "n_layer": 48, "n_head": 25}
    model = hollow(tmp_path, xl)
    stored = (tmp_path / "model.safetensors").stat()
    assert stored.st_blocks * 512 < 2**20 < stored.st_size
    assert counted(model)["total"] == 1_557_611_200


def test_a_released_size_needs_no_network(monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("a socket was opened"))
    assert counted("distilgpt2@main")["n_layer"] == 6


def test_torch_is_not_loaded(tmp_path):
    model = hollow(tmp_path, GPT2 | {"vocab_size": 50304})
    program = (
        "import sys; from gpt2cli.cli.params import command\n"
        "command(standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    for args in ([model], [model, "--tensors"], ["gpt2"]):
        ran = subprocess.run(
            [sys.executable, "-c", program, *args], capture_output=True, check=True
        )
        assert ran.stdout.endswith(b"\n[]\n")


def test_one_model_is_named_in_one_way(monkeypatch):
    ran = run("params", "gpt2", "-m", "austen")
    assert ran.code == 2
    assert "--model" in ran.err
    monkeypatch.setenv("GPT2_MODEL", "austen")
    assert counted()["model"] == counted("-m", "austen")["model"] == "austen"
    assert counted("gpt2")["model"] == "gpt2"
    monkeypatch.delenv("GPT2_MODEL")
    assert counted()["model"] == "gpt2"


def test_what_is_no_checkpoint_is_one_line(tmp_path):
    assert "no checkpoint" in refusal("params", str(tmp_path))
    assert "./nothing" in refusal("params", "./nothing")


def test_a_path_that_is_no_utf8_is_shown_with_escapes(tmp_path):
    model = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    checkpoints.write(Path(model))
    assert counted(model)["model"] == model
    assert done("params", model).text.splitlines()[0].endswith(r"caf\udce9")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "weights.bin"])
def test_a_git_lfs_pointer_is_said_to_be_one(tmp_path: Path, name: str) -> None:
    folder = checkpoints.write(tmp_path / "model")
    path = folder / name
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    model = path if name == "weights.bin" else folder
    said = (
        f"Error: {path} is a Git LFS pointer, not the file itself; run git lfs pull where it lies\n"
    )
    assert refusal("params", str(model)) == said


def test_a_folder_without_a_checkpoint_gets_a_next_step(tmp_path: Path) -> None:
    said = refusal("params", str(tmp_path))
    assert said.endswith("; name the folder of the model, or its file\n")


def test_the_model_is_called_what_the_user_called_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.write(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    assert done("params", "./gpt2").text.startswith("./gpt2\n")
    assert json.loads(done("params", "./gpt2/", "--json").out)["model"] == "./gpt2/"
