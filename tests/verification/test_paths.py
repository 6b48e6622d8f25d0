"""A network against itself: each fault shows on the paths that run through it, and on no other."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import TINY, write
from torch.nn import functional as F  # noqa: N812

from gpt2cli import model as network
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
from gpt2cli.model import GPT2, Window
from gpt2cli.verification.comparison import Tolerance
from gpt2cli.verification.paths import check_paths

STEPS, CHUNKS, ROWS, DRAFTS, PLAIN = (
    "one token at a time",
    "in chunks of 1, 2, 4, …",
    "in rows of unequal length",
    "in drafts of which half is wrong",
    "written out in float64",
)


@pytest.fixture
def model(tmp_path: Path) -> GPT2:
    return load(Checkpoint.open(write(tmp_path, TINY | {"n_positions": 64})), packed=False)


def failing(model: GPT2) -> set[str]:
    report = check_paths(model, "a model", Tolerance(), Tolerance())
    assert [check.name for check in report.checks] == [STEPS, CHUNKS, ROWS, DRAFTS, PLAIN]
    failed = {check.name for check in report.checks if not check.passed}
    assert report.passed is (not failed)
    assert report.passed is (report.comparison.tolerance_used <= 1)
    return failed


def test_a_sound_network_passes_on_every_path(model: GPT2) -> None:
    assert failing(model) == set()


def positions_off_by_one(window: Window, seen: int, n_tokens: int) -> None:
    window.positions += 1


def upper_left_mask(window: Window, seen: int, n_tokens: int) -> None:
    """A chunk that sees what a first chunk would see."""
    if n_tokens > 1:
        queries = torch.arange(window.mask.shape[2])[:, None]
        hidden = torch.arange(window.n_keys) > queries
        window.mask = torch.zeros(1, 1, *hidden.shape).masked_fill(hidden, -torch.inf)


def single_steps_forget_the_first_token(window: Window, seen: int, n_tokens: int) -> None:
    if n_tokens == 1 and seen:
        window.mask[..., 0] = -torch.inf


def rows_in_each_others_place(window: Window, seen: int, n_tokens: int) -> None:
    if window.level is None:
        window.positions = window.positions.flip(0)


def what_was_taken_back_is_seen(window: Window, seen: int, n_tokens: int) -> None:
    """A chunk of four that sees two keys past each query, as if a draft were not cut off."""
    if n_tokens == 4 and seen % 2 == 0:
        window.mask = torch.roll(window.mask, -2, dims=2)


FAULTS: list[tuple[Callable[[Window, int, int], None], set[str]]] = [
    (positions_off_by_one, {ROWS, PLAIN}),  # the same in every chunk
    (upper_left_mask, {CHUNKS, DRAFTS}),
    (single_steps_forget_the_first_token, {STEPS, ROWS}),
    (rows_in_each_others_place, {ROWS}),
    (what_was_taken_back_is_seen, {DRAFTS}),
]


@pytest.mark.parametrize(("fault", "seen_by"), FAULTS)
def test_a_fault_of_the_cache_is_seen(
    model: GPT2,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Window, int, int], None],
    seen_by: set[str],
) -> None:
    class Faulty(Window):
        def __init__(self, cache: network.KVCache, n_tokens: int, n_keys: int) -> None:
            super().__init__(cache, n_tokens, n_keys)
            fault(self, int(cache.lengths.max()), n_tokens)

    monkeypatch.setattr(network, "Window", Faulty)
    assert failing(model) == seen_by


@pytest.mark.parametrize("part", ["activation", "scale", "epsilon"])
def test_a_fault_of_the_network_is_seen_by_what_is_written_out(model: GPT2, part: str) -> None:
    block = model.h[1]
    if part == "activation":
        block.mlp.activation = F.gelu
    elif part == "scale":
        block.attn.scale *= 1.01
    else:
        block.ln_2.eps = 1e-3
    assert failing(model) == {PLAIN}


def test_a_fault_of_what_is_written_out_is_seen_there(
    model: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(network.ACTIVATIONS, "gelu_new", F.gelu)
    assert failing(model) == {PLAIN}
