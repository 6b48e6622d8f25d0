"""Files made to run code, to fill the memory, or to take forever: refused at once, by name."""

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import checkpoints as hub
import numpy as np
import pytest
import tf_writer as tf
import torch
from fuzz.bounds import bounded
from vocabularies import save, trained

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.checkpoint.index import shard_tensors
from gpt2cli.checkpoint.stored import StoredTensor
from gpt2cli.errors import GPT2Error
from gpt2cli.tokenizer import load_tokenizer

MANY = 2**60


def refusal(path: Path, read: Callable[..., object] = Checkpoint.open, *more: object) -> str:
    """The one line with which a file is refused within its bounds."""
    with pytest.raises(GPT2Error) as refused, bounded():
        read(path, *more)
    assert str(refused.value).isprintable()
    assert str(path.parent) in str(refused.value)
    return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(hub.TINY))
    return tmp_path


@pytest.fixture
def weights(folder: Path) -> Path:
    return folder / "pytorch_model.bin"


def state() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in hub.random_arrays().items()}


# Pickles


def zipped(path: Path, data: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    """An archive as torch.save writes it, with `data` as its pickle."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("m/data.pkl", data)
    return path


def call(module: str, name: str, argument: bytes) -> bytes:
    """Opcodes that call a function with one argument."""
    return f"c{module}\n{name}\n".encode() + argument + b"\x85R"


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little")


def laughs() -> bytes:
    """Opcodes of a tuple of 2**70 objects, which take no memory and forever to hash."""
    value: tuple = ()
    for _ in range(70):
        value = (value, value)
    return pickle.dumps(value, protocol=2)[2:-1]


def test_a_pickle_that_is_small_only_while_it_is_compressed_is_not_unpacked(weights: Path) -> None:
    zipped(weights, b"\x80\x02" + b"}" * 150_000_000, zipfile.ZIP_DEFLATED)
    assert weights.stat().st_size < 400_000
    assert "damaged" in refusal(weights)


def test_compressed_numbers_are_never_taken_for_numbers(weights: Path) -> None:
    sound = weights.with_name("sound.bin")
    torch.save(state(), sound)
    with (
        zipfile.ZipFile(sound) as plain,
        zipfile.ZipFile(weights, "w", zipfile.ZIP_DEFLATED) as zip_,
    ):
        for name in plain.namelist():
            stored = zipfile.ZIP_DEFLATED if "/data/" in name else zipfile.ZIP_STORED
            zip_.writestr(name, plain.read(name), stored)
    assert "data/0 is compressed" in refusal(weights)


@pytest.mark.parametrize(
    ("opcodes", "said"),
    [
        (call("builtins", "bytearray", number(3 << 30)), "asks to run builtins.bytearray"),
        (call("torch.storage", "UntypedStorage", number(1 << 45)), "damaged"),
        (b"}" + laughs() + b"K\1s", "nothing of it was run"),
        (b"(" * 2_000_000, "nothing of it was run"),
        (b"}r\0\0\0\4", "nothing of it was run"),
        (b"\x8b" + (1 << 20).to_bytes(4, "little") + b"\x7f" * (1 << 20), "nothing of it was run"),
    ],
    ids=["bytearray", "storage", "laughs", "marks", "memo", "digits"],
)
def test_a_short_pickle_of_something_huge_is_refused(
    weights: Path, opcodes: bytes, said: str
) -> None:
    zipped(weights, b"\x80\x02" + opcodes + b".")
    assert said in refusal(weights)


@pytest.mark.parametrize(
    "stoi",
    [
        b"}" + laughs() + b"K\1s",
        b"}r\0\0\0\4",
        b"}" + text("a") + b"\x8b" + (99_999).to_bytes(4, "little") + b"\x7f" * 99_999 + b"s",
        call("posix", "system", text("false")),
        b"cposix\\o\nsystem\n",
        b"S'\\o'\n",
    ],
    ids=["laughs", "memo", "digits", "call", "escape in a name", "escape in a text"],
)
def test_a_table_of_characters_that_grows_beyond_measure_is_refused(
    folder: Path, stoi: bytes
) -> None:
    path = folder / "meta.pkl"
    path.write_bytes(b"\x80\x02}" + text("stoi") + stoi + b"s.")
    assert "nothing of it was run" in refusal(path, load_tokenizer, None)


@pytest.mark.parametrize("where", ["", "}", "(", "X\1\0\0\0a"])
def test_a_call_inside_a_persistent_id_never_runs(weights: Path, where: str) -> None:
    witness = weights.parent / "ran"
    evil = call("posix", "system", text(f"touch {witness}"))
    zipped(weights, b"\x80\x02" + where.encode("latin-1") + evil + b"Q.")
    assert "asks to run posix.system" in refusal(weights)
    assert not witness.exists()


@pytest.mark.parametrize("zip_form", [True, False])
def test_few_numbers_that_stand_for_many_are_refused(weights: Path, zip_form: bool) -> None:
    rows = 2**31 - 1
    config = hub.TINY | {"vocab_size": rows}
    weights.with_name("config.json").write_text(json.dumps(config))
    wide = state() | {"wte.weight": torch.zeros(1, 24).expand(rows, 24)}
    torch.save(wide, weights, _use_new_zipfile_serialization=zip_form)
    assert "its tensors share numbers" in refusal(weights)


def test_tensors_without_numbers_in_the_file_are_refused(weights: Path) -> None:
    torch.save({name: tensor.to("meta") for name, tensor in state().items()}, weights)
    assert "wte.weight has no numbers in the file" in refusal(weights)


# Safetensors


@pytest.mark.parametrize(
    ("shape", "offsets", "said"),
    [
        ("[4]", f"[0, {'9' * 4300}]", "too large"),
        (f"[{', '.join(['9' * 4300] * 1000)}]", "[0, 4]", "too large"),
        (f"[{', '.join(['2'] * 99_999)}]", "[0, 4]", "dimensions"),
        ("[4]", "[" * 99_999, "damaged header"),
        ("[4]", '[0, 4], "shape": [1]', "stands twice"),
    ],
    ids=["digits", "product", "dimensions", "depth", "doubles"],
)
def test_a_header_of_numbers_without_measure_is_refused(
    folder: Path, shape: str, offsets: str, said: str
) -> None:
    row = f'"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}'
    header = f'{{"w": {{{row}}}}}'.encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert said in refusal(path)


def test_many_names_of_a_shard_are_looked_up_at_once(tmp_path: Path) -> None:
    names = [f"tensor {n}" for n in range(200_000)]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "a")}))
    (tmp_path / "a").touch()
    there = [StoredTensor(name, (1,), "float32", 4, tmp_path / "a", pytest.fail) for name in names]
    with bounded():
        assert shard_tensors(index, lambda _: there) == there


# Others


def packed(kind: int, count: int, rest: bytes = b"") -> bytes:
    """One array of a GGUF file's metadata, which claims to have `count` members."""
    return struct.pack("<Q1sIIQ", 1, b"a", 9, kind, count) + rest


@pytest.mark.parametrize(
    ("counts", "rest"),
    [
        ((0, 1), packed(0, MANY)),
        ((0, 1), packed(8, MANY)),
        ((0, 1), packed(9, MANY)),
        ((0, MANY), b""),
        ((MANY, 0), b""),
        ((1, 0), struct.pack("<QI", 0, 2**32 - 1)),
        ((1, 0), struct.pack("<QIQQIQ", 0, 2, 2**63, 2**63, 0, 0)),
    ],
    ids=["bytes", "texts", "arrays", "values", "tensors", "dimensions", "shape"],
)
def test_a_gguf_file_is_believed_no_further_than_it_goes(
    folder: Path, counts: tuple[int, int], rest: bytes
) -> None:
    path = folder / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + rest)
    assert "is cut off" in refusal(path)


def test_keys_that_share_a_long_beginning_do_not_unfold(folder: Path) -> None:
    length = 400_000
    body = tf.varint(0) + tf.varint(length) + tf.varint(0) + b"k" * length
    for n in range(50_000):
        body += tf.varint(length + n) + tf.varint(1) + tf.varint(0) + b"a"
    write_table(folder, body + bytes(4) + (1).to_bytes(4, "little"), handles=1)
    assert "its keys share too much" in refusal(folder / "m.index")


def test_a_block_that_is_named_again_and_again_is_read_once(folder: Path) -> None:
    restarts = 500_000
    write_table(folder, bytes(4 * restarts) + restarts.to_bytes(4, "little"), handles=20_000)
    assert "its blocks overlap" in refusal(folder / "m.index")


def write_table(folder: Path, body: bytes, handles: int) -> None:
    """An index whose one block of rows is named `handles` times; every checksum fits."""
    handle = tf.varint(0) + tf.varint(len(body))
    index = tf.block([(b"%06d" % n, handle) for n in range(handles)], restart_every=1)
    blocks = [
        block + b"\0" + tf.crc(block + b"\0").to_bytes(4, "little") for block in (body, index)
    ]
    footer = bytes(2) + tf.varint(len(blocks[0])) + tf.varint(len(index))
    (folder / "m.index").write_bytes(b"".join(blocks) + footer.ljust(40, b"\0") + tf.MAGIC)
    (folder / "m.data-00000-of-00001").touch()


def test_variables_of_a_tf_checkpoint_do_not_overlap(folder: Path) -> None:
    entry = tf.entry(tf.FLOAT, (4,), bytes(16))
    rows = {b"": tf.header(), b"a": entry, b"b": tf.entry(tf.FLOAT, (4,), bytes(16), offset=8)}
    (folder / "m.index").write_bytes(tf.table(rows))
    (folder / "m.data-00000-of-00001").write_bytes(bytes(24))
    (folder / "hparams.json").write_text(json.dumps(hub.TINY))
    assert "b overlaps another variable" in refusal(folder / "m.index")


def test_a_header_of_llmc_alone_makes_no_tensors(folder: Path) -> None:
    header = np.zeros(256, "<i4")
    header[:8] = [20240326, 3, 1024, 50257, 4096, 1, 2**20, 50304]
    (folder / "m.bin").write_bytes(header.tobytes())
    assert "where its header asks for" in refusal(folder / "m.bin")


# What is no file of its own


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("config.json", "model.safetensors"),
        ("generation_config.json", "model.safetensors"),
        ("model.safetensors", ""),
        ("pytorch_model.bin", "pytorch_model.bin"),
        ("m.index", "m.index"),
        ("m", "m"),
    ],
)
def test_a_pipe_is_not_waited_for(folder: Path, name: str, opened: str) -> None:
    hub.save(folder / "model.safetensors", hub.random_arrays())
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert "is no file" in refusal(folder / opened if opened else folder)


def test_a_link_may_lead_out_of_the_folder_and_what_is_there_is_no_more_trusted(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    hub.save(elsewhere / "blob", hub.random_arrays())
    link = folder / "model.safetensors"
    link.symlink_to(elsewhere / "blob")
    assert torch.equal(Checkpoint.open(folder).read("wte.weight"), state()["wte.weight"])
    (elsewhere / "blob").write_text("root:x:0:0:root:/root:/bin/sh\n")
    assert "is no safetensors file" in refusal(link)


# Texts


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("vocab.json", "{}", "holds no token"),
        ("vocab.json", f'{{"a": {"9" * 4000}}}', "the id of token 'a'"),
        ("vocab.json", '{"a": 1, "a": 2}', "stands twice"),
        ("special_tokens_map.json", '{"additional_special_tokens": 5}', "is no list"),
        ("added_tokens.json", f'{{"<a>": {"[" * 45 + "]" * 45}}}', "the id of added token"),
        ("added_tokens.json", f'{{"<a>": {"[" * 900 + "]" * 900}}}', "nested too deep"),
    ],
    ids=range(6),
)
def test_a_tokenizer_file_of_hostile_values_is_refused(
    folder: Path, name: str, data: str, said: str
) -> None:
    trained(1).model.save(str(folder))
    (folder / name).write_text(data)
    assert said in refusal(folder / name, lambda path: load_tokenizer(path.parent, None))


def test_a_sequence_within_a_sequence_ends(folder: Path) -> None:
    path = save(folder, trained(1)) / "tokenizer.json"
    table = json.loads(path.read_text())
    for depth, said in ((20, "normalizer Lowercase"), (200, "nested too deep")):
        part: dict = {"type": "Lowercase"}
        for _ in range(depth):
            part = {"type": "Sequence", "normalizers": [part]}
        path.write_text(json.dumps(table | {"normalizer": part}))
        assert said in refusal(path, lambda path: load_tokenizer(path.parent, None))


def test_an_error_is_one_short_line_whatever_it_quotes() -> None:
    said = str(GPT2Error("a\nb\x1b[2J" + "c" * 1_000_000))
    assert said.startswith("a b\\x1b[2Jccc")
    assert len(said) < 5000
