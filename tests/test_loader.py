"""From a checkpoint to a network: mapped where that is free, widened exactly, never damaged."""

from pathlib import Path

import checkpoints
import numpy as np
import oracle
import pytest
import torch

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error
from gpt2cli.loader import load, pick_device
from gpt2cli.model import GPT2

FIXTURES = Path(__file__).parent / "fixtures" / "hub"
ARRAYS = checkpoints.random_arrays()
IDS = torch.tensor([[5, 17, 60, 0, 33, 8]])


def data_start(folder: Path) -> int:
    return 8 + int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")


def at_offset(tmp_path: Path, remainder: int, **options: str) -> Path:
    """A checkpoint whose data starts at a byte that leaves this remainder from 8."""
    for pad in range(8):
        folder = checkpoints.write(tmp_path / f"{remainder}-{pad}", pad=pad, **options)
        if data_start(folder) % 8 == remainder:
            return folder
    raise AssertionError("no such offset")


def weights(model: GPT2) -> dict[str, torch.Tensor]:
    return model.state_dict()


@pytest.mark.parametrize("remainder", [0, 4])
def test_float32_weights_are_the_mapped_file_itself(tmp_path: Path, remainder: int) -> None:
    checkpoint = Checkpoint.open(at_offset(tmp_path, remainder))
    model = load(checkpoint, packed=False)
    for name, tensor in weights(model).items():
        mapped = checkpoint.read(name)
        assert tensor.data_ptr() == mapped.data_ptr()
        assert np.array_equal(tensor.numpy(), ARRAYS[name])


@pytest.mark.parametrize("remainder", [1, 2, 3, 5, 6, 7])
def test_a_file_whose_data_is_unaligned_gives_the_same_logits_from_aligned_memory(
    tmp_path: Path, remainder: int
) -> None:
    """The released gpt2's data starts at byte 14,291, which leaves 3."""
    assert 14_291 % 8 == 3
    model = load(Checkpoint.open(at_offset(tmp_path, remainder)), packed=False)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in weights(model).values())
    aligned = load(Checkpoint.open(at_offset(tmp_path, 0)), packed=False)
    with torch.inference_mode():
        assert torch.equal(model(IDS), aligned(IDS))


@pytest.mark.parametrize("remainder", [0, 3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_widened_exactly(tmp_path: Path, dtype: str, remainder: int) -> None:
    folder = at_offset(tmp_path, remainder, dtype=dtype)
    stored = oracle.read_hub(folder)
    for name, tensor in weights(load(Checkpoint.open(folder), packed=False)).items():
        assert tensor.dtype == torch.float32
        assert np.array_equal(tensor.double().numpy(), stored[name])
        assert not np.array_equal(tensor.numpy(), ARRAYS[name])


@pytest.mark.parametrize(
    ("bits", "value"), [(0x0001, 2.0**-24), (0x8001, -(2.0**-24)), (0x7BFF, 65504), (0x8000, 0)]
)
def test_the_smallest_and_largest_halves_are_weights_like_others(
    tmp_path: Path, bits: int, value: float
) -> None:
    gain = np.full(24, bits, np.uint16).view(np.float16)
    folder = checkpoints.write(
        tmp_path / "m", arrays=ARRAYS | {"ln_f.weight": gain}, dtype="float16"
    )
    assert load(Checkpoint.open(folder)).ln_f.weight.tolist() == [value] * 24


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["wte.weight", "h.1.attn.c_proj.bias", "ln_f.weight"])
def test_a_weight_that_is_no_number_is_refused_by_name(
    tmp_path: Path, name: str, bad: float, dtype: str
) -> None:
    array = ARRAYS[name].copy()
    array.flat[-1] = bad
    folder = checkpoints.write(
        tmp_path / "m", arrays=ARRAYS | {name: array}, prefix="transformer.", dtype=dtype
    )
    checkpoint = Checkpoint.open(folder)
    with pytest.raises(
        GPT2Error, match=rf"model\.safetensors: transformer\.{name} holds NaN or inf"
    ):
        load(checkpoint)


def test_nan_in_wte_and_its_copy_is_called_nan_and_not_a_difference(tmp_path: Path) -> None:
    broken = np.full_like(ARRAYS["wte.weight"], np.nan)
    folder = checkpoints.write(
        tmp_path / "m", arrays=ARRAYS | {"wte.weight": broken}, extra={"lm_head.weight": broken}
    )
    with pytest.raises(GPT2Error, match=r"wte\.weight holds NaN"):
        load(Checkpoint.open(folder))


def test_a_network_is_loaded_to_be_run_and_not_trained() -> None:
    model = load(Checkpoint.open(FIXTURES / "hub-released"))
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_a_file_replaced_after_opening_still_gives_the_old_weights(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(checkpoints.write(tmp_path / "m"))
    other = checkpoints.write(tmp_path / "other", seed=1) / "model.safetensors"
    other.replace(tmp_path / "m" / "model.safetensors")
    assert np.array_equal(load(checkpoint).wte.weight.numpy(), ARRAYS["wte.weight"])


@pytest.mark.parametrize(
    ("cuda", "mps", "picked"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_first_device_that_is_there_and_a_missing_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, picked: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert pick_device("auto").type == picked
    assert pick_device("cpu").type == "cpu"
    for name, there in (("cuda", cuda), ("mps", mps)):
        if not there:
            with pytest.raises(GPT2Error, match=f"no {name} device.*--device cpu"):
                pick_device(name)
