"""GGUF files of tiny random networks, written by the gguf package as llama.cpp's converter does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

PARTS = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
WHOLE = {
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}


def gguf_name(released: str) -> str:
    """The name that llama.cpp has for a released tensor."""
    if released in WHOLE:
        return WHOLE[released]
    _, layer, rest = released.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def is_dense(released: str) -> bool:
    return released.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def write(
    path: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    architecture: str = "gpt2",
    tokens: Sequence[tuple[str, int]] = (),
    merges: Sequence[str] = (),
    more: Mapping[str, object] | None = None,
) -> Path:
    """A file whose matrices are of a type, and everything else float32.

    `tokens` are texts with their kinds; `more` are further values of the metadata.
    """
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config.get("layer_norm_epsilon", 1e-5))
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([text for text, _ in tokens])
        writer.add_token_types([number for _, number in tokens])
        writer.add_token_merges(list(merges))
    for key, value in (more or {}).items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_string
        add(key, value)
    for name, array in arrays.items():
        stored = np.ascontiguousarray(array.T) if is_dense(name) else array
        if stored.ndim == 2 and kind != GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), blocks(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def blocks(array: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """An array as blocks of a type; for K-quants, which the package does not make, random ones."""
    try:
        return gguf.quantize(array, kind)
    except NotImplementedError:
        size, nbytes = gguf.GGML_QUANT_SIZES[kind]
        numbers = np.random.default_rng(array.size)
        count = array.shape[0] * array.shape[1] // size
        made = numbers.integers(0, 256, (count, nbytes), dtype=np.uint8)
        _tame(made, kind)
        return made.reshape(array.shape[0], -1)


def _tame(made: np.ndarray, kind: GGMLQuantizationType) -> None:
    """Give random blocks scales that leave weights of a usual size."""
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for place in places[kind.name]:
        made[:, place : place + 2] = np.full((len(made), 1), 5e-4, np.float16).view(np.uint8)
