"""GGUF files of architecture gpt2; what is quantised is turned into numbers by the gguf package.

Names and metadata are those of llama.cpp's converter (``GPT2Model`` of convert_hf_to_gguf.py,
https://github.com/ggml-org/llama.cpp), where dense weights are [out, in] and the GELU is the tanh
form. Float types are mapped; what is quantised becomes float32 when it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ParsedConfig, parse_config
from ..errors import GPT2Error, listing
from ..layout import CONV1D, HEAD
from .gguf_header import BigEndianError, Header, Info, read_header
from .mapping import MappedFile
from .protobuf import WireError
from .stored import Source, StoredTensor, turned

if TYPE_CHECKING:
    import torch
    from gguf import GGMLQuantizationType

MAGIC = b"GGUF"

_PARTS = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_WHOLE = {
    "token_embd.weight": "wte.weight",
    "position_embd.weight": "wpe.weight",
    "output_norm.weight": "ln_f.weight",
    "output_norm.bias": "ln_f.bias",
    "output.weight": HEAD,
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

_ROWS = 512  # dequantised at a time

# Types that torch has too, by ggml's number: torch's name and bytes a number.
_FLOATS = {0: ("float32", 4), 1: ("float16", 2), 30: ("bfloat16", 2)}

_SIZES = {
    "gpt2.context_length": "n_positions",
    "gpt2.embedding_length": "n_embd",
    "gpt2.feed_forward_length": "n_inner",
    "gpt2.block_count": "n_layer",
    "gpt2.attention.head_count": "n_head",
    "gpt2.attention.layer_norm_epsilon": "layer_norm_epsilon",
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
}


def is_gguf(path: Path) -> bool:
    """Whether there is a GGUF file at `path`."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def open_file(path: Path) -> Source:
    """The checkpoint in a GGUF file.

    Raises GPT2Error for another architecture, for a file in parts, for a damaged one, and for
    quantised tensors without the gguf package.
    """
    file = MappedFile(path)
    header = _header(file)
    tensors = {info.name: _stored(file, info) for info in header.tensors}
    _check_places(file, header.tensors, tensors)
    parsed = _config(file, header, tensors)
    stored = [
        turned(tensor) if (_released(name) or "").endswith(CONV1D) else tensor
        for name, tensor in tensors.items()
    ]
    return Source("gguf", parsed, stored, lambda tensor: _released(tensor.name), file.size)


def metadata(path: Path) -> dict[str, Any]:
    """The metadata of a file: what its header says besides tensors."""
    return _header(MappedFile(path)).metadata


def _header(file: MappedFile) -> Header:
    try:
        return read_header(file)
    except BigEndianError as error:
        message = f"{file.path} is big-endian, which is not read; convert it again"
        raise GPT2Error(message) from error
    except WireError as error:
        raise GPT2Error(
            f"{file.path} is cut off, damaged, or of a form that is not known ({error}); fetch the "
            "file again"
        ) from error


def _check_places(file: MappedFile, infos: list[Info], tensors: dict[str, StoredTensor]) -> None:
    """No tensor reaches into another or past the end."""
    place = 0
    for info in sorted(infos, key=lambda info: info.offset):
        if info.offset < place:
            raise GPT2Error(f"{file.path}: {info.name} overlaps another tensor; convert it again")
        place = info.offset + tensors[info.name].nbytes
        file.read(place, 0)


def _config(file: MappedFile, header: Header, tensors: dict[str, StoredTensor]) -> ParsedConfig:
    """The config that the metadata and the shapes describe."""
    path, values = file.path, header.metadata
    architecture = values.get("general.architecture")
    if architecture != "gpt2":
        raise GPT2Error(f"{path} holds a model of architecture {architecture!r}, not gpt2")
    if values.get("split.count", 1) not in (0, 1):
        raise GPT2Error(f"{path} is one of several parts; merge them with llama-gguf-split --merge")
    wte = tensors.get("token_embd.weight")
    if wte is None or not wte.shape:
        raise GPT2Error(
            f"{path} holds no token_embd.weight; its first tensors are {listing([*tensors])}"
        )
    data: dict[str, Any] = {name: values[key] for key, name in _SIZES.items() if key in values}
    if isinstance(epsilon := data.get("layer_norm_epsilon"), float):
        data["layer_norm_epsilon"] = float(f"{epsilon:.7g}")  # 1e-05, which float32 only approaches
    width, inner = data.get("n_embd"), data.get("n_inner")
    if isinstance(width, int) and inner == 4 * width:
        data["n_inner"] = None
    data["vocab_size"] = wte.shape[0]
    data["tie_word_embeddings"] = _tied(file, header)
    return parse_config(data, str(path))


def _tied(file: MappedFile, header: Header) -> bool:
    """Whether the head is wte: not stored, or stored as a copy, as older converters did."""
    infos = {info.name: info for info in header.tensors}
    wte, head = infos["token_embd.weight"], infos.get("output.weight")
    if head is None:
        return True
    if (head.kind, head.shape) != (wte.kind, wte.shape):
        return False
    nbytes = _stored(file, wte).nbytes
    pieces = (file.chunks(info.offset, nbytes) for info in (wte, head))
    return all(ours == theirs for ours, theirs in zip(*pieces, strict=True))


def _released(name: str) -> str | None:
    if found := _BLOCK.fullmatch(name):
        layer, part, kind = found.groups()
        return f"h.{layer}.{_PARTS[part]}.{kind}" if part in _PARTS else None
    return _WHOLE.get(name)


def _stored(file: MappedFile, info: Info) -> StoredTensor:
    count, place = math.prod(info.shape), info.offset
    if info.kind in _FLOATS:
        dtype, itemsize = _FLOATS[info.kind]
        nbytes, remark = count * itemsize, ""
        read: Callable[[], torch.Tensor] = partial(file.tensor, place, info.shape, dtype)
    else:
        kind, block, block_bytes = _quantised(file.path, info)
        nbytes, remark = count // block * block_bytes, f"dequantised from {kind.name}"
        dtype = "float32" if _dequantises(kind) else kind.name
        read = partial(_dequantised, file, info, kind, nbytes)
    release = partial(file.release, place, nbytes)
    return StoredTensor(info.name, info.shape, dtype, nbytes, file.path, read, release, remark)


def _quantised(path: Path, info: Info) -> tuple[GGMLQuantizationType, int, int]:
    """The type of a tensor that torch does not have: numbers and bytes of a block."""
    try:
        from gguf import GGML_QUANT_SIZES
    except ImportError as error:
        raise GPT2Error(
            f"{path} is quantised, and the gguf package that turns its blocks into numbers is not "
            "installed; pip install 'gpt2cli[gguf]'"
        ) from error
    kinds = {kind.value: kind for kind in GGML_QUANT_SIZES}
    if info.kind not in kinds:
        raise GPT2Error(f"{path}: {info.name} is of ggml's type {info.kind}, which is not known")
    block, block_bytes = GGML_QUANT_SIZES[kinds[info.kind]]
    if not info.shape or info.shape[-1] % block:
        raise GPT2Error(f"{path}: {info.name} has rows that are no whole blocks; convert it again")
    return kinds[info.kind], block, block_bytes


@lru_cache
def _dequantises(kind: GGMLQuantizationType) -> bool:
    """Whether the package turns blocks of this type into numbers; one of zeros tells."""
    import numpy as np
    from gguf import GGML_QUANT_SIZES, dequantize

    try:
        dequantize(np.zeros(GGML_QUANT_SIZES[kind][1], np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _dequantised(
    file: MappedFile, info: Info, kind: GGMLQuantizationType, nbytes: int
) -> torch.Tensor:
    """The float32 numbers of a tensor: rows at a time, as the package makes twice their size."""
    import numpy as np
    import torch
    from gguf import dequantize

    numbers = np.empty((math.prod(info.shape[:-1]), info.shape[-1]), np.float32)
    row_bytes = nbytes // max(1, len(numbers))
    with np.errstate(all="ignore"):  # a damaged scale gives NaN, which is refused by name
        for start in range(0, len(numbers), _ROWS):
            rows = numbers[start : start + _ROWS]
            data = file.read(info.offset + start * row_bytes, len(rows) * row_bytes)
            blocks = np.frombuffer(data, np.uint8).reshape(len(rows), row_bytes)
            rows[:] = dequantize(blocks, kind)
    return torch.from_numpy(numbers.reshape(info.shape))
