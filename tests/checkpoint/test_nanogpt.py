"""nanoGPT's ckpt.pt: its arguments as a config, its turned weights, its missing biases."""

from pathlib import Path
from typing import Any

import nanogpt_model
import numpy as np
import pytest
import torch
from program import done

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error
from gpt2cli.loader import load

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hub"

ARGS: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 3,
    "n_embd": 24,
    "block_size": 16,
    "bias": True,
    "vocab_size": 61,
    "dropout": 0.0,
}
IDS = [[5, 17, 60, 0, 33, 8]]


def save(
    path: Path, args: dict[str, Any] = ARGS, prefix: str = "", legacy: bool = False, **more: object
) -> nanogpt_model.State:
    """A checkpoint as train.py saves it; returns the state dict that is in it."""
    state = nanogpt_model.random_state(args)
    named = {prefix + name: tensor for name, tensor in state.items()}
    value = {"model": named | more, "model_args": args, "optimizer": {"state": {}}, "iter_num": 3}
    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return state


def refusal(path: Path) -> str:
    with pytest.raises(GPT2Error) as refused:
        Checkpoint.open(path)
    return str(refused.value)


@torch.inference_mode()
def logits(path: Path) -> torch.Tensor:
    return load(Checkpoint.open(path))(torch.tensor(IDS))


@pytest.mark.parametrize("name", ["nanogpt", "nanogpt-nobias-compiled"])
def test_the_independent_model_of_these_tests_computes_what_nanogpt_did(name: str) -> None:
    args, state = nanogpt_model.read(FIXTURES / name / "ckpt.pt")
    for ids, expected in nanogpt_model.expected(FIXTURES / name):
        found = nanogpt_model.logits(state, args, ids)
        assert np.abs(found.numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("legacy", [False, True])
def test_any_checkpoint_computes_what_nanogpts_model_does(
    tmp_path: Path, prefix: str, bias: bool, legacy: bool
) -> None:
    path = tmp_path / "ckpt.pt"
    args = ARGS | {"bias": bias}
    state = save(path, args, prefix, legacy)
    found = logits(path)[0]
    assert (found - nanogpt_model.logits(state, args, IDS[0])).abs().max() < 1e-5
    assert torch.equal(found, logits(tmp_path)[0])


def test_weights_are_views_of_the_file_turned_and_the_mask_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    mask = torch.tril(torch.ones(1, 1, 16, 16))
    state = save(path, **{"transformer.h.0.attn.bias": mask})
    opened = Checkpoint.open(path)
    weight = opened.read("h.1.mlp.c_fc.weight")
    assert weight.shape == (24, 96)
    assert weight.stride() == (1, 24)
    assert weight.data_ptr() == opened.read("h.1.mlp.c_fc.weight").data_ptr()
    assert torch.equal(weight, state["transformer.h.1.mlp.c_fc.weight"].T)
    assert [reason for _, reason in opened.matched.skipped] == ["causal mask"]


def test_biases_that_are_not_stored_are_zeros_and_said_to_be(tmp_path: Path) -> None:
    save(tmp_path / "ckpt.pt", ARGS | {"bias": False})
    opened = Checkpoint.open(tmp_path)
    biases = [name for name in opened.matched.tensors if name.endswith(".bias")]
    assert len(biases) == 2 * 6 + 1
    assert not any(opened.read(name).any() for name in biases)
    ran = done("params", str(tmp_path), "--tensors")
    assert ran.err == f"note: {opened.notes[0]}\n"
    assert "trained without biases; they are zeros here" in ran.err
    assert ran.text.count("not stored: bias=False, so it is zeros") == 13


def test_model_args_are_the_config_and_unknown_ones_are_named(tmp_path: Path) -> None:
    save(tmp_path / "ckpt.pt", ARGS | {"flash": True})
    opened = Checkpoint.open(tmp_path)
    assert opened.config.activation_function == "gelu"
    assert (opened.config.n_positions, opened.config.vocab_size) == (16, 61)
    assert opened.parsed.applied == tuple(name for name in ARGS if name != "dropout")
    assert opened.parsed.irrelevant == ("dropout",)
    assert opened.parsed.unknown == ("flash",)
    (note,) = opened.notes
    assert "ignoring flash, unknown to GPT-2" in note


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_size": None}, "n_positions is missing"),
        ({"n_head": 5}, "does not divide into n_head 5"),
        ({"bias": "no"}, "bias is 'no', neither true nor false"),
        ({"rotary": True}, "rotary is true, which is not built here"),
        ({"n_layer": 3}, "12 missing (h.2.ln_1.weight"),
        ({"vocab_size": 60}, "is [61, 24], not [60, 24]"),
        ({"bias": False}, "stored twice (transformer.h.0.ln_1.bias"),
    ],
    ids=str,
)
def test_arguments_that_are_not_those_of_the_weights_are_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    path = tmp_path / "ckpt.pt"
    value = {"model": nanogpt_model.random_state(ARGS), "model_args": ARGS | changes}
    torch.save(value, path)
    assert said in refusal(path)


@pytest.mark.parametrize("model", [None, [], {"wte.weight": 1}], ids=str)
def test_a_checkpoint_whose_model_is_no_state_dict_is_refused(
    tmp_path: Path, model: object
) -> None:
    torch.save({"model": model, "model_args": ARGS}, tmp_path / "ckpt.pt")
    assert "tensor" in refusal(tmp_path / "ckpt.pt")
    torch.save({"model": {}, "model_args": 1}, tmp_path / "ckpt.pt")
    assert "has no model_args" in refusal(tmp_path / "ckpt.pt")


def test_a_padded_vocabulary_keeps_its_rows_and_params_says_how_many(tmp_path: Path) -> None:
    save(tmp_path / "ckpt.pt", ARGS | {"vocab_size": 50304})
    assert "47 of these rows are past the tokenizer's 50,257" in done("params", str(tmp_path)).text
