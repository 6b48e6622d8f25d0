"""The index of a checkpoint in shards: the JSON that names the file of each tensor.

Safetensors and pickles have the same one (https://huggingface.co/docs/transformers/big_models).
"""

from pathlib import Path

from ..config import read_json
from ..errors import GPT2Error, listing


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


def check_index(weight_map: dict[str, str], names: dict[str, list[str]], where: str) -> None:
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
