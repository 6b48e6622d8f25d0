"""Why two networks differ: each fault planted by itself, and found under its own name alone."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from checkpoints import TINY, random_arrays, write

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.verification.against import check_reference
from gpt2cli.verification.comparison import Tolerance
from gpt2cli.verification.divergence import record
from gpt2cli.verification.reference import Reference

Arrays = dict[str, np.ndarray]

SHAPES: dict[str, dict[str, Any]] = {
    "two blocks of three heads": TINY | {"tie_word_embeddings": False},
    "four blocks, a square MLP": TINY
    | {"n_layer": 4, "n_head": 4, "n_inner": 24, "tie_word_embeddings": False},
    "three blocks, two wide heads, a start token": TINY
    | {"n_layer": 3, "n_head": 2, "n_embd": 32, "vocab_size": 80, "bos_token_id": 7}
    | {"tie_word_embeddings": False},
}

IDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8]]


@dataclasses.dataclass(frozen=True)
class Program:
    """Another program's GPT-2: the tests' own float64 one, on arrays and a config of its own."""

    arrays: Arrays
    config: dict[str, Any]
    before: tuple[int, ...] = ()

    def logits(self) -> np.ndarray:
        rows = [oracle.logits(self.arrays, self.config, [*self.before, *ids]) for ids in IDS]
        return np.array(rows)[:, len(self.before) :]

    def with_config(self, **fields: Any) -> "Program":
        return dataclasses.replace(self, config=self.config | fields)

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> "Program":
        return dataclasses.replace(self, arrays=self.arrays | arrays)

    def each(self, part: str, change: Callable[[np.ndarray], np.ndarray]) -> "Program":
        """With every block's array of this name changed."""
        return self.with_arrays(
            {name: change(array) for name, array in self.arrays.items() if name.endswith(part)}
        )


def swapped(program: Program, first: int, second: int) -> Program:
    moved = {}
    for here, there in ((first, second), (second, first)):
        moved |= {
            name.replace(f"h.{there}.", f"h.{here}."): array
            for name, array in program.arrays.items()
            if name.startswith(f"h.{there}.")
        }
    return program.with_arrays(moved)


def reordered(program: Program, order: tuple[int, int, int]) -> Program:
    def change(array: np.ndarray) -> np.ndarray:
        thirds = np.split(array, 3, axis=-1)
        return np.concatenate([thirds[n] for n in order], axis=-1)

    return program.each("c_attn.weight", change).each("c_attn.bias", change)


def by_head(program: Program) -> Program:
    def change(array: np.ndarray) -> np.ndarray:
        heads = np.split(array, 3 * program.config["n_head"], axis=-1)
        n = program.config["n_head"]
        return np.concatenate([heads[third * n + h] for h in range(n) for third in range(3)], -1)

    return program.each("c_attn.weight", change).each("c_attn.bias", change)


def scores_times(program: Program, factor: Callable[[int], float]) -> Program:
    """With attention scores scaled: queries carry the factor."""
    width = program.config["n_embd"]
    changed = {}
    for layer in range(program.config["n_layer"]):
        for part in ("weight", "bias"):
            name = f"h.{layer}.attn.c_attn.{part}"
            changed[name] = program.arrays[name].copy()
            changed[name][..., :width] *= factor(layer)
    return program.with_arrays(changed)


def positions(program: Program, rows: Callable[[np.ndarray], np.ndarray]) -> Program:
    wpe = program.arrays["wpe.weight"]
    return program.with_arrays({"wpe.weight": wpe[rows(np.arange(len(wpe)))]})


def rounded(program: Program) -> Program:
    return program.each("", lambda array: array.astype(np.float16).astype(np.float64))


FAULTS: dict[str, list[Callable[[Program], Program]]] = {
    "activation": [
        lambda p: p.with_config(activation_function="gelu"),
        lambda p: p.with_config(activation_function="quick_gelu"),
    ],
    "epsilon": [
        lambda p: p.with_config(layer_norm_epsilon=1e-6),
        lambda p: p.with_config(layer_norm_epsilon=1e-12),
    ],
    "attention_scale": [
        lambda p: p.with_config(scale_attn_weights=False),
        lambda p: scores_times(p, lambda _: (p.config["n_embd"] / p.config["n_head"]) ** -0.5),
    ],
    "inverse_layer_scale": [
        lambda p: p.with_config(scale_attn_by_inverse_layer_idx=True),
        lambda p: scores_times(p, lambda layer: layer + 1),
    ],
    "transposed": [
        lambda p: p.each("attn.c_proj.weight", np.transpose),
    ],
    "qkv_order": [
        lambda p: reordered(p, (1, 0, 2)),
        lambda p: reordered(p, (2, 0, 1)),
        by_head,
    ],
    "positions": [
        lambda p: positions(p, lambda rows: np.minimum(rows + 1, rows[-1])),
        lambda p: positions(p, lambda rows: np.maximum(rows - 1, 0)),
        lambda p: positions(p, lambda rows: rows * 0),
        lambda p: positions(p, lambda rows: np.where(rows < 6, rows, rows - 6)),
    ],
    "bos": [
        lambda p: dataclasses.replace(p, before=(p.config.get("bos_token_id", 60),)),
    ],
    "tied_head": [
        lambda p: p.with_config(tie_word_embeddings=True),
    ],
    "rounding": [rounded],
    "swapped_blocks": [
        lambda p: swapped(p, 0, 1),
        lambda p: swapped(p, p.config["n_layer"] - 2, p.config["n_layer"] - 1),
        lambda p: swapped(p, 0, p.config["n_layer"] - 1),
    ],
}
CASES = [(name, n) for name, faults in FAULTS.items() for n in range(len(faults))]

# What is done to logits that are right.
SHIFTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant_shift": lambda logits: logits + 0.25 * np.arange(1, 11)[:, None],
    "rounding": lambda logits: logits.astype(np.float16).astype(np.float64),
}


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SHAPES[request.param]


@pytest.fixture(scope="module")
def program(shape: dict[str, Any]) -> Program:
    arrays = {name: array.astype(np.float64) for name, array in random_arrays(shape).items()}
    return Program(arrays, shape)


@pytest.fixture(scope="module")
def model(shape: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> GPT2:
    return network(tmp_path_factory.mktemp("model"), shape, random_arrays(shape))


def network(folder: Path, config: dict[str, Any], arrays: Arrays) -> GPT2:
    return load(Checkpoint.open(write(folder, config, arrays=arrays)), packed=False)


def causes(model: GPT2, reference: Reference) -> list[str]:
    report = check_reference(model, "a model", reference, Tolerance())
    assert not report.passed
    assert all(cause.description for cause in report.causes)
    return [cause.id for cause in report.causes]


def reference(logits: np.ndarray) -> Reference:
    return Reference("another program", torch.tensor(IDS), torch.tensor(logits).float())


@pytest.mark.parametrize(("fault", "n"), CASES)
def test_a_fault_of_another_program_is_named_and_no_other(
    model: GPT2, program: Program, fault: str, n: int
) -> None:
    assert causes(model, reference(FAULTS[fault][n](program).logits())) == [fault]


@pytest.mark.parametrize("fault", SHIFTS)
def test_logits_that_were_shifted_or_rounded_are_named(
    model: GPT2, program: Program, fault: str
) -> None:
    assert causes(model, reference(SHIFTS[fault](program.logits()))) == [fault]


def test_every_promised_cause_has_a_planted_fault() -> None:
    promised = """
        activation epsilon attention_scale inverse_layer_scale transposed qkv_order positions bos
        tied_head constant_shift rounding swapped_blocks
    """
    assert {*FAULTS, *SHIFTS} == {*promised.split()}


# These take away what the right network needs, so that no change here brings it back.
LOSSES = ("positions", "bos", "tied_head", "rounding")


@pytest.mark.parametrize(("fault", "n"), [case for case in CASES if case[0] not in LOSSES])
def test_a_fault_here_is_named_by_hidden_states_that_are_right(
    tmp_path: Path, model: GPT2, program: Program, fault: str, n: int
) -> None:
    faulty = FAULTS[fault][n](program)
    arrays = {name: array.astype(np.float32) for name, array in faulty.arrays.items()}
    ours = network(tmp_path, faulty.config, arrays)
    assert causes(ours, record(model, torch.tensor(IDS), "right")) == [fault]


@pytest.mark.parametrize(("fault", "n"), [case for case in CASES if case[0] != "bos"])
def test_a_fault_there_is_named_by_its_hidden_states(
    tmp_path: Path, model: GPT2, program: Program, fault: str, n: int
) -> None:
    faulty = FAULTS[fault][n](program)
    arrays = {name: array.astype(np.float32) for name, array in faulty.arrays.items()}
    if faulty.config["tie_word_embeddings"]:
        del arrays["lm_head.weight"]
    theirs = network(tmp_path, faulty.config, arrays)
    assert causes(model, record(theirs, torch.tensor(IDS), "wrong")) == [fault]


def test_a_fault_of_one_block_alone_is_named_by_hidden_states(
    tmp_path: Path, model: GPT2, program: Program
) -> None:
    name = "h.1.attn.c_proj.weight"
    arrays = random_arrays(program.config)
    arrays[name] = np.ascontiguousarray(arrays[name].T)
    theirs = network(tmp_path, program.config, arrays)
    assert causes(model, record(theirs, torch.tensor(IDS), "wrong")) == ["transposed"]


def test_a_changed_weight_has_no_cause(model: GPT2, program: Program) -> None:
    changed = program.arrays["h.1.mlp.c_fc.weight"].copy()
    changed[3, 5] += 0.1
    assert (
        causes(model, reference(program.with_arrays({"h.1.mlp.c_fc.weight": changed}).logits()))
        == []
    )


def test_two_faults_at_once_are_not_taken_for_one(model: GPT2, program: Program) -> None:
    two = reordered(program, (1, 0, 2)).with_config(activation_function="gelu")
    assert causes(model, reference(two.logits())) == []


def test_a_reference_of_nan_has_no_cause(model: GPT2, program: Program) -> None:
    report = check_reference(model, "a model", reference(program.logits() + np.nan), Tolerance())
    assert (report.passed, report.causes) == (False, ())
