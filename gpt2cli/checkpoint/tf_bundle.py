"""OpenAI's TensorFlow checkpoint, read without TensorFlow.

A checkpoint PREFIX is ``PREFIX.index``, a sorted table of a row for each variable, and the shards
``PREFIX.data-XXXXX-of-XXXXX``, which hold the variables' numbers, little-endian, named as in
tensorflow/core/util/tensor_bundle/naming.h (https://github.com/tensorflow/tensorflow).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import ParsedConfig, parse_config, read_json
from ..errors import GPT2Error, listing
from ..layout import Shape
from .hub_config import infer_config, note_on_inferred
from .leveldb_table import masked_crc32c
from .mapping import MappedFile
from .stored import Source, StoredTensor
from .tf_index import Entry, read_index
from .tf_names import is_variable, tf_name

if TYPE_CHECKING:
    import torch

INDEX_SUFFIX = ".index"


def open_bundle(prefix: Path, n_head: int | None = None) -> Source:
    """The checkpoint of ``PREFIX.index``, its shards, and ``hparams.json`` beside them.

    Where that is missing, `n_head` is the number of heads. Raises GPT2Error when any of these is
    missing, damaged, or of a kind that is not read here.
    """
    stored = stored_tensors(prefix)
    rule = partial(tf_name, variables={tensor.name for tensor in stored})
    file_bytes = sum(file.stat().st_size for file in {tensor.file for tensor in stored})
    if n_head is None or (prefix.parent / "hparams.json").exists():
        return Source("tf", read_hparams(prefix), stored, rule, file_bytes)
    found = {name: tensor.shape for tensor in stored if isinstance(name := rule(tensor), str)}
    parsed = infer_config(found, n_head, str(prefix), "hparams.json")
    return Source("tf", parsed, stored, rule, file_bytes, (note_on_inferred(prefix),))


def read_hparams(prefix: Path) -> ParsedConfig:
    """The config that ``hparams.json`` beside a checkpoint gives, OpenAI's defaults for the rest.

    No start or end token is in it: they come with the vocabulary.
    """
    path = prefix.parent / "hparams.json"
    if not path.exists():
        raise GPT2Error(
            f"{path} is missing; copy it from where {prefix.name} came from, or give --n-head"
        )
    return parse_config(read_json(path), str(path))


def stored_tensors(prefix: Path) -> list[StoredTensor]:
    """The variables of a checkpoint, unread.

    A block of the index is checked against its CRC-32C here, a variable each time it is read.
    Raises GPT2Error for a damaged index, a missing or short shard, and a checkpoint that is
    big-endian, or that holds a variable of the network in parts.
    """
    index = prefix.with_name(prefix.name + INDEX_SUFFIX)
    entries, count = read_index(index)
    shards = [_open_shard(prefix, n, count) for n in range(count)]
    _check_places(entries, index)
    return [_stored(name, entry, shards, index) for name, entry in entries.items()]


def _check_places(entries: Mapping[str, Entry], index: Path) -> None:
    """No variable reaches into another."""
    ends: dict[int, int] = {}
    for name, entry in sorted(entries.items(), key=lambda e: (e[1].offset, e[1].nbytes)):
        if not entry.sliced and entry.nbytes:
            if entry.offset < ends.get(entry.shard, 0):
                raise GPT2Error(f"{index}: {name} overlaps another variable; fetch it again")
            ends[entry.shard] = entry.offset + entry.nbytes


def find_indexes(folder: Path) -> list[Path]:
    """The ``*.index`` files in a folder that have shards, by name; others have that suffix too."""
    return sorted(
        path
        for path in folder.glob(f"?*{INDEX_SUFFIX}")
        if path.is_file() and any(folder.glob(f"{glob.escape(path.stem)}.data-*"))
    )


def find_prefix(folder: Path) -> Path | None:
    """The checkpoint in a folder; None when it holds no ``*.index`` file.

    It is the one that the file ``checkpoint`` names, else the only one. Of a path in that file
    only the last part counts, as it may be from the machine that trained. A name that is not
    there any more (files are renamed without it) falls to the only one. Raises GPT2Error, with
    a list, when there are several and none is named, and when the path leaves the folder.
    """
    names = [path.name.removesuffix(INDEX_SUFFIX) for path in find_indexes(folder)]
    if not names:
        return None
    named = _named_prefix(folder / "checkpoint")
    if named in names:
        return folder / named
    if len(names) == 1:
        return folder / names[0]
    reason = f"its file checkpoint names {named}" if named else "no file checkpoint names one"
    raise GPT2Error(
        f"{folder} holds several TF checkpoints ({listing(names, 8)}) and {reason}; "
        f"name one, as {folder / names[0]}{INDEX_SUFFIX}"
    )


# The first string of CheckpointState as text (tensorflow/python/training/checkpoint_state.proto).
_NAMED = re.compile(
    rb"""^\s*model_checkpoint_path\s*:\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)')""",
    re.MULTILINE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _named_prefix(path: Path) -> str | None:
    """The prefix that a folder's ``checkpoint`` file names, None when there is no such file."""
    try:
        found = _NAMED.search(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    if found is None:
        return None
    text = _ESCAPE.sub(_unescape, found[1] or found[2] or b"").decode("utf-8", "replace")
    parts = re.split(r"[/\\]", text)
    if ".." in parts and not text.startswith("/"):
        raise GPT2Error(f"{path} names {text!r}, outside its folder; name the .index file to read")
    return parts[-1] or None


def _unescape(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])
    return _LETTERS.get(letter, letter)


def _open_shard(prefix: Path, number: int, count: int) -> MappedFile:
    path = prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{count:05d}")
    if not path.exists():
        raise GPT2Error(f"{path} is missing; copy it from where {prefix.name}.index came from")
    return MappedFile(path)


def _stored(name: str, entry: Entry, shards: list[MappedFile], index: Path) -> StoredTensor:
    """A variable and how to read it, checked against its shard."""
    if entry.shard >= len(shards):
        raise GPT2Error(f"{index}: {name} lies in shard {entry.shard}, past the last")
    shard = shards[entry.shard]
    if entry.sliced and is_variable(name):
        raise GPT2Error(f"{index}: {name} is stored in slices; save it whole")
    if entry.offset + entry.nbytes > shard.size:
        raise GPT2Error(
            f"{shard.path} is cut off: {shard.size} bytes, and {name} ends at byte "
            f"{entry.offset + entry.nbytes}; fetch the file again"
        )
    shape = entry.shape
    if name.endswith("/w") and is_variable(name) and len(shape) == 3 and shape[0] == 1:
        shape = shape[1:]  # a convolution of width 1
    read = partial(_read, name, entry, shape, shard)
    return StoredTensor(name, shape, entry.dtype, entry.nbytes, shard.path, read)


def _read(name: str, entry: Entry, shape: Shape, shard: MappedFile) -> torch.Tensor:
    if entry.itemsize is None or entry.sliced:
        what = "in slices" if entry.sliced else entry.dtype
        raise GPT2Error(f"{shard.path}: {name} is stored {what}, which is not read")
    if masked_crc32c(shard.chunks(entry.offset, entry.nbytes)) != entry.crc:
        raise GPT2Error(f"{shard.path}: {name} does not have its CRC-32C; fetch the file again")
    return shard.tensor(entry.offset, shape, entry.dtype)
