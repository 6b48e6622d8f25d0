"""nanoGPT's model in a few lines of torch.nn.functional, and its checkpoints.

Written from the published names, shapes and arguments of its model.py: every dense weight is that
of an nn.Linear, the GELU is the erf form, the head is wte. It shares nothing with the program.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

State = dict[str, torch.Tensor]


def names(args: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the state dict of a model with these arguments."""
    width = args["n_embd"]
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (args["vocab_size"], width),
        "transformer.wpe.weight": (args["block_size"], width),
    }
    for layer in range(args["n_layer"]):
        block = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            shapes[f"{block}{norm}.weight"] = (width,)
            shapes[f"{block}{norm}.bias"] = (width,)
        for dense, n_out, n_in in (
            ("attn.c_attn", 3 * width, width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", 4 * width, width),
            ("mlp.c_proj", width, 4 * width),
        ):
            shapes[f"{block}{dense}.weight"] = (n_out, n_in)
            shapes[f"{block}{dense}.bias"] = (n_out,)
    shapes |= {"transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}
    return {
        name: shape for name, shape in shapes.items() if args["bias"] or not name.endswith("bias")
    }


def random_state(args: dict[str, Any], seed: int = 0) -> State:
    """A state dict in which no bias is zero and no gain is one, its head tied."""
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: torch.randn(shape, generator=generator) * (0.4 if len(shape) == 1 else 0.3)
        + (1.2 if "ln_" in name and name.endswith("weight") else 0)
        for name, shape in names(args).items()
    }
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def read(path: Path) -> tuple[dict[str, Any], State]:
    """The arguments and state dict of a checkpoint, as sample.py reads them."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    state = {name.removeprefix("_orig_mod."): t for name, t in saved["model"].items()}
    wanted = names(saved["model_args"])
    assert state.keys() == {*wanted, "lm_head.weight"}
    assert all(tuple(state[name].shape) == shape for name, shape in wanted.items())
    assert torch.equal(state["lm_head.weight"], state["transformer.wte.weight"])
    return saved["model_args"], state


def expected(folder: Path) -> list[tuple[list[int], np.ndarray]]:
    said = json.loads((folder / "expected.json").read_text())
    return list(zip(said["input_ids"], map(np.array, said["logits"]), strict=True))


@torch.inference_mode()
def logits(state: State, args: dict[str, Any], ids: list[int]) -> torch.Tensor:
    """The logits after each of a row of ids, float32 [T, V]."""

    def part(name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        return state[f"transformer.{name}.weight"], state.get(f"transformer.{name}.bias")

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = part(name)
        return F.layer_norm(x, weight.shape, weight, bias, 1e-5)

    count, width, heads = len(ids), args["n_embd"], args["n_head"]
    x = part("wte")[0][ids] + part("wpe")[0][:count]
    for layer in range(args["n_layer"]):
        fused = F.linear(norm(f"h.{layer}.ln_1", x), *part(f"h.{layer}.attn.c_attn"))
        q, k, v = (
            each.view(count, heads, width // heads).transpose(0, 1)
            for each in fused.split(width, dim=1)
        )
        scores = q @ k.transpose(1, 2) / (width // heads) ** 0.5
        hidden = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)
        mixed = (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1)
        x = x + F.linear(mixed.reshape(count, width), *part(f"h.{layer}.attn.c_proj"))
        inner = F.gelu(F.linear(norm(f"h.{layer}.ln_2", x), *part(f"h.{layer}.mlp.c_fc")))
        x = x + F.linear(inner, *part(f"h.{layer}.mlp.c_proj"))
    return norm("ln_f", x) @ state["lm_head.weight"].T
