"""GGUF files of architecture gpt2, read and dequantised by the gguf package.

Names and metadata are those of llama.cpp's converter (``GPT2Model`` of convert_hf_to_gguf.py,
https://github.com/ggml-org/llama.cpp), where dense weights are [out, in] and the GELU is the tanh
form. Float types are mapped; what is quantised becomes float32 when it is read.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ParsedConfig, parse_config
from ..errors import GPT2Error, listing
from ..layout import CONV1D, HEAD, Shape
from .mapping import MappedFile
from .stored import Source, StoredTensor, turned

if TYPE_CHECKING:
    import numpy as np
    import torch
    from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor

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

# Types that torch has too, by ggml's name.
_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

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

    Raises GPT2Error without the gguf package, for another architecture, for a file in parts, and
    for a damaged one.
    """
    reader = _reader(path)
    found = {tensor.name: tensor for tensor in reader.tensors}
    parsed = _config(path, reader, found)
    file = MappedFile(path)
    stored = [_stored(file, tensor) for tensor in reader.tensors]
    return Source("gguf", parsed, stored, lambda tensor: _released(tensor.name), file.size)


def metadata(path: Path, key: str) -> Any:
    """One value of a file's metadata, None where it has no such key."""
    return _value(_reader(path), key)


def _reader(path: Path) -> GGUFReader:
    try:
        return _read(path, os.stat(path).st_mtime_ns)  # noqa: PTH116
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror or error}") from error


@lru_cache(maxsize=1)
def _read(path: Path, _changed: int) -> GGUFReader:
    """The reader of a file. Over 50,000 tokens it takes a second or two, so it is kept."""
    import numpy as np

    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise GPT2Error(
            f"{path} is a GGUF file, and the gguf package that reads it is not installed; "
            "pip install 'gpt2cli[gguf]'"
        ) from error

    class Reader(GGUFReader):
        """Slices of a memmap take twice as long as those of the array that it is."""

        data = property(lambda self: self._data, lambda self, data: self._keep(data))

        def _keep(self, data: np.ndarray[Any, Any]) -> None:
            self._data = np.asarray(data)

    try:
        reader = Reader(path)
    except (ValueError, LookupError, ArithmeticError, TypeError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GPT2Error(
            f"{path} is cut off, damaged, or of a form that the gguf package does not know "
            f"({reason[:120]}); fetch the file again"
        ) from error
    if reader.byte_order != "I":
        raise GPT2Error(f"{path} is big-endian, which is not read; convert it again")
    return reader


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _config(path: Path, reader: GGUFReader, found: Mapping[str, ReaderTensor]) -> ParsedConfig:
    """The config that the metadata and the shapes describe."""
    architecture = _value(reader, "general.architecture")
    if architecture != "gpt2":
        raise GPT2Error(f"{path} holds a model of architecture {architecture!r}, not gpt2")
    if (_value(reader, "split.count") or 1) > 1:
        raise GPT2Error(f"{path} is one of several parts; merge them with llama-gguf-split --merge")
    if "token_embd.weight" not in found:
        raise GPT2Error(
            f"{path} holds no token_embd.weight; its first tensors are {listing(list(found))}"
        )
    data: dict[str, Any] = {
        name: value for key, name in _SIZES.items() if (value := _value(reader, key)) is not None
    }
    if isinstance(epsilon := data.get("layer_norm_epsilon"), float):
        data["layer_norm_epsilon"] = float(f"{epsilon:.7g}")  # 1e-05, which float32 only approaches
    if data.get("n_inner") == 4 * data.get("n_embd", 0):
        data["n_inner"] = None
    data["vocab_size"] = int(found["token_embd.weight"].shape[-1])
    data["tie_word_embeddings"] = _tied(found)
    return parse_config(data, str(path))


def _tied(found: Mapping[str, ReaderTensor]) -> bool:
    """Whether the head is wte: not stored, or stored as a copy, as older converters did."""
    head, wte = found.get("output.weight"), found["token_embd.weight"]
    if head is None:
        return True
    return head.tensor_type == wte.tensor_type and bool((head.data == wte.data).all())


def _released(name: str) -> str | None:
    if found := _BLOCK.fullmatch(name):
        layer, part, kind = found.groups()
        return f"h.{layer}.{_PARTS[part]}.{kind}" if part in _PARTS else None
    return _WHOLE.get(name)


def _stored(file: MappedFile, tensor: ReaderTensor) -> StoredTensor:
    kind, name = tensor.tensor_type.name, tensor.name
    shape = tuple(int(size) for size in reversed(tensor.shape))
    place, nbytes = int(tensor.data_offset), int(tensor.n_bytes)
    if kind in _FLOATS:
        dtype, remark = _FLOATS[kind], ""
        read: Callable[[], torch.Tensor] = partial(file.tensor, place, shape, dtype)
    else:
        dtype = "float32" if _dequantises(tensor.tensor_type) else kind
        remark, read = f"dequantised from {kind}", partial(_dequantised, tensor, shape)
    release = partial(file.release, place, nbytes)
    stored = StoredTensor(name, shape, dtype, nbytes, file.path, read, release, remark)
    return turned(stored) if (_released(name) or "").endswith(CONV1D) else stored


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


def _dequantised(tensor: ReaderTensor, shape: Shape) -> torch.Tensor:
    """The float32 numbers of a tensor: rows at a time, as the package makes twice their size."""
    import numpy as np
    import torch
    from gguf import dequantize

    numbers = np.empty((math.prod(shape[:-1]), shape[-1]), np.float32)
    blocks = tensor.data.reshape(len(numbers), -1)
    with np.errstate(all="ignore"):  # a damaged scale gives NaN, which is refused by name
        for start in range(0, len(numbers), _ROWS):
            rows = slice(start, start + _ROWS)
            numbers[rows] = dequantize(blocks[rows], tensor.tensor_type)
    return torch.from_numpy(numbers.reshape(shape))
