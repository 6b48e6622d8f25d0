"""The self-test: it passes here, and a fault anywhere on the way makes it fail."""

from collections.abc import Callable

import numpy as np
import oracle as plain
import pytest
import torch
from checkpoints import random_arrays

from gpt2cli import generation, packing
from gpt2cli import model as network
from gpt2cli.checkpoint.stored import StoredTensor
from gpt2cli.config import GPT2Config
from gpt2cli.model import CausalSelfAttention
from gpt2cli.tokenizer import Tokenizer
from gpt2cli.verification import oracle
from gpt2cli.verification import selftest as module
from gpt2cli.verification.comparison import Tolerance
from gpt2cli.verification.selftest import selftest

FIELDS = {"vocab_size": 31, "n_positions": 12, "n_embd": 24, "n_layer": 2, "n_head": 3}


@pytest.mark.parametrize(
    "switches", [{}, {"tie_word_embeddings": False, "scale_attn_by_inverse_layer_idx": True}]
)
def test_its_oracle_says_what_the_plain_loops_of_the_tests_say(switches: dict[str, bool]) -> None:
    fields = FIELDS | switches
    arrays = {name: array.astype(np.float64) for name, array in random_arrays(fields).items()}
    ids = np.array([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
    ours = oracle.logits(arrays, GPT2Config(**fields), ids)
    np.testing.assert_allclose(ours, [plain.logits(arrays, fields, row) for row in ids], atol=1e-9)


def test_it_checks_tokens_and_every_path_at_every_precision() -> None:
    report = selftest(Tolerance())
    assert (report.passed, report.kind) == (True, "self")
    kinds = [check.kind for check in report.checks]
    assert set(kinds) == {"tokens", *packing.DTYPES}
    assert {kinds.count(dtype) for dtype in packing.DTYPES} <= {5 + 5, 5 + 6, 6 + 6}
    assert all(0 < check.worst < 0.5 for check in report.checks if check.worst is not None)


@pytest.fixture
def one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the networks is enough to see a fault by."""
    first = dict([next(iter(module._CONFIGS.items()))])
    monkeypatch.setattr(module, "_CONFIGS", first)


def failing() -> set[str]:
    report = selftest(Tolerance())
    assert not report.passed
    return {check.kind for check in report.checks if not check.passed}


def scaled_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = CausalSelfAttention.forward

    def faulty(self: CausalSelfAttention, *args: object) -> torch.Tensor:
        self.scale, right = 2 * self.scale, self.scale
        out = forward(self, *args)
        self.scale = right
        return out

    monkeypatch.setattr(CausalSelfAttention, "forward", faulty)


def another_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(network.ACTIVATIONS, "gelu_new", torch.nn.functional.silu)


def swapped_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that gives one tensor in another order."""
    read = StoredTensor.__getattribute__

    def faulty(self: StoredTensor, name: str) -> object:
        found = read(self, name)
        if name == "read" and read(self, "name") == "h.1.mlp.c_fc.bias":
            return lambda: found().flip(0)
        return found

    monkeypatch.setattr(StoredTensor, "__getattribute__", faulty)


@pytest.mark.parametrize("fault", [scaled_attention, another_activation, swapped_bytes])
@pytest.mark.usefixtures("one_network")
def test_a_fault_fails_at_every_precision(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    assert failing() == set(packing.DTYPES)


@pytest.mark.usefixtures("one_network")
def test_a_fault_of_one_precision_fails_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = packing.dense

    def faulty(dtype: str, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Module:
        return dense(dtype, weight * 1.5 if dtype == "int8" else weight, bias)

    monkeypatch.setattr(packing, "dense", faulty)
    assert failing() == {"int8"}


@pytest.mark.usefixtures("one_network")
def test_a_draft_that_is_not_undone_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = generation._Batch.settle

    def faulty(self: generation._Batch) -> None:
        settle(self)
        for place, row in enumerate(self.rows):
            self.cache.lengths[place] -= int(bool(row.draft))

    monkeypatch.setattr(generation._Batch, "settle", faulty)
    report = selftest(Tolerance())
    failed = {check.name.rpartition(", ")[2] for check in report.checks if not check.passed}
    assert failed == {"a text with drafts and without"}


@pytest.mark.usefixtures("one_network")
def test_a_fault_of_the_tokenizer_fails_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, special=False: [1])
    assert failing() == {"tokens"}
