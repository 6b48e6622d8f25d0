"""GGUF files of architecture gpt2: names, types, metadata and tokenizer, as llama.cpp has them."""

import sys
from pathlib import Path

import checkpoints as hub
import gguf
import gguf_files
import numpy as np
import pytest
import vocabularies
from gguf import GGMLQuantizationType
from program import done

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error
from gpt2cli.tokenizer import load_tokenizer

WIDE = hub.TINY | {"n_embd": 256, "n_head": 4, "n_layer": 1, "vocab_size": 40}
ARRAYS = hub.random_arrays()
WIDE_ARRAYS = hub.random_arrays(WIDE)
FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def refusal(path: Path) -> str:
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return gguf_files.write(tmp_path / "m.gguf", hub.TINY, ARRAYS)


def test_the_config_is_that_of_the_metadata_and_the_numbers_those_of_the_file(
    path: Path, tmp_path: Path
) -> None:
    opened, stated = Checkpoint.open(path), Checkpoint.open(hub.write(tmp_path / "hub"))
    assert opened.config == stated.config
    assert opened.matched.tensors.keys() == ARRAYS.keys()
    assert all(np.array_equal(opened.read(name).numpy(), ARRAYS[name]) for name in ARRAYS)


@pytest.mark.parametrize(
    "kind",
    "F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K".split(),
)
def test_a_type_is_mapped_where_torch_has_it_and_else_dequantised_by_the_package(
    tmp_path: Path, kind: str
) -> None:
    number = GGMLQuantizationType[kind]
    path = gguf_files.write(tmp_path / "m.gguf", WIDE, WIDE_ARRAYS, number)
    opened = Checkpoint.open(path)
    for name in ("wte.weight", "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"):
        array, turned = WIDE_ARRAYS[name], gguf_files.is_dense(name)
        stored = np.ascontiguousarray(array.T if turned else array)
        theirs = gguf.dequantize(gguf_files.blocks(stored, number), number)
        ours = opened.read(name)
        assert str(ours.dtype) == f"torch.{FLOATS.get(kind, 'float32')}"
        assert np.array_equal(ours.float().numpy(), theirs.T if turned else theirs)
        assert (f"dequantised from {kind}" in opened.matched.tensors[name].remark) == (
            kind not in FLOATS
        )
    assert np.array_equal(opened.read("ln_f.bias").numpy(), WIDE_ARRAYS["ln_f.bias"])


def test_a_stored_head_is_a_copy_where_it_equals_wte_and_else_its_own(tmp_path: Path) -> None:
    untied = hub.TINY | {"tie_word_embeddings": False}
    arrays = hub.random_arrays(untied)
    own = Checkpoint.open(gguf_files.write(tmp_path / "own.gguf", untied, arrays))
    assert not own.config.tie_word_embeddings
    assert np.array_equal(own.read("lm_head.weight").numpy(), arrays["lm_head.weight"])
    copied = arrays | {"lm_head.weight": arrays["wte.weight"]}
    tied = Checkpoint.open(gguf_files.write(tmp_path / "tied.gguf", untied, copied))
    assert tied.config.tie_word_embeddings
    assert [copy.name for copy in tied.matched.copies] == ["output.weight"]


def test_an_own_width_and_epsilon_are_applied(tmp_path: Path) -> None:
    config = hub.TINY | {"n_inner": 40, "layer_norm_epsilon": 1e-3}
    path = gguf_files.write(tmp_path / "m.gguf", config, hub.random_arrays(config))
    opened = Checkpoint.open(path).config
    assert (opened.n_inner, opened.layer_norm_epsilon) == (40, 1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"architecture": "llama"}, "architecture 'llama', not gpt2"),
        ({"more": {"split.count": 2}}, "one of several parts"),
        ({"arrays": {"wpe.weight": ARRAYS["wpe.weight"]}}, "no token_embd.weight"),
        ({"arrays": ARRAYS | {"h.9.ln_1.bias": np.ones(24, "f4")}}, "unexpected (blk.9.attn_norm"),
        ({"arrays": ARRAYS | {"ln_f.bias": np.ones(24, "i4")}}, "output_norm.bias is I32"),
    ],
    ids=range(5),
)
def test_another_model_or_half_of_one_is_refused_by_name(
    tmp_path: Path, options: dict, said: str
) -> None:
    path = tmp_path / "m.gguf"
    gguf_files.write(path, hub.TINY, **{"arrays": ARRAYS} | options)
    assert said in refusal(path)


def test_a_file_cut_off_anywhere_is_refused(path: Path) -> None:
    sound = path.read_bytes()
    for length in (4, 5, 30, 100, 400, 1000, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:length])
        assert f"{path} is cut off" in refusal(path)


def test_without_the_package_the_extra_that_brings_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", WIDE, WIDE_ARRAYS, GGMLQuantizationType.Q8_0)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "pip install 'gpt2cli[gguf]'" in refusal(path)


# The tokenizer in the metadata


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    """A file with a trained vocabulary, and the tokenizer it was taken from."""
    peer = vocabularies.trained(3, "russian", size=300, specials=("<|endoftext|>",))
    vocab = sorted(peer.get_vocab().items(), key=lambda item: item[1])
    tokens = [(text, 3 if text == "<|endoftext|>" else 1) for text, _ in vocab]
    tokens += [("<tool>", 4), ("[PAD]", 5)]
    merges = [
        " ".join(pair) if isinstance(pair, list) else pair
        for pair in vocabularies.json.loads(peer.to_str())["model"]["merges"]
    ]
    config = hub.TINY | {"vocab_size": len(tokens)}
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    gguf_files.write(path, config, hub.random_arrays(config), tokens=tokens, merges=merges)
    return path, peer


def test_the_tokenizer_is_that_of_the_metadata(trained) -> None:
    path, peer = trained
    ours = load_tokenizer(path, None)
    for text in vocabularies.SENTENCES.values():
        assert ours.encode(text) == peer.encode(text).ids
        assert ours.decode(ours.encode(text)) == text
    size = peer.get_vocab_size()
    assert ours.encode("a<tool>")[-1] == size
    assert ours.end_of_text == peer.token_to_id("<|endoftext|>")
    assert ours.unknown_ids(size + 2) == [size + 1]
    assert done("tokens", "-m", str(path), "Все").text.split() == [
        str(n) for n in peer.encode("Все").ids
    ]
    assert done("generate", "-m", str(path), "-n", "3", "-s", "1", "Все").text.startswith("Все")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of kind 'llama'"),
        ({"tokenizer.ggml.model": "gpt2"}, "without tokens or merges"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe"},
            "the split 'llama-bpe'",
        ),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused_and_the_weights_are_read(
    tmp_path: Path, more: dict[str, object], said: str
) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", hub.TINY, ARRAYS, more=more)
    with pytest.raises(GPT2Error, match=said):
        load_tokenizer(path, 61)
    assert len(Checkpoint.open(path).matched.tensors) == len(ARRAYS)
