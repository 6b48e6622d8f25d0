"""The network against other people's arithmetic, whole and in every split over its cache."""

import json
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import oracle
import pytest
import torch
from torch import nn

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.config import GPT2Config
from gpt2cli.generation import Request, generate
from gpt2cli.loader import load
from gpt2cli.model import GPT2, Block, KVCache

pytestmark = pytest.mark.usefixtures("one_thread")

FIXTURES = Path(__file__).parent / "fixtures"
HUB_FOLDERS = sorted({path.parent for path in FIXTURES.glob("hub/*/*.safetensors")})
OPENAI_FOLDERS = [FIXTURES / "openai-tf", FIXTURES / "openai-tf-finetuned"]

IDS = [5, 17, 60, 0, 33, 8, 8, 41, 2, 59, 11, 26]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> GPT2:
    return opened(checkpoints.write(tmp_path_factory.mktemp("tiny") / "model"))


def opened(path: Path) -> GPT2:
    return load(Checkpoint.open(path))


def named(folder: Path) -> str:
    return folder.name


@torch.inference_mode()
def logits(model: GPT2, ids: list[int], cache: KVCache | None = None) -> np.ndarray:
    """The logits after each of a row of ids, [T, V]."""
    return model(torch.tensor([ids]), cache)[0].numpy()


def expected(folder: Path) -> list[tuple[list[int], np.ndarray]]:
    """The ids and logits, a row each, that the fixture's own program computed."""
    said = json.loads((folder / "expected.json").read_text())
    return list(zip(said["input_ids"], map(np.array, said["logits"]), strict=True))


def apart(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    assert np.isfinite(one).all()
    return float(np.abs(one - other).max())


# The oracle, and what it and others say of the network


def test_the_oracle_computes_what_openais_program_computed() -> None:
    arrays, config = oracle.read_openai(FIXTURES / "openai-tf")
    for ids, theirs in expected(FIXTURES / "openai-tf"):
        assert apart(oracle.logits(arrays, config, ids), theirs) < 1e-5


@pytest.mark.parametrize("folder", [*OPENAI_FOLDERS, *HUB_FOLDERS], ids=named)
def test_every_fixture_gives_the_logits_that_its_own_program_computed(folder: Path) -> None:
    model = opened(folder)
    for ids, theirs in expected(folder):
        assert apart(logits(model, ids), theirs) < 1e-4


@pytest.mark.parametrize("folder", HUB_FOLDERS, ids=named)
def test_every_hub_fixture_gives_the_logits_of_the_oracle(folder: Path) -> None:
    model, arrays = opened(folder), oracle.read_hub(folder)
    config = json.loads((folder / "config.json").read_text())
    for ids, _ in expected(folder):
        assert apart(logits(model, ids), oracle.logits(arrays, config, ids)) < 1e-4


PLAIN: dict[str, Any] = checkpoints.TINY | {"activation_function": "gelu_new"}
SAME_AS_PLAIN = [
    {"activation_function": "gelu_fast"},
    {"activation_function": "gelu_pytorch_tanh"},
    {"reorder_and_upcast_attn": True},
]
OTHERS = [
    {"activation_function": "gelu"},
    {"activation_function": "quick_gelu"},
    {"activation_function": "relu"},
    {"activation_function": "silu"},
    {"activation_function": "swish"},
    {"activation_function": "tanh"},
    {"scale_attn_weights": False},
    {"scale_attn_by_inverse_layer_idx": True},
    {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
    {"layer_norm_epsilon": 1e-3},
]


@pytest.mark.parametrize("changes", [{}, *SAME_AS_PLAIN, *OTHERS], ids=str)
def test_a_field_that_changes_the_arithmetic_changes_it_as_in_the_oracle(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = PLAIN | changes
    arrays = checkpoints.random_arrays(config)
    ours = logits(opened(checkpoints.write(tmp_path / "model", config)), IDS)
    assert apart(ours, oracle.logits(arrays, config, IDS)) < 1e-4
    if changes in OTHERS:  # and a program that drops the field fails here
        assert apart(ours, oracle.logits(arrays, PLAIN, IDS)) > 5e-4


@pytest.mark.parametrize(
    "changes",
    [
        {"n_inner": 7},
        {"n_inner": 200},
        {"n_head": 1},
        {"n_head": 24},
        {"n_layer": 1},
        {"n_layer": 5},
        {"n_positions": 12},
        {"vocab_size": 64},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_a_network_of_any_shape_gives_the_logits_of_the_oracle(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = PLAIN | changes
    ours = logits(opened(checkpoints.write(tmp_path / "model", config)), IDS)
    assert apart(ours, oracle.logits(checkpoints.random_arrays(config), config, IDS)) < 1e-4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_embd": 64, "n_head": 4, "n_layer": 3, "n_inner": 96, "vocab_size": 300},
        {"n_embd": 40, "n_head": 5, "layer_norm_epsilon": 1e-3, "tie_word_embeddings": False},
        {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "n_layer": 4},
        *({"activation_function": name} for name in oracle.ACTIVATIONS),
    ],
    ids=str,
)
def test_a_model_that_transformers_saved_gives_the_logits_that_it_computes(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers")
    config = {"bos_token_id": None, "eos_token_id": None} | PLAIN | changes
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**config, attn_implementation="eager")
    ).eval()
    arrays = {name: torch.from_numpy(a) for name, a in checkpoints.random_arrays(config).items()}
    theirs.lm_head.weight.data = arrays.pop("lm_head.weight", arrays["wte.weight"])
    theirs.transformer.load_state_dict(arrays)
    theirs.save_pretrained(tmp_path)
    with torch.inference_mode():
        said = theirs(torch.tensor([IDS])).logits[0].numpy()
    assert Checkpoint.open(tmp_path).notes == ()
    assert apart(logits(opened(tmp_path), IDS), said) < 1e-4


# The cache


def test_every_split_of_a_prompt_into_chunks_and_steps_gives_the_logits_of_one_pass(
    model: GPT2,
) -> None:
    whole = logits(model, IDS)
    cache = KVCache.empty(model.config, 1, len(IDS))
    passes = 0

    def go_on(start: int) -> None:
        nonlocal passes
        for stop in range(start + 1, len(IDS) + 1):
            cache.lengths[0] = start
            assert apart(logits(model, IDS[start:stop], cache), whole[start:stop]) < 1e-4
            assert cache.lengths.tolist() == [stop]
            passes += 1
            go_on(stop)

    go_on(0)
    assert passes == 2**12 - 1  # every way to split each of the 12 beginnings


@pytest.mark.parametrize("chunk", [1, 63, 64, 65, 128, 129])
def test_chunks_across_the_blocks_of_the_cache_give_the_logits_of_one_pass(
    tmp_path: Path, chunk: int
) -> None:
    model = opened(checkpoints.write(tmp_path / "model", checkpoints.TINY | {"n_positions": 140}))
    ids = np.random.default_rng(3).integers(61, size=140).tolist()
    whole, cache = logits(model, ids), KVCache.empty(model.config, 1, 140)
    for start in range(0, 140, chunk):
        part = ids[start : start + chunk]
        assert apart(logits(model, part, cache), whole[start : start + len(part)]) < 1e-4


@torch.inference_mode()
def padded(model: GPT2, rows: list[list[int]], cache: KVCache) -> list[np.ndarray]:
    """The logits of unequal rows that run together, each row's own alone."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    every = model.unembed(model.hidden(ids, cache, [len(row) for row in rows])).numpy()
    return [every[n, : len(row)] for n, row in enumerate(rows)]


def test_unequal_prompts_in_one_batch_give_the_logits_of_each_alone(model: GPT2) -> None:
    texts = [[9, *IDS], [44, 3, *IDS], IDS]
    cache = KVCache.empty(model.config, 3, model.config.n_positions)
    place = [0, 0, 0]
    for counts in ([1, 3, 7], [1, 1, 1], [4, 1, 2], [1, 1, 1]):
        rows = [t[p : p + n] for t, p, n in zip(texts, place, counts, strict=True)]
        together = padded(model, rows, cache)
        for text, start, count, ours in zip(texts, place, counts, together, strict=True):
            alone = logits(model, text[: start + count])
            assert apart(ours, alone[start:]) < 1e-5
        place = [p + n for p, n in zip(place, counts, strict=True)]
        assert cache.lengths.tolist() == place


def test_padding_may_lie_past_the_last_position(model: GPT2) -> None:
    full = [*IDS, 1, 2, 3, 4]  # n_positions tokens
    cache = KVCache.empty(model.config, 2, 20)
    padded(model, [full[:15], full[:3]], cache)
    first, second = padded(model, [full[15:], [7, 6, 5]], cache)
    assert apart(first, logits(model, full)[15:]) < 1e-5
    assert apart(second, logits(model, [*full[:3], 7, 6, 5])[3:]) < 1e-5


def test_a_row_rewound_ended_or_replaced_leaves_nothing_of_its_past(model: GPT2) -> None:
    cache = KVCache.empty(model.config, 3, 12)
    padded(model, [IDS[:9], IDS[3:8], [60] * 10], cache)
    cache.lengths[0] = 4  # rewound
    cache.lengths[1] = 0  # ended, and another begins
    cache.copy_row(0, 2, 3)  # replaced by what row 0 begins with
    assert cache.lengths.tolist() == [4, 0, 3]
    rows = padded(model, [[1, 2], [50, 4, 9], [30]], cache)
    for ours, text in zip(rows, [[*IDS[:4], 1, 2], [50, 4, 9], [*IDS[:3], 30]], strict=True):
        assert apart(ours, logits(model, text)[-len(ours) :]) < 1e-5


def test_some_rows_of_a_cache_advance_without_the_others(model: GPT2) -> None:
    cache = KVCache.empty(model.config, 3, 12)
    padded(model, [IDS[:2], IDS[:5], IDS[:4]], cache)
    part = logits(model, [7], cache.rows(1, 2))
    assert apart(part, logits(model, [*IDS[:5], 7])[5:]) < 1e-5
    assert cache.lengths.tolist() == [2, 6, 4]


def test_a_window_masks_and_places_each_row_by_its_own_length(model: GPT2) -> None:
    cache = KVCache.empty(model.config, 2, 64)
    cache.lengths[:] = torch.tensor([0, 3])
    window = cache.window(2)
    assert window.positions.tolist() == [[0, 1], [3, 4]]
    assert window.mask.shape == (2, 1, 4, 64)
    seen = window.mask == 0
    assert seen[:, 0, :2].sum(-1).tolist() == [[1, 2], [4, 5]]
    assert seen[1, 0, 1].tolist() == [key <= 4 for key in range(64)]
    assert (window.mask[~seen] == -torch.inf).all()
    assert cache.lengths.tolist() == [0, 3]


def test_what_does_not_fit_is_refused_before_the_cache_changes(model: GPT2) -> None:
    n_positions = model.config.n_positions
    assert logits(model, [1] * n_positions).shape == (n_positions, 61)
    with pytest.raises(ValueError, match="17 tokens are more than n_positions 16"):
        logits(model, [1] * (n_positions + 1))
    cache = KVCache.empty(model.config, 1, n_positions)
    logits(model, IDS, cache)
    with pytest.raises(ValueError, match="17 tokens are more than n_positions 16"):
        logits(model, [1] * 5, cache)
    with pytest.raises(ValueError, match="76 tokens do not fit into a cache of 64"):
        logits(model, [1] * 64, cache)
    assert cache.lengths.tolist() == [12]


def test_a_cache_is_as_large_as_the_call_needs_in_whole_blocks(model: GPT2) -> None:
    for tokens, capacity in ((1, 64), (64, 64), (65, 128)):
        cache = KVCache.empty(model.config, 5, tokens)
        assert cache.keys.shape == cache.values.shape == (2, 5, 3, capacity, 8)


def test_generation_unembeds_one_position_a_text_and_pass(
    model: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    unembed = GPT2.unembed

    def counting(self: GPT2, hidden: torch.Tensor) -> torch.Tensor:
        counted.append(hidden[..., 0].numel())
        return unembed(self, hidden)

    monkeypatch.setattr(GPT2, "unembed", counting)
    steps = list(generate(model, [Request(tuple(IDS), 3)]))
    assert len(steps) == 3
    assert set(counted) == {1}


# The modules


def test_modules_carry_the_released_names_and_nothing_beside(model: GPT2) -> None:
    released = oracle.read_hub(FIXTURES / "hub" / "hub-released")
    masks = {f"h.{layer}.attn.bias" for layer in range(3)}
    theirs = {name: array.shape for name, array in released.items() if name not in masks}
    checkpoint = Checkpoint.open(FIXTURES / "hub" / "hub-released")
    state = load(checkpoint, packed=False).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == theirs
    assert list(model.buffers()) == []


def test_a_block_maps_rows_to_rows_with_as_many_parameters_as_its_layers_add_up_to() -> None:
    block = Block(GPT2Config(vocab_size=1, n_positions=8, n_embd=64, n_layer=1, n_head=4))
    assert block(torch.randn(2, 8, 64)).shape == (2, 8, 64)
    norms, attention = 2 * (64 + 64), (64 * 192 + 192) + (64 * 64 + 64)
    mlp = (64 * 256 + 256) + (256 * 64 + 64)
    assert norms + attention + mlp == 49_984
    assert sum(parameter.numel() for parameter in block.parameters()) == 49_984


class TextbookBlock(nn.Module):
    """A pre-norm block as courses write it: four square projections and a Sequential."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        split = (rows, tokens, self.heads, width // self.heads)
        query, key, value = (
            w(x).view(split).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v)
        )
        scores = query @ key.transpose(2, 3) / split[-1] ** 0.5
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.W_o((weights @ value).transpose(1, 2).reshape(x.shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def test_a_textbook_block_with_its_projections_fused_is_a_block() -> None:
    torch.manual_seed(0)
    textbook = TextbookBlock(64, 4)
    for parameter in textbook.parameters():
        nn.init.normal_(parameter, std=0.3)
    config = GPT2Config(1, 8, n_embd=64, n_layer=1, n_head=4, activation_function="gelu")
    block = Block(config)
    fused = [textbook.W_q, textbook.W_k, textbook.W_v]
    state = {
        "attn.c_attn.weight": torch.cat([w.weight for w in fused]).T,
        "attn.c_attn.bias": torch.cat([w.bias for w in fused]),
        "attn.c_proj.weight": textbook.W_o.weight.T,
        "attn.c_proj.bias": textbook.W_o.bias,
        "mlp.c_fc.weight": textbook.mlp[0].weight.T,
        "mlp.c_fc.bias": textbook.mlp[0].bias,
        "mlp.c_proj.weight": textbook.mlp[2].weight.T,
        "mlp.c_proj.bias": textbook.mlp[2].bias,
        "ln_1.weight": textbook.norm1.weight,
        "ln_1.bias": textbook.norm1.bias,
        "ln_2.weight": textbook.norm2.weight,
        "ln_2.bias": textbook.norm2.bias,
    }
    block.load_state_dict(state)
    x = torch.randn(2, 8, 64)
    with torch.inference_mode():
        assert torch.allclose(block(x), textbook(x), rtol=0, atol=1e-4)
