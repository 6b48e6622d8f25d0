"""llm.c's model files: 256 numbers of header, then every weight, without names.

As write_model of train_gpt2.py and gpt2_build_from_checkpoint of train_gpt2.c have it
(https://github.com/karpathy/llm.c): version 3 is float32, version 5 bfloat16; a part of all blocks
lies in one piece; dense weights are [out, in]; wte is padded to a multiple of 128 rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..config import ParsedConfig, parse_config
from ..errors import GPT2Error
from ..layout import Shape, block_shapes
from .mapping import MappedFile
from .stored import Source, StoredTensor, turned

MAGIC = 20240326

_HEADER = 256 * 4  # bytes
_DTYPES = {3: ("float32", 4), 5: ("bfloat16", 2)}

# Magic numbers of llm.c's other files, which are easily taken for a model.
_OTHERS = {
    20240327: "llm.c's debug state, which `gpt2 verify --reference` reads",
    20240328: "llm.c's tokenizer",
    20240520: "llm.c's training data",
    20240522: "llm.c's evaluation data",
    20240803: "a Llama 3 of llm.c",
}

# The parts of ParameterTensors in train_gpt2.c, in its order, and what each is in a block.
_PARTS = {
    "ln1w": "ln_1.weight",
    "ln1b": "ln_1.bias",
    "qkvw": "attn.c_attn.weight",
    "qkvb": "attn.c_attn.bias",
    "attprojw": "attn.c_proj.weight",
    "attprojb": "attn.c_proj.bias",
    "ln2w": "ln_2.weight",
    "ln2b": "ln_2.bias",
    "fcw": "mlp.c_fc.weight",
    "fcb": "mlp.c_fc.bias",
    "fcprojw": "mlp.c_proj.weight",
    "fcprojb": "mlp.c_proj.bias",
}


def magic_of(head: bytes) -> int:
    """The magic number of a file that begins with `head`."""
    return int.from_bytes(head[:4], "little")


def other_file(head: bytes) -> str | None:
    """Which of llm.c's other files begins with `head`, None for none of them."""
    return _OTHERS.get(magic_of(head)) if len(head) >= 4 else None


def open_file(path: Path) -> Source:
    """The checkpoint in one of llm.c's model files.

    Raises GPT2Error for a version that is not read, a header that contradicts itself, and a file
    that is shorter or longer than its header says.
    """
    file = MappedFile(path)
    header = file.read(0, _HEADER)
    numbers = [int.from_bytes(header[n : n + 4], "little", signed=True) for n in range(0, 32, 4)]
    _, version, n_positions, vocab_size, n_layer, n_head, n_embd, padded = numbers
    if version not in _DTYPES:
        raise GPT2Error(
            f"{path} is of llm.c's version {version}, and 3 (float32) and 5 (bfloat16) are read; "
            "write it again with a newer train_gpt2.py"
        )
    sizes = {
        "vocab_size": vocab_size,
        "n_positions": n_positions,
        "n_embd": n_embd,
        "n_layer": n_layer,
        "n_head": n_head,
    }
    parsed = parse_config(sizes, str(path))
    if padded < vocab_size:
        raise GPT2Error(f"{path} has {padded} padded rows for a vocabulary of {vocab_size}")
    dtype, itemsize = _DTYPES[version]
    count = sum(math.prod(shape) for _, _, shape in _layout(parsed, padded))
    _check_end(file, _HEADER + count * itemsize)
    stored = list(_tensors(file, parsed, padded, dtype, itemsize))
    stored[0] = _unpadded(stored[0], vocab_size)
    released = {part: name for part, name, _ in _layout(parsed, padded)}
    return Source("llmc", parsed, stored, lambda tensor: released[tensor.name], file.size)


def _layout(parsed: ParsedConfig, padded: int) -> Iterator[tuple[str, str, Shape]]:
    """Every tensor in the file's order: llm.c's name, the released name, the shape as stored."""
    config = parsed.config
    block = block_shapes(config)
    yield "wte", "wte.weight", (padded, config.n_embd)
    yield "wpe", "wpe.weight", (config.n_positions, config.n_embd)
    for part, name in _PARTS.items():
        for layer in range(config.n_layer):
            yield f"{part}[{layer}]", f"h.{layer}.{name}", block[name][::-1]
    yield "lnfw", "ln_f.weight", (config.n_embd,)
    yield "lnfb", "ln_f.bias", (config.n_embd,)


def _tensors(
    file: MappedFile, parsed: ParsedConfig, padded: int, dtype: str, itemsize: int
) -> Iterator[StoredTensor]:
    place = _HEADER
    for part, name, shape in _layout(parsed, padded):
        nbytes = math.prod(shape) * itemsize
        read = partial(file.tensor, place, shape, dtype)
        release = partial(file.release, place, nbytes)
        tensor = StoredTensor(part, shape, dtype, nbytes, file.path, read, release)
        yield turned(tensor) if name.startswith("h.") else tensor
        place += nbytes


def _check_end(file: MappedFile, needed: int) -> None:
    if file.size != needed:
        raise GPT2Error(
            f"{file.path} is {file.size} bytes long where its header asks for {needed}; copy it "
            "again, or write it again with train_gpt2.py"
        )


def _unpadded(wte: StoredTensor, vocab_size: int) -> StoredTensor:
    """The rows of wte that stand for tokens; llm.c reads no logit of the others."""
    rows, width = wte.shape
    if rows == vocab_size:
        return wte
    read = wte.read
    return replace(
        wte,
        shape=(vocab_size, width),
        nbytes=wte.nbytes // rows * vocab_size,
        read=lambda: read()[:vocab_size],
        remark=f"{rows - vocab_size} rows of padding left out",
    )
