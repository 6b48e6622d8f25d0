"""Where two networks part: blocks are judged on the reference's own input to them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import TINY, write

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.verification.comparison import Divergence
from gpt2cli.verification.divergence import locate, record

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])


@pytest.fixture
def model(tmp_path: Path) -> GPT2:
    return load(Checkpoint.open(write(tmp_path, TINY | {"n_layer": 3})), packed=False)


def test_what_is_recorded_is_what_the_blocks_take_and_give(model: GPT2) -> None:
    reference = record(model, IDS, "us", parts=True)
    assert torch.equal(reference.logits, model(IDS))
    states = reference.hidden_states
    assert torch.equal(states[0], model.wte(IDS) + model.wpe(torch.arange(8)))
    for before, block, after in zip(states, model.h, states[1:], strict=False):
        torch.testing.assert_close(block(before), after, rtol=1e-6, atol=1e-5)
    assert torch.equal(model.unembed(model.ln_f(states[-1])), reference.logits)
    parts = ("ln_1", "attn.c_attn", "attn", "attn.c_proj", "residual", "ln_2", "mlp.c_fc")
    others = ("mlp.act", "mlp.c_proj")
    named = [f"h.{layer}.{part}" for layer in range(3) for part in (*parts, *others)]
    assert sorted(reference.parts) == sorted([*named, "ln_f"])
    middle = states[1] + reference.parts["h.1.attn.c_proj"]
    assert torch.equal(reference.parts["h.1.residual"], middle)
    assert torch.equal(middle + reference.parts["h.1.mlp.c_proj"], states[2])


def test_the_first_of_several_bad_blocks_is_named(model: GPT2) -> None:
    reference = record(model, IDS, "us")
    model.h[2].mlp.c_fc.bias[0] += 1
    model.h[1].attn.c_proj.bias[0] += 1
    assert locate(model, reference) == Divergence(1, "block")


def test_without_hidden_states_nothing_is_named(model: GPT2) -> None:
    recorded = record(model, IDS, "us")
    model.h[0].mlp.c_fc.bias[0] += 1
    bare = type(recorded)(recorded.source, recorded.input_ids, recorded.logits)
    assert locate(model, bare) is None


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Divergence(1, "attn.c_proj"), "h.1.attn.c_proj"),
        (Divergence(0, "block"), "h.0"),
        (Divergence(None, "wpe"), "wpe"),
    ],
)
def test_a_place_is_said_in_released_names(where: Divergence, text: str) -> None:
    assert str(where) == text


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("table", "row"), [("wte", 1), ("wte", 2), ("wpe", 3), ("wpe", None)])
def test_the_embedding_that_is_off_is_named(
    model: GPT2, rows: int, table: str, row: int | None
) -> None:
    ids = IDS[:rows]
    reference = record(model, ids, "us")
    weight = getattr(model, table).weight
    weight[slice(None) if row is None else row] += torch.linspace(0.1, 0.9, weight.shape[1])
    if row is None:
        weight.copy_(weight.roll(1, 0))
    assert locate(model, reference) == Divergence(None, table)


def test_a_first_token_that_every_row_shares_is_not_taken_for_its_position(model: GPT2) -> None:
    ids = torch.cat([torch.zeros(2, 1, dtype=torch.int64), IDS], dim=1)
    ids[0, 5] = 0
    reference = record(model, ids, "us")
    model.wte.weight[0] += 0.1
    assert locate(model, reference) == Divergence(None, "wte")


def test_an_error_of_the_first_sum_is_its_blocks(model: GPT2) -> None:
    reference = record(model, IDS, "us", parts=True)
    model.h[1].ln_2.register_forward_pre_hook(lambda _, args: (args[0] + 0.1,))
    assert locate(model, reference) == Divergence(1, "block")


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda model: model.ln_f.bias.add_(0.1), "ln_f"),
        (lambda model: model.ln_f.weight[3].mul_(1.1), "ln_f"),
        (lambda model: setattr(model.ln_f, "eps", 0.1), "ln_f"),
        (lambda model: head(model)[40].add_(0.1), "logits"),
        (lambda model: head(model).copy_(head(model).roll(1, 0)), "logits"),
    ],
)
def test_the_final_norm_is_told_from_the_unembedding_by_the_logits(
    tmp_path: Path, untied: bool, change: Callable[[GPT2], None], part: str
) -> None:
    folder = write(tmp_path, TINY | {"tie_word_embeddings": not untied})
    model = load(Checkpoint.open(folder), packed=False)
    reference = record(model, IDS, "us")
    change(model)
    where = locate(model, reference)
    assert where == Divergence(None, part if untied or part == "ln_f" else where.part)


def test_with_fewer_tokens_than_channels_an_error_of_the_final_norm_is_not_told(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, TINY | {"vocab_size": 20})
    model = load(Checkpoint.open(folder), packed=False)
    reference = record(model, IDS, "us")
    model.ln_f.bias.add_(0.1)
    assert locate(model, reference) == Divergence(None, "logits")


def head(model: GPT2) -> torch.Tensor:
    return model.wte.weight if model.lm_head is None else model.lm_head.weight
