"""Writes tiny random checkpoints as the Hub stores them, for tests of whatever reads them.

The numbers are chosen so that mistakes show: no bias is zero, no gain near 1, no two positions are
alike, and activations are large enough to tell one GELU, epsilon or attention scale from another.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]

TINY: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 61,
    "n_positions": 16,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 3,
}

_CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL", "float64": "F64"}


def random_arrays(config: Mapping[str, Any] = TINY, seed: int = 0) -> dict[str, np.ndarray]:
    """Float32 numbers for every released name of a config, with a head where it is untied."""
    numbers = np.random.default_rng(seed)
    width, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]

    def normal(std: float, *shape: int) -> np.ndarray:
        return (std * numbers.standard_normal(shape)).astype(np.float32)

    def norm(name: str) -> dict[str, np.ndarray]:
        gain = numbers.uniform(0.4, 2.5, width).astype(np.float32)
        return {f"{name}.weight": gain, f"{name}.bias": normal(0.5, width)}

    def dense(name: str, n_in: int, n_out: int) -> dict[str, np.ndarray]:
        weight = normal(1.2 / np.sqrt(n_in), n_in, n_out)
        return {f"{name}.weight": weight, f"{name}.bias": normal(0.5, n_out)}

    arrays = {
        "wte.weight": normal(0.2, config["vocab_size"], width),
        "wpe.weight": normal(0.2, config["n_positions"], width),
    }
    for layer in range(config["n_layer"]):
        block = f"h.{layer}."
        arrays |= norm(block + "ln_1")
        arrays |= dense(block + "attn.c_attn", width, 3 * width)
        arrays |= dense(block + "attn.c_proj", width, width)
        arrays |= norm(block + "ln_2")
        arrays |= dense(block + "mlp.c_fc", width, inner)
        arrays |= dense(block + "mlp.c_proj", inner, width)
    arrays |= norm("ln_f")
    if config.get("tie_word_embeddings") is False:
        arrays["lm_head.weight"] = normal(0.3, config["vocab_size"], width)
    return arrays


def write(
    folder: Path,
    config: Mapping[str, Any] = TINY,
    *,
    arrays: Arrays | None = None,
    prefix: str = "",
    dtype: str = "float32",
    extra: Arrays | None = None,
    seed: int = 0,
    pad: int = 0,
) -> Path:
    """A Hub folder of `config` and one safetensors file; `arrays` are random unless given.

    `prefix` goes before the name of each array, `extra` are stored as they are, and `pad` spaces
    follow the header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    numbers = random_arrays(config, seed) if arrays is None else arrays
    named = {prefix + name: cast(array, dtype) for name, array in numbers.items()}
    save(folder / "model.safetensors", named | dict(extra or {}), pad=pad)
    return folder


def write_shards(
    folder: Path, shards: Mapping[str, Arrays], config: Mapping[str, Any] = TINY
) -> Path:
    """A Hub folder of the arrays that each named shard holds, and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    for shard, arrays in shards.items():
        save(folder / shard, arrays)
    write_index(folder, {name: shard for shard, arrays in shards.items() for name in arrays})
    return folder


def write_index(folder: Path, weight_map: object) -> None:
    """The index that names the shard of each tensor."""
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def save(path: Path, arrays: Arrays, *, pad: int = 0) -> None:
    """One safetensors file; an array of uint16 holds bfloat16 numbers."""
    rows: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        kind = "bfloat16" if array.dtype == np.uint16 else array.dtype.name
        end = len(data) + array.nbytes
        rows[name] = row(_CODES[kind], array.shape, len(data), end)
        data += np.ascontiguousarray(array).tobytes()
    path.write_bytes(packed(rows, data, pad=pad))


def row(code: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, object]:
    """One row of a safetensors header."""
    return {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}


def packed(header: object, data: bytes = b"", *, pad: int = 0) -> bytes:
    """The bytes of a safetensors file with this header, sound or not."""
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text + data


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    """`array` in a stored type; bfloat16 as the upper halves of float32, in uint16."""
    if dtype == "bfloat16":
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2")
    return array.astype(dtype)
