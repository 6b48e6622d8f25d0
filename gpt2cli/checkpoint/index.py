"""The index of a checkpoint in shards: the JSON that names the file of each tensor.

Safetensors and pickles have the same one (https://huggingface.co/docs/transformers/big_models).
"""

import os
from collections.abc import Callable
from pathlib import Path

from ..config import read_json
from ..errors import GPT2Error, listing
from .stored import StoredTensor


def read_index(path: Path) -> dict[str, str]:
    """The tensor names of a shards' index, and the file in its folder that holds each.

    Raises GPT2Error for a name that leaves the folder or that no file can have.
    """
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise GPT2Error(f"{path} has no weight_map; fetch the file again")
    for name in weight_map.values():
        if not isinstance(name, str) or not _names_a_file(name):
            raise GPT2Error(f"{path} names {name!r}, which is no file of its own folder")
    return weight_map


def _names_a_file(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..") and name.isprintable()


def shard_tensors(path: Path, read: Callable[[Path], list[StoredTensor]]) -> list[StoredTensor]:
    """The tensors of all shards that the index at `path` names, each shard opened by `read`.

    Raises GPT2Error for a shard that is not there, and for one that the index disagrees with.
    """
    weight_map = read_index(path)
    shards = sorted(set(weight_map.values()))
    # Path's raises for names that no file can have
    missing = [shard for shard in shards if not os.path.exists(path.parent / shard)]  # noqa: PTH110
    if missing:
        raise GPT2Error(
            f"{path} names {listing(missing)}, which is not there; put every shard beside it"
        )
    stored = {shard: read(path.parent / shard) for shard in shards}
    _check(weight_map, {shard: [t.name for t in stored[shard]] for shard in shards}, str(path))
    return [tensor for shard in shards for tensor in stored[shard]]


def _check(weight_map: dict[str, str], names: dict[str, list[str]], where: str) -> None:
    """Raise GPT2Error unless each shard holds just the tensors that the index lists in it."""
    there = {shard: {*held} for shard, held in names.items()}
    problems = [
        f"{name} is listed in {shard} and not there"
        for name, shard in weight_map.items()
        if name not in there[shard]
    ]
    problems += [
        f"{name} is in {shard} and not listed there"
        for shard, held in names.items()
        for name in held
        if weight_map.get(name) != shard
    ]
    if problems:
        raise GPT2Error(f"{where} and its shards disagree: {listing(problems)}")
