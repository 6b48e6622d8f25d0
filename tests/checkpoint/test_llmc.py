"""llm.c's model files: read by their header alone, padded rows left out, damage refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from program import done

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llmc"

MAGIC = 20240326


def order(n_layer: int, width: int, n_positions: int, rows: int) -> list[tuple[str, bool, list]]:
    """Released name, whether it is stored [out, in], and stored shape, in the file's order."""
    parts = [("wte.weight", False, [rows, width]), ("wpe.weight", False, [n_positions, width])]
    for name, shape in (
        ("ln_1.weight", [width]),
        ("ln_1.bias", [width]),
        ("attn.c_attn.weight", [3 * width, width]),
        ("attn.c_attn.bias", [3 * width]),
        ("attn.c_proj.weight", [width, width]),
        ("attn.c_proj.bias", [width]),
        ("ln_2.weight", [width]),
        ("ln_2.bias", [width]),
        ("mlp.c_fc.weight", [4 * width, width]),
        ("mlp.c_fc.bias", [4 * width]),
        ("mlp.c_proj.weight", [width, 4 * width]),
        ("mlp.c_proj.bias", [width]),
    ):
        parts += [(f"h.{layer}.{name}", len(shape) == 2, shape) for layer in range(n_layer)]
    return [*parts, ("ln_f.weight", False, [width]), ("ln_f.bias", False, [width])]


def write(
    path: Path,
    *,
    version: int = 3,
    vocab: int = 50,
    padded: int = 128,
    n_layer: int = 3,
    n_head: int = 2,
    width: int = 8,
    n_positions: int = 12,
) -> dict[str, np.ndarray]:
    """A file of random numbers; returns them in float32 under released names."""
    header = np.zeros(256, "<i4")
    header[:8] = [MAGIC, version, n_positions, vocab, n_layer, n_head, width, padded]
    numbers = np.random.default_rng(0)
    arrays, data = {}, header.tobytes()
    for name, turned, shape in order(n_layer, width, n_positions, padded):
        array = numbers.standard_normal(shape).astype("<f4")
        if version == 5:
            half = (array.view("<u4") >> 16).astype("<u2")
            data, array = data + half.tobytes(), (half.astype("<u4") << 16).view("<f4")
        else:
            data += array.tobytes()
        arrays[name] = array.T if turned else array
    arrays["wte.weight"] = arrays["wte.weight"][:vocab]
    path.write_bytes(data)
    return arrays


def refusal(path: Path) -> str:
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path)
    return str(refused.value)


@pytest.mark.parametrize(("version", "dtype"), [(3, torch.float32), (5, torch.bfloat16)])
@pytest.mark.parametrize("padded", [128, 50])
@pytest.mark.parametrize("name", ["model.bin", "gpt2_124M", "whatever.pt"])
def test_every_tensor_is_found_and_turned_and_its_padding_left_out(
    tmp_path: Path, version: int, dtype: torch.dtype, padded: int, name: str
) -> None:
    arrays = write(tmp_path / name, version=version, padded=padded)
    opened = Checkpoint.open(tmp_path / name)
    assert opened.dialect == "llmc"
    assert opened.matched.tensors.keys() == arrays.keys()
    for released, array in arrays.items():
        tensor = opened.read(released)
        assert tensor.dtype == dtype
        assert np.array_equal(tensor.float().numpy(), array)
    assert (opened.config.vocab_size, opened.config.n_layer, opened.config.n_head) == (50, 3, 2)
    assert opened.config.activation_function == "gelu_new"


def test_params_says_what_was_left_out_and_how_names_were_mapped() -> None:
    text = done("params", str(FIXTURES / "model.bin"), "--tensors").text
    assert "[300, 32]       float32   stored as wte, 84 rows of padding left out\n" in text
    assert "[32, 96]        float32   stored as qkvw[1], turned from [out, in]\n" in text
    assert "h.1.ln_2.bias           [32]            float32   stored as ln2b[1]\n" in text


def test_a_file_shorter_or_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write(path)
    sound = path.read_bytes()
    for length in (4, 100, 1023):
        path.write_bytes(sound[:length])
        assert f"is cut off: {length} bytes are there, 1024 are needed" in refusal(path)
    for data in (sound[:1024], sound[:-1], sound + b"\0"):
        path.write_bytes(data)
        said = refusal(path)
        assert f"is {len(data)} bytes long where its header asks for {len(sound)}" in said


@pytest.mark.parametrize("version", [0, 1, 2, 4, 6, -1])
def test_a_version_that_is_not_read_is_named_with_a_hint(tmp_path: Path, version: int) -> None:
    write(tmp_path / "model.bin", version=version)
    said = refusal(tmp_path / "model.bin")
    assert f"llm.c's version {version}" in said
    assert "write it again with a newer train_gpt2.py" in said


@pytest.mark.parametrize(
    ("place", "number", "said"),
    [
        (2, 0, "n_positions: 0 is not a whole number from 1"),
        (4, 2**31 - 1, "n_layer"),
        (5, 3, "does not divide into n_head 3"),
        (6, -8, "n_embd: -8 is not a whole number from 1"),
        (7, 49, "49 padded rows for a vocabulary of 50"),
        (3, 2**31 - 1, "padded rows for a vocabulary of"),
        (6, 2**20, "where its header asks for"),
    ],
)
def test_a_header_that_contradicts_itself_or_the_file_is_refused(
    tmp_path: Path, place: int, number: int, said: str
) -> None:
    path = tmp_path / "model.bin"
    write(path)
    data = bytearray(path.read_bytes())
    data[4 * place : 4 * place + 4] = number.to_bytes(4, "little", signed=True)
    path.write_bytes(data)
    assert said in refusal(path)


def test_the_debug_state_is_no_model_and_says_what_it_is_for() -> None:
    said = refusal(FIXTURES / "debug_state.bin")
    assert "llm.c's debug state, which `gpt2 verify --reference` reads" in said


def test_its_vocabulary_is_gpt2s_own_where_the_size_is(tmp_path: Path) -> None:
    write(tmp_path / "model.bin", vocab=50257, padded=50304, n_layer=1)
    assert done("tokens", "-m", str(tmp_path / "model.bin"), "hi").text == "5303\n"
    assert done("generate", "-m", str(tmp_path / "model.bin"), "-n", "0", "hi").text == "hi\n"
