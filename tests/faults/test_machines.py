"""Other machines: a kernel that is missing, another number of threads, and numbers near zero."""

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import torch
from program import child, done

from gpt2cli import packing
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.tokenizer.merges import spelled

pytestmark = pytest.mark.usefixtures("one_thread")

FIXTURE = str(Path(__file__).parents[1] / "fixtures" / "hub" / "hub-released")
KERNELS = ("float32", "float16", "int8")
LEAST = np.finfo(np.float32).tiny  # the smallest number that is not denormal


@pytest.fixture
def fresh_probes() -> Iterator[None]:
    """Kernels are looked for again, before the test and after it."""
    packing._works.cache_clear()
    yield
    packing._works.cache_clear()


# Kernels


@pytest.mark.usefixtures("fresh_probes")
@pytest.mark.parametrize("missing", [*KERNELS, "all"])
@pytest.mark.parametrize(
    ("model", "reference"),
    [(FIXTURE, ("--reference", f"{FIXTURE}/expected.json")), (FIXTURE, ()), ("austen", ())],
    ids=["a fixture and its reference", "a fixture and itself", "austen and itself"],
)
def test_without_a_kernel_the_numbers_are_right_at_every_precision(
    monkeypatch: pytest.MonkeyPatch, missing: str, model: str, reference: tuple[str, ...]
) -> None:
    left = [kernel for kernel in KERNELS if missing not in (kernel, "all")]
    monkeypatch.setenv("GPT2_PACKED", ",".join(left))
    for dtype in packing.DTYPES:
        kernel = "float16" if dtype == "bfloat16" else dtype
        if model == "austen" and missing not in (kernel, "all"):
            continue  # nothing is missing for it
        layer = packing.dense(dtype, torch.ones(8, 16), None)
        assert isinstance(layer, packing._Plain) == (kernel not in left)
        done("verify", model, *reference, "--dtype", dtype)


def test_a_process_is_told_of_missing_kernels_by_its_environment() -> None:
    args = ("verify", FIXTURE, "--reference", f"{FIXTURE}/expected.json", "--threads", "1")
    with child(*args, env=os.environ | {"GPT2_PACKED": ""}) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    assert out.endswith(b"\nPASS\n")


def test_a_kernel_that_there_is_none_of_is_refused_by_name() -> None:
    with child("verify", FIXTURE, env=os.environ | {"GPT2_PACKED": "float32,int4"}) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, b"")
    assert b"GPT2_PACKED is 'float32,int4'" in err


# Threads, and numbers near zero


def denormal_model(folder: Path) -> str:
    """A byte-wise model in whose first block values, an MLP's input and its output are denormal."""
    config = checkpoints.TINY | {"vocab_size": 256, "n_positions": 64}
    arrays = checkpoints.random_arrays(config)
    values = slice(2 * config["n_embd"], None)
    for name in ("attn.c_attn.weight", "attn.c_attn.bias"):
        arrays[f"h.0.{name}"][..., values] *= np.float32(1e-39)
    for name in ("ln_2.weight", "ln_2.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"):
        arrays[f"h.0.{name}"] *= np.float32(1e-39)
    checkpoints.write(folder, config, arrays=arrays)
    table = {spelled(bytes([byte])): byte for byte in range(256)}
    (folder / "vocab.json").write_text(json.dumps(table))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return str(folder)


@functools.cache
def usual(model: str, dtype: str) -> list[list[int]]:
    return texts(model, dtype, "1")


def texts(model: str, dtype: str, threads: str) -> list[list[int]]:
    """The ids of two texts of a model."""
    args = ("generate", "-q", "-m", model, "--dtype", dtype, "--threads", threads, "--json")
    ran = done(*args, "-n", "20", "-s", "1", "-t", "0.5", "--samples", "2", "My dear")
    return [json.loads(line)["tokens"] for line in ran.out.splitlines()]


@pytest.fixture(scope="module", params=["austen", "denormal"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "austen":
        return "austen"
    return denormal_model(tmp_path_factory.mktemp("denormal"))


@pytest.fixture
def flushing() -> Iterator[None]:
    """Denormal numbers count as 0 in this thread."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("dtype", packing.DTYPES)
def test_one_two_and_three_threads_write_the_same_texts(model: str, dtype: str) -> None:
    for threads in ("2", "3"):
        assert texts(model, dtype, threads) == usual(model, dtype)


@pytest.mark.parametrize("dtype", packing.DTYPES)
def test_texts_are_the_same_where_denormal_numbers_count_as_0(
    model: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    kept = usual(model, dtype)
    request.getfixturevalue("flushing")
    assert texts(model, dtype, "1") == kept


@torch.inference_mode()
def inputs(model: GPT2, layer: str) -> torch.Tensor:
    """What a layer is given for a few tokens."""
    found = []
    hook = model.get_submodule(layer).register_forward_hook(lambda _, x, out: found.append(x[0]))
    model(torch.arange(9)[None])
    hook.remove()
    return found[0].abs()


def test_the_model_of_denormal_numbers_has_them_and_flushing_takes_them_away(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = load(Checkpoint.open(Path(denormal_model(tmp_path / "model"))), packed=False)
    for layer in ("h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj"):
        found = inputs(model, layer).numpy()
        assert ((found > 0) & (found < LEAST)).mean() > 0.5
    request.getfixturevalue("flushing")
    assert (inputs(model, "h.0.mlp.c_proj").view(torch.int32) == 0).all()
