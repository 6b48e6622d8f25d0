"""GPT-2 in float64 numpy, written apart from the model: what a self-test compares with.

It takes arrays under released names and shares no arithmetic with `model.py`: sums are einsum's,
attention goes query by query over the keys that the query may see.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..config import GPT2Config

Array = NDArray[np.float64]


def logits(arrays: Mapping[str, Array], config: GPT2Config, ids: NDArray[np.int64]) -> Array:
    """Logits [B, T, V] of ids [B, T]; the activation is GELU's tanh form."""
    return np.stack([_row(arrays, config, row) for row in ids])


def _row(arrays: Mapping[str, Array], config: GPT2Config, ids: NDArray[np.int64]) -> Array:
    x = arrays["wte.weight"][ids] + arrays["wpe.weight"][: len(ids)]
    for layer in range(config.n_layer):
        block = f"h.{layer}."
        x = x + _attention(arrays, config, layer, _norm(arrays, config, f"{block}ln_1", x))
        inner = _dense(arrays, f"{block}mlp.c_fc", _norm(arrays, config, f"{block}ln_2", x))
        x = x + _dense(arrays, f"{block}mlp.c_proj", _gelu(inner))
    head = arrays["wte.weight" if config.tie_word_embeddings else "lm_head.weight"]
    out: Array = np.einsum("tc,vc->tv", _norm(arrays, config, "ln_f", x), head)
    return out


def _attention(arrays: Mapping[str, Array], config: GPT2Config, layer: int, x: Array) -> Array:
    fused = _dense(arrays, f"h.{layer}.attn.c_attn", x).reshape(len(x), 3, config.n_head, -1)
    scale = config.attention_scale(layer)
    mixed = np.empty((len(x), config.n_head, config.head_dim))
    for t in range(len(x)):
        query, keys, values = fused[t, 0], fused[: t + 1, 1], fused[: t + 1, 2]
        scores = scale * np.einsum("hd,shd->hs", query, keys)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed[t] = np.einsum("hs,shd->hd", weights, values)
    return _dense(arrays, f"h.{layer}.attn.c_proj", mixed.reshape(len(x), -1))


def _dense(arrays: Mapping[str, Array], name: str, x: Array) -> Array:
    product: Array = np.einsum("ti,io->to", x, arrays[f"{name}.weight"])
    return product + arrays[f"{name}.bias"]


def _norm(arrays: Mapping[str, Array], config: GPT2Config, name: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    deviation: Array = np.sqrt((centred**2).mean(-1, keepdims=True) + config.layer_norm_epsilon)
    scaled: Array = centred / deviation
    return scaled * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    bend: Array = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + bend)
