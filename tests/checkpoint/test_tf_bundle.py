"""OpenAI's TensorFlow checkpoint: what is read, and what is refused by name."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tf_writer as tf
import torch

from gpt2cli.checkpoint.stored import Matched, Skipped, StoredTensor, match
from gpt2cli.checkpoint.tf_bundle import find_prefix, open_bundle, stored_tensors
from gpt2cli.checkpoint.tf_names import tf_name
from gpt2cli.errors import GPT2Error

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLAIN = FIXTURES / "openai-tf"
FINETUNED = FIXTURES / "openai-tf-finetuned"


def matched(prefix: Path) -> Matched:
    source = open_bundle(prefix)
    return match(source.stored, source.rule, source.parsed.config, str(prefix))


def refusal(prefix: Path) -> str:
    """The one line with which a checkpoint is refused when it is opened."""
    with pytest.raises(GPT2Error) as refused:
        stored_tensors(prefix)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the plain fixture that may be damaged."""
    return Path(shutil.copytree(PLAIN, tmp_path / "copy"))


def index_of(tmp_path: Path, rows: dict[bytes, bytes], **options: int) -> Path:
    """A checkpoint of hand-made rows with one empty shard."""
    (tmp_path / "m.index").write_bytes(tf.table(rows, **options))
    (tmp_path / "m.data-00000-of-00001").write_bytes(b"")
    return tmp_path / "m"


# What is read


def test_every_tensor_of_the_fixture_is_found_and_they_fill_its_data_file() -> None:
    found = matched(PLAIN / "model.ckpt")
    stored = stored_tensors(PLAIN / "model.ckpt")
    assert len(found.tensors) == 2 + 3 * 12 + 2
    assert not found.skipped
    data = b"".join(tensor.read().numpy().tobytes() for tensor in stored)
    assert data == (PLAIN / "model.ckpt.data-00000-of-00001").read_bytes()


def test_values_and_orientation_are_those_that_lie_at_the_offsets_of_the_file() -> None:
    tensors = matched(PLAIN / "model.ckpt").tensors
    raw = np.fromfile(PLAIN / "model.ckpt.data-00000-of-00001", "<f4")
    c_attn = raw[576 // 4 :][: 48 * 144].reshape(48, 144)  # after c_attn/b, the first variable
    assert np.array_equal(tensors["h.0.attn.c_attn.weight"].read().numpy(), c_attn)
    assert np.array_equal(tensors["h.0.attn.c_attn.bias"].read().numpy(), raw[:144])
    wte = raw[-320 * 48 :].reshape(320, 48)  # the last variable in the order of names
    assert np.array_equal(tensors["wte.weight"].read().numpy(), wte)


def test_optimizer_slots_and_counters_of_a_fine_tuned_checkpoint_are_skipped() -> None:
    found = matched(FINETUNED / "model.ckpt")
    assert len(found.tensors) == 2 + 2 * 12 + 2
    reasons = {tensor.name: reason for tensor, reason in found.skipped}
    assert reasons["model/wte/Adam"] == reasons["model/wte/Adam_1"] == "optimizer slot"
    assert reasons["global_step"] == "counter"


def test_the_config_comes_from_hparams_json() -> None:
    source = open_bundle(FINETUNED / "model.ckpt")
    config = source.parsed.config
    assert (config.vocab_size, config.n_positions, config.n_embd) == (300, 32, 32)
    assert (config.n_layer, config.n_head) == (2, 2)
    assert (config.activation_function, config.layer_norm_epsilon) == ("gelu_new", 1e-5)
    assert config.tie_word_embeddings
    assert config.eos_token_id == ()
    assert source.file_bytes == 433_168  # the data shard alone


def test_blocks_shards_types_and_prefix_compression_read_back(tmp_path: Path) -> None:
    numbers = torch.arange(-30, 30, dtype=torch.float32) / 8
    variables = {
        f"model/h{layer}/{part}": (tf.FLOAT, (60,), (numbers * (layer + 1)).numpy().tobytes())
        for layer in range(12)
        for part in ("ln_1/g", "ln_1/b", "ln_2/g")
    }
    half, brain = numbers.to(torch.float16), numbers.to(torch.bfloat16)
    variables["model/wpe"] = (tf.HALF, (3, 20), half.numpy().tobytes())
    variables["model/wte"] = (tf.BFLOAT16, (20, 3), brain.view(torch.int16).numpy().tobytes())
    variables["empty"] = (tf.FLOAT, (0, 5), b"")
    tf.write(tmp_path / "m", variables, shards=3, rows_a_block=5)
    read = {tensor.name: tensor.read() for tensor in stored_tensors(tmp_path / "m")}
    assert read.keys() == variables.keys()
    assert torch.equal(read["model/h11/ln_2/g"], numbers * 12)
    assert torch.equal(read["model/wpe"], half.view(3, 20))
    assert torch.equal(read["model/wte"], brain.view(20, 3))
    assert read["empty"].shape == (0, 5)


def test_aligned_tensors_are_mapped_and_unaligned_ones_copied_to_aligned_memory(
    tmp_path: Path,
) -> None:
    raw = np.arange(64, dtype="<f4").tobytes()
    variables = {"a": (tf.FLOAT, (64,), raw), "b": (6, (1,), b"\1"), "c": (tf.FLOAT, (64,), raw)}
    tf.write(tmp_path / "m", variables)
    a, _, c = stored_tensors(tmp_path / "m")
    first, again, copied = a.read(), a.read(), c.read()
    assert first.data_ptr() == again.data_ptr()
    assert copied.data_ptr() % 64 == 0
    assert torch.equal(first, copied)


def test_a_checkpoint_replaced_by_renaming_keeps_its_old_numbers(copy: Path) -> None:
    wte = matched(copy / "model.ckpt").tensors["wte.weight"]
    before = wte.read().clone()
    other = copy / "other"
    other.write_bytes(b"")
    other.replace(wte.file)
    assert torch.equal(wte.read(), before)


# Which checkpoint of a folder


def rename(folder: Path, name: str) -> None:
    for path in folder.glob("model.ckpt.*"):
        path.rename(folder / path.name.replace("model.ckpt", name))


def test_the_fixture_renamed_opens_with_and_without_its_checkpoint_file(copy: Path) -> None:
    rename(copy, "model-1000")
    (copy / "checkpoint").write_text('model_checkpoint_path: "model-1000"\n')
    assert find_prefix(copy) == copy / "model-1000"
    (copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    assert find_prefix(copy) == copy / "model-1000"
    (copy / "checkpoint").unlink()
    assert find_prefix(copy) == copy / "model-1000"
    assert len(matched(copy / "model-1000").tensors) == 40


def test_several_checkpoints_are_listed_unless_one_is_named(copy: Path) -> None:
    for name in ("model-1000", "model-2000"):
        for suffix in ("index", "data-00000-of-00001"):
            (copy / f"{name}.{suffix}").write_bytes(b"")
    assert find_prefix(copy) == copy / "model.ckpt"
    (copy / "checkpoint").write_text('model_checkpoint_path: "model-3000"\n')
    with pytest.raises(GPT2Error, match=r"model-1000, model-2000, model\.ckpt.*names model-3000"):
        find_prefix(copy)
    (copy / "checkpoint").unlink()
    with pytest.raises(GPT2Error, match=r"model-1000, model-2000, model\.ckpt"):
        find_prefix(copy)


@pytest.mark.parametrize(
    "line",
    [
        'model_checkpoint_path: "model-2000"',
        "model_checkpoint_path:'model-2000'",
        'model_checkpoint_path: "/home/someone/runs/model-2000"',
        r'model_checkpoint_path: "C:\\runs\\model-2000"',
        r'model_checkpoint_path: "model\0552000"',
        r'model_checkpoint_path: "mod\x65l-2000"',
        'all_model_checkpoint_paths: "model.ckpt"\nmodel_checkpoint_path: "model-2000"',
    ],
)
def test_the_checkpoint_file_may_spell_its_path_in_many_ways(copy: Path, line: str) -> None:
    for name in ("model-2000.index", "model-2000.data-00000-of-00001"):
        (copy / name).write_bytes(b"")
    (copy / "checkpoint").write_text(line + "\n")
    assert find_prefix(copy) == copy / "model-2000"


def test_a_checkpoint_file_that_points_outside_its_folder_is_refused(copy: Path) -> None:
    (copy / "checkpoint").write_text('model_checkpoint_path: "../other/model.ckpt"\n')
    with pytest.raises(GPT2Error, match="outside its folder"):
        find_prefix(copy)


def test_a_folder_named_checkpoint_and_a_file_of_other_text_name_nothing(copy: Path) -> None:
    (copy / "checkpoint").write_bytes(b"\xff\xfe nothing here")
    assert find_prefix(copy) == copy / "model.ckpt"
    (copy / "checkpoint").unlink()
    (copy / "checkpoint").mkdir()
    assert find_prefix(copy) == copy / "model.ckpt"


def test_a_folder_without_an_index_holds_no_checkpoint(tmp_path: Path) -> None:
    assert find_prefix(tmp_path) is None


def test_missing_hparams_and_shards_are_named(copy: Path) -> None:
    (copy / "hparams.json").unlink()
    with pytest.raises(GPT2Error, match=r"hparams\.json is missing"):
        open_bundle(copy / "model.ckpt")
    (copy / "model.ckpt.data-00000-of-00001").unlink()
    assert "model.ckpt.data-00000-of-00001 is missing" in refusal(copy / "model.ckpt")
    assert "no-such.index: No such file" in refusal(copy / "no-such")


# Names


def named(name: str, shape: tuple[int, ...] = (3,)) -> StoredTensor:
    return StoredTensor(name, shape, "float32", 12, Path("m"), lambda: torch.zeros(shape))


RULE = partial(tf_name, variables={"model/wte", "model/h0/ln_1/g", "model/h0/attn/c_attn/w"})


@pytest.mark.parametrize(
    ("name", "released"),
    [
        ("model/wte", "wte.weight"),
        ("model/wpe", "wpe.weight"),
        ("model/ln_f/b", "ln_f.bias"),
        ("model/h0/ln_1/g", "h.0.ln_1.weight"),
        ("model/h11/attn/c_attn/w", "h.11.attn.c_attn.weight"),
        ("model/h47/mlp/c_proj/b", "h.47.mlp.c_proj.bias"),
    ],
)
def test_released_names_of_variables(name: str, released: str) -> None:
    assert RULE(named(name)) == released


@pytest.mark.parametrize(
    "name",
    [
        "model/wte/Adam",
        "model/wte/Adam_1",
        "model/wte/Adam_3",
        "model/h0/ln_1/g/Momentum",
        "model/h0/attn/c_attn/w/adafactor_vr",
        "model/wte/adam_m",
        "model/wte/ExponentialMovingAverage",
        "training/model/wte/Adam",
        "a/model/b/model/wte/RMSProp_1",
    ],
)
def test_slots_of_stored_variables_are_skipped(name: str) -> None:
    assert RULE(named(name)) == Skipped("optimizer slot")


@pytest.mark.parametrize(
    "name", ["global_step", "beta1_power", "beta2_power_1", "train/global_step"]
)
def test_counters_are_skipped_when_they_are_one_number(name: str) -> None:
    assert RULE(named(name, ())) == Skipped("counter")
    assert RULE(named(name, (1,))) == Skipped("counter")
    assert RULE(named(name, (768,))) is None


@pytest.mark.parametrize(
    "name",
    [
        "model/wte/Adam/Adam",
        "model/wte/extra",
        "model/wte/w",
        "model/h0/ln_3/g",
        "model/h00/ln_1/g",
        "model/h0/attn/c_attn/g",
        "model/h0/ln_1/w",
        "model/h9/ln_1/g/Adam",
        "model/lora/Adam",
        "other/wte",
        "other/model/wte",
        "othermodel/wte/Adam",
        "Adam",
        "model",
        "",
        "step",
        "_CHECKPOINTABLE_OBJECT_GRAPH",
    ],
)
def test_everything_else_is_unknown(name: str) -> None:
    assert RULE(named(name, ())) is None


def test_an_unknown_variable_is_unexpected(tmp_path: Path) -> None:
    shutil.copy(PLAIN / "hparams.json", tmp_path)
    data = {t.name: (tf.FLOAT, t.shape, t.read().numpy().tobytes()) for t in fixture_tensors()}
    tf.write(tmp_path / "m", data)
    assert len(matched(tmp_path / "m").tensors) == 40
    tf.write(tmp_path / "m", data | {"model/h0/adapter/w": (tf.FLOAT, (1,), bytes(4))})
    with pytest.raises(GPT2Error, match=r"1 unexpected \(model/h0/adapter/w\)"):
        matched(tmp_path / "m")
    del data["model/ln_f/g"]
    tf.write(tmp_path / "m", data | {"model/wpe": (tf.DOUBLE, (64, 48), bytes(64 * 48 * 8))})
    with pytest.raises(GPT2Error, match=r"missing \(ln_f.weight\).*model/wpe is float64"):
        matched(tmp_path / "m")


def fixture_tensors() -> list[StoredTensor]:
    return stored_tensors(PLAIN / "model.ckpt")


# Damage


def test_every_flipped_bit_of_the_index_is_refused_or_changes_nothing(copy: Path) -> None:
    index = copy / "model.ckpt.index"
    sound = index.read_bytes()
    expected = [
        (t.name, t.shape, t.dtype, t.nbytes, t.file) for t in stored_tensors(copy / "model.ckpt")
    ]
    harmless = 0
    for place in range(len(sound)):
        index.write_bytes(
            sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :]
        )
        try:
            stored = stored_tensors(copy / "model.ckpt")
        except GPT2Error:
            continue
        assert [(t.name, t.shape, t.dtype, t.nbytes, t.file) for t in stored] == expected
        harmless += 1
    # the empty block of filters with its trailer, its handle, and the footer's padding
    assert harmless <= 8 + 5 + 40


def test_an_index_cut_off_at_any_length_is_refused(copy: Path) -> None:
    index = copy / "model.ckpt.index"
    sound = index.read_bytes()
    for length in range(len(sound)):
        index.write_bytes(sound[:length])
        assert "is no TensorFlow index, or is cut off" in refusal(copy / "model.ckpt")


def test_any_row_under_a_right_checksum_is_read_or_refused(tmp_path: Path) -> None:
    row = tf.entry(tf.FLOAT, (1, 2, 3), bytes(24), offset=8, more=tf.bytes_field(9, b"new"))
    for place in range(len(row)):
        for bit in range(8):
            bad = bytearray(row)
            bad[place] ^= 1 << bit
            prefix = index_of(tmp_path, {b"": tf.header(), b"model/x": bytes(bad)})
            (tmp_path / "m.data-00000-of-00001").write_bytes(bytes(64))
            try:
                tensors = stored_tensors(prefix)
            except GPT2Error:
                continue
            assert [tensor.name for tensor in tensors] == ["model/x"]


def test_a_flipped_byte_of_the_data_is_found_when_its_tensor_is_read(copy: Path) -> None:
    path = copy / "model.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    tensors = matched(copy / "model.ckpt").tensors
    tensors["wpe.weight"].read()
    for _ in range(2):
        with pytest.raises(GPT2Error, match=r"data-00000-of-00001: model/wte .*CRC-32C"):
            tensors["wte.weight"].read()


def test_a_short_shard_is_named(copy: Path) -> None:
    path = copy / "model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1])
    assert f"{path} is cut off" in refusal(copy / "model.ckpt")
    path.write_bytes(b"")
    assert f"{path} is cut off" in refusal(copy / "model.ckpt")


def test_another_file_called_index_is_no_tensorflow_index(tmp_path: Path) -> None:
    (tmp_path / "m.index").write_text(json.dumps({"weight_map": {}}) * 20)
    assert "is no TensorFlow index" in refusal(tmp_path / "m")
    assert "has no header" in refusal(index_of(tmp_path, {b"a": b""}))


SOUND = tf.entry(tf.FLOAT, (), b"")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({b"": tf.header(endianness=1)}, "big-endian"),
        ({b"": tf.header(min_consumer=2)}, "version 2"),
        ({b"": tf.header(shards=0)}, "names 0 shards"),
        ({b"": tf.header(shards=-1)}, "names -1 shards"),
        ({b"": tf.header(shards=2)}, "m.data-00000-of-00002 is missing"),
        ({b"": b"\x08"}, "its header is damaged"),
        ({b"": tf.header(), b"x": b"\x08\xff"}, "the row of x is damaged (a number is cut off)"),
        ({b"": tf.header(), b"x": b"\x08" + b"\xff" * 11}, "a number does not end"),
        ({b"": tf.header(), b"x": b"\x08" + b"\xff" * 9 + b"\x7f"}, "longer than 64 bits"),
        ({b"": tf.header(), b"x": b"\x12\x05ab"}, "a field is cut off"),
        ({b"": tf.header(), b"x": b"\x0b"}, "wire type 3"),
        ({b"": tf.header(), b"x": tf.number_field(2, 1)}, "where a message is due"),
        ({b"": tf.header(), b"x": tf.bytes_field(1, b"")}, "where a number is due"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (2,), b"1234")}, "4 bytes are no [2]"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (-1,), b"")}, "is negative"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (2**62, 2**62))}, "0 bytes are no"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (), size=-4)}, "is negative"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (0,), offset=-1)}, "is negative"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (0,), shard=1)}, "shard 1, past the last"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (0,), offset=1)}, "is cut off"),
        ({b"": tf.header(), b"x": tf.entry(tf.FLOAT, (1,), b"1234")}, "is cut off"),
    ],
)
def test_unsound_rows_are_refused_by_name(
    tmp_path: Path, rows: dict[bytes, bytes], said: str
) -> None:
    assert said in refusal(index_of(tmp_path, rows))


def test_an_unknown_rank_is_refused(tmp_path: Path) -> None:
    row = tf.number_field(1, tf.FLOAT) + tf.bytes_field(2, tf.number_field(3, 1))
    assert "shape is unknown" in refusal(index_of(tmp_path, {b"": tf.header(), b"x": row}))


def test_compressed_blocks_are_refused_by_name(tmp_path: Path) -> None:
    assert "compressed (snappy)" in refusal(index_of(tmp_path, {b"": tf.header()}, compression=1))


def test_a_sliced_variable_is_refused_where_it_is_needed_and_skipped_as_a_slot(
    tmp_path: Path,
) -> None:
    sliced = tf.entry(tf.FLOAT, (8, 2), more=tf.bytes_field(7, b""))
    rows = {b"": tf.header(), b"\0model/wte\0\1": tf.entry(tf.FLOAT, (0,)), b"model/wte": sliced}
    assert "model/wte is stored in slices" in refusal(index_of(tmp_path, rows))
    rows = {b"": tf.header(), b"model/wte": tf.entry(tf.FLOAT, (0,)), b"model/wte/Adam": sliced}
    wte, slot = stored_tensors(index_of(tmp_path, rows))
    assert tf_name(slot, {wte.name}) == Skipped("optimizer slot")
    with pytest.raises(GPT2Error, match="model/wte/Adam is stored in slices"):
        slot.read()


def test_a_type_that_is_no_number_can_be_listed_and_not_read(tmp_path: Path) -> None:
    rows = {b"": tf.header(), b"graph": tf.entry(tf.STRING, ())}
    (graph,) = stored_tensors(index_of(tmp_path, rows))
    assert graph.dtype == "TF type 7"
    with pytest.raises(GPT2Error, match="graph is stored TF type 7"):
        graph.read()


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0\2\0\0\0",
        b"\5\1\0a" + bytes(4) + b"\1\0\0\0",
        b"\0\7\0a" + bytes(4) + b"\1\0\0\0",
        b"\0\1\x80" + bytes(4) + b"\1\0\0\0",
    ],
)
def test_a_block_that_contradicts_itself_is_refused(tmp_path: Path, block: bytes) -> None:
    def sealed(data: bytes) -> bytes:
        return data + b"\0" + tf.crc(data + b"\0").to_bytes(4, "little")

    footer = (bytes(2) + b"\0" + tf.varint(len(block))).ljust(40, b"\0") + tf.MAGIC
    (tmp_path / "m.index").write_bytes(sealed(block) + footer)
    assert "is damaged" in refusal(tmp_path / "m")


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    twice = tf.block([(b"", tf.header()), (b"a", SOUND), (b"a", SOUND)])
    data = twice + b"\0" + tf.crc(twice + b"\0").to_bytes(4, "little")
    handle = tf.varint(0) + tf.varint(len(twice))
    index = tf.block([(b"a", handle)])
    data += index + b"\0" + tf.crc(index + b"\0").to_bytes(4, "little")
    place = tf.varint(len(twice) + 5) + tf.varint(len(index))
    (tmp_path / "m.index").write_bytes(data + (bytes(2) + place).ljust(40, b"\0") + tf.MAGIC)
    assert "out of order" in refusal(tmp_path / "m")
