"""GPT-2 in float64 numpy, a position and a head at a time: the arithmetic that tests compare with.

Slow and plain on purpose. It reads the arrays of a file by itself and shares nothing with the
program it judges.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


def _each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.array([function(float(value)) for value in x])


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_erf(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


ACTIVATIONS = {
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu": _gelu_erf,
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x * _sigmoid(x),
    "swish": lambda x: x * _sigmoid(x),
    "tanh": math.tanh,
}


def logits(arrays: Arrays, config: Mapping[str, Any], ids: Sequence[int]) -> np.ndarray:
    """The logits after each of `ids`, float64 [T, V], of the network in released names."""
    x = [arrays["wte.weight"][token] + arrays["wpe.weight"][t] for t, token in enumerate(ids)]
    for layer in range(config["n_layer"]):
        part = {
            name.removeprefix(f"h.{layer}."): array
            for name, array in arrays.items()
            if name.startswith(f"h.{layer}.")
        }
        x = _block(part, config, layer, x)
    head = (
        arrays["wte.weight"]
        if config.get("tie_word_embeddings", True)
        else arrays["lm_head.weight"]
    )
    return np.array([head @ _norm(arrays, "ln_f", config, row) for row in x])


def _block(
    part: Arrays, config: Mapping[str, Any], layer: int, x: list[np.ndarray]
) -> list[np.ndarray]:
    width, n_head = config["n_embd"], config["n_head"]
    head_dim = width // n_head
    scale = 1 / math.sqrt(head_dim) if config.get("scale_attn_weights", True) else 1.0
    if config.get("scale_attn_by_inverse_layer_idx", False):
        scale /= layer + 1
    activation = _each(ACTIVATIONS[config.get("activation_function", "gelu_new")])
    fused = [_dense(part, "attn.c_attn", _norm(part, "ln_1", config, row)) for row in x]
    out = []
    for t in range(len(x)):
        heads = []
        for head in range(n_head):
            own = slice(head * head_dim, (head + 1) * head_dim)
            query = fused[t][:width][own]
            keys = [row[width : 2 * width][own] for row in fused[: t + 1]]
            values = [row[2 * width :][own] for row in fused[: t + 1]]
            scores = [scale * float(query @ key) for key in keys]
            weights = [math.exp(score - max(scores)) for score in scores]
            heads.append(sum(w / sum(weights) * v for w, v in zip(weights, values, strict=True)))
        middle = x[t] + _dense(part, "attn.c_proj", np.concatenate(heads))
        inner = activation(_dense(part, "mlp.c_fc", _norm(part, "ln_2", config, middle)))
        out.append(middle + _dense(part, "mlp.c_proj", inner))
    return out


def _dense(part: Arrays, name: str, row: np.ndarray) -> np.ndarray:
    return row @ part[f"{name}.weight"] + part[f"{name}.bias"]


def _norm(part: Arrays, name: str, config: Mapping[str, Any], row: np.ndarray) -> np.ndarray:
    centred = row - row.mean()
    deviation = math.sqrt((centred**2).mean() + config.get("layer_norm_epsilon", 1e-5))
    return centred / deviation * part[f"{name}.weight"] + part[f"{name}.bias"]


def read_hub(folder: Path) -> dict[str, np.ndarray]:
    """The float64 arrays of a Hub folder's safetensors files, in released names."""
    arrays: dict[str, np.ndarray] = {}
    for path in folder.glob("*.safetensors"):
        raw = path.read_bytes()
        data = 8 + int.from_bytes(raw[:8], "little")
        for name, row in json.loads(raw[8:data]).items():
            if name != "__metadata__" and row["dtype"] in _DECODERS:
                begin, end = row["data_offsets"]
                numbers = _DECODERS[row["dtype"]](raw[data + begin : data + end])
                arrays[name.removeprefix("transformer.")] = numbers.reshape(row["shape"])
    return arrays


_DECODERS: dict[str, Callable[[bytes], np.ndarray]] = {
    "F32": lambda raw: np.frombuffer(raw, "<f4").astype(np.float64),
    "F16": lambda raw: np.frombuffer(raw, "<f2").astype(np.float64),
    "BF16": lambda raw: (
        (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    ),
}


def read_openai(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and sizes of an OpenAI checkpoint whose one shard holds its variables alone.

    TensorFlow's Saver writes them one after another in the order of their names.
    """
    config = json.loads((folder / "hparams.json").read_text())
    width = config["n_embd"]
    shapes = {"wte": (config["n_vocab"], width), "wpe": (config["n_ctx"], width)}
    shapes |= {f"ln_f/{part}": (width,) for part in "gb"}
    for layer in range(config["n_layer"]):
        shapes |= {
            f"h{layer}/{norm}/{part}": (width,) for norm in ("ln_1", "ln_2") for part in "gb"
        }
        for name, n_in, n_out in (
            ("attn/c_attn", width, 3 * width),
            ("attn/c_proj", width, width),
            ("mlp/c_fc", width, 4 * width),
            ("mlp/c_proj", 4 * width, width),
        ):
            shapes |= {f"h{layer}/{name}/w": (n_in, n_out), f"h{layer}/{name}/b": (n_out,)}
    (shard,) = folder.glob("*.data-*")
    numbers = np.fromfile(shard, "<f4").astype(np.float64)
    arrays, place = {}, 0
    for name in sorted(shapes):
        size = math.prod(shapes[name])
        arrays[_released(name)] = numbers[place : place + size].reshape(shapes[name])
        place += size
    assert place == len(numbers)
    return arrays, config


def _released(name: str) -> str:
    """``h0/attn/c_attn/w`` → ``h.0.attn.c_attn.weight``."""
    *parts, last = name.replace("h", "h.", 1).split("/") if name[0] == "h" else name.split("/")
    if not parts:
        return f"{last}.weight"
    return ".".join([*parts, "bias" if last == "b" else "weight"])
