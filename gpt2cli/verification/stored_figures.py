"""Published figures that a checkpoint's files tell, with no network run."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from ..layout import block_shapes, count, shapes
from .published import Fact

_CHUNK = 1 << 20


def applies(fact: Fact, checkpoint: Checkpoint) -> bool:
    """Whether a fact is about this checkpoint: figures of a file need that file to be there."""
    names = [*fact.data.get("files", ()), *filter(None, [fact.data.get("file")])]
    return not names or any((checkpoint.folder / name).is_file() for name in names)


# What differs, a sentence each; then what the numbers are.


def _config(fact: Fact, checkpoint: Checkpoint) -> Iterator[str]:
    config = vars(checkpoint.config) | {"n_inner": checkpoint.config.inner}
    for name, published in fact.data["values"].items():
        if config[name] != published:
            yield f"{name} is {config[name]}, not {published}"


def _tensors(fact: Fact, checkpoint: Checkpoint) -> Iterator[str]:
    stored = checkpoint.matched.tensors
    published = dict(fact.data["tensors"])
    for layer in range(checkpoint.config.n_layer):
        block = fact.data["block_tensors"]
        published |= {f"h.{layer}.{name}": shape for name, shape in block.items()}
    for name in sorted({*stored, *published}):
        ours = [*stored[name].shape] if name in stored else None
        if ours != published.get(name):
            yield f"{name} is {ours}, not {published.get(name)}"


def _parameters(fact: Fact, checkpoint: Checkpoint) -> Iterator[str]:
    config = checkpoint.config
    table = shapes(config)
    ours = {
        "total": count(table),
        "wte": count(table, "wte."),
        "wpe": count(table, "wpe."),
        "per_block": count(block_shapes(config)),
        "ln_f": count(table, "ln_f."),
        "non_embedding": count(table) - count(table, "wte.") - count(table, "wpe."),
        "tensors": len(checkpoint.matched.tensors),
    }
    for name, published in fact.data["values"].items():
        if ours[name] != published:
            yield f"{name} is {ours[name]}, not {published}"


def _sizes(fact: Fact, checkpoint: Checkpoint) -> Iterator[str]:
    for name, published in fact.data["files"].items():
        path = checkpoint.folder / name
        if path.is_file() and path.stat().st_size != published:
            yield f"{name} has {path.stat().st_size} bytes, not {published}"


def _hash(fact: Fact, checkpoint: Checkpoint) -> Iterator[str]:
    path = checkpoint.folder / fact.data["file"]
    if path.stat().st_size != fact.data.get("bytes", path.stat().st_size):
        yield f"{path.name} has {path.stat().st_size} bytes, not {fact.data['bytes']}"
    elif _sha256(path) != fact.data["sha256"]:
        yield f"{path.name} has another SHA-256 than the released file"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _weight(fact: Fact, checkpoint: Checkpoint) -> Tensor:
    tensor = checkpoint.read(fact.data["tensor"])
    row = tensor[fact.data["row"]] if "row" in fact.data else tensor
    return row[fact.data["columns"]]


def _weight_derived(fact: Fact, checkpoint: Checkpoint) -> Tensor:
    """What ln_f's bias adds to the logit of one token more than to that of another."""
    first, second = checkpoint.read("wte.weight")[fact.data["tokens"]].double()
    bias = checkpoint.read("ln_f.bias").double()
    return torch.dot(bias, first - second)


EXACT: dict[str, Callable[[Fact, Checkpoint], Iterator[str]]] = {
    "config": _config,
    "tensors": _tensors,
    "parameters": _parameters,
    "file_size": _sizes,
    "file_hash": _hash,
}
WEIGHTS: dict[str, Callable[[Fact, Checkpoint], Tensor]] = {
    "weight": _weight,
    "weight_derived": _weight_derived,
}
