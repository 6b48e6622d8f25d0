"""Pickles that torch.save wrote: ``pytorch_model.bin``, whole or in shards with an index.

No pickle runs code: torch's own unpickler for weights_only=True builds tensors, containers and
numbers, and refuses everything else by name. The zip form (since torch 1.6) is mapped by torch.
The form before it holds, one after another, four pickles (a magic number, a version, the writer's
system, the object), a fifth with the storages' keys, and each storage as a 64-bit count and its
numbers (``_legacy_save`` of torch/serialization.py, https://github.com/pytorch/pytorch); its
tensors are built without memory here, and mapped from the file when they are read.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import GPT2Error, listing
from .hub_config import hub_source
from .index import check_index, read_index
from .mapping import MappedFile
from .stored import Source, StoredTensor

if TYPE_CHECKING:
    import torch

INDEX_SUFFIX = ".bin.index.json"

# The weights of a folder or repository, the one to take first: a file, or the index of shards.
WEIGHTS = ("pytorch_model.bin", "pytorch_model" + INDEX_SUFFIX)

_ZIP = b"PK\3\4"
_MAGIC = 0x1950A86A20F9469CFC6C  # torch.serialization.MAGIC_NUMBER

# What torch raises for a pickle that is cut off, damaged, or of a form it does not know.
_DAMAGE = (
    RuntimeError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    OSError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
)

_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


@dataclass(frozen=True)
class Unpickled:
    """What a file holds, and how a tensor of it is read; `release` gives its pages back."""

    value: object
    read: Callable[[torch.Tensor], torch.Tensor]
    release: Callable[[torch.Tensor], None]


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a pickle: in a zip archive, or by itself."""
    return head.startswith((_ZIP, b"\x80"))


def open_index(path: Path, n_head: int | None) -> Source:
    """The checkpoint in the shards that ``pytorch_model.bin.index.json`` names."""
    weight_map = read_index(path)
    shards = sorted(set(weight_map.values()))
    stored = {shard: _shard(path.parent / shard) for shard in shards}
    check_index(weight_map, {s: [t.name for t in stored[s]] for s in shards}, str(path))
    tensors = [tensor for shard in shards for tensor in stored[shard]]
    return hub_source("pickle", path, tensors, n_head)


def open_state(path: Path, unpickled: Unpickled, n_head: int | None) -> Source:
    """The checkpoint in a file whose pickle is a state dict: names and tensors."""
    return hub_source("pickle", path, stored_tensors(path, unpickled.value, unpickled), n_head)


def stored_tensors(path: Path, state: object, unpickled: Unpickled) -> list[StoredTensor]:
    """The tensors of a state dict, unread; GPT2Error where it holds anything else."""
    import torch

    if not isinstance(state, Mapping) or not state:
        raise GPT2Error(f"{path} holds {_kind(state)}, not names and tensors; {_ADVICE}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise GPT2Error(
                f"{path} holds no tensor but {_kind(tensor)} under {name!r} (its first names are "
                f"{listing([str(key) for key in state])}); {_ADVICE}"
            )
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise GPT2Error(f"{path}: {name} is sparse or quantised, which is not read; {_ADVICE}")
    return [_stored(path, name, tensor, unpickled) for name, tensor in state.items()]


def unpickle(path: Path) -> Unpickled:
    """What the pickle at `path` holds; no number of its tensors is read yet.

    Raises GPT2Error for a damaged file, and names what a pickle asks to run that is no tensor.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old types; what is wrong ends in an error
            with path.open("rb") as file:
                zipped = file.read(len(_ZIP)) == _ZIP
            return _from_zip(path) if zipped else _legacy(path)
    except pickle.UnpicklingError as error:
        raise GPT2Error(_refusal(path, str(error))) from error
    except _DAMAGE as error:
        reason = " ".join(str(error).split(".")[0].split()) or type(error).__name__
        raise GPT2Error(
            f"{path} is no pickle that torch can read, or is damaged ({reason[:120]}); "
            "fetch the file again"
        ) from error


_ADVICE = "save the model's state_dict alone, or as safetensors"


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _refusal(path: Path, said: str) -> str:
    """What is wrong with a pickle that torch's unpickler refuses with the words `said`."""
    if found := _GLOBAL.search(said):
        return (
            f"{path} asks to run {found[1].rstrip('.')}, which weights do not need; nothing of it "
            f"was run; {_ADVICE}"
        )
    return (
        f"{path} is a pickle of another kind than torch.save writes; nothing of it was run; "
        f"{_ADVICE}"
    )


def _shard(path: Path) -> list[StoredTensor]:
    unpickled = unpickle(path)
    return stored_tensors(path, unpickled.value, unpickled)


def _stored(path: Path, name: str, tensor: torch.Tensor, unpickled: Unpickled) -> StoredTensor:
    return StoredTensor(
        name=name,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        nbytes=tensor.numel() * tensor.element_size(),
        file=path,
        read=lambda: unpickled.read(tensor),
        release=lambda: unpickled.release(tensor),
    )


def _from_zip(path: Path) -> Unpickled:
    import torch

    names = zipfile.ZipFile(path).namelist()
    if not any(name.endswith("data.pkl") for name in names):
        raise GPT2Error(
            f"{path} is a zip archive of {listing(names)} and not of torch.save; {_ADVICE}"
        )
    value = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return Unpickled(value, _aligned, lambda _tensor: None)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it is mapped; a copy where a foreign zip program left it unaligned."""
    tensor = tensor.detach()
    return tensor.clone() if tensor.data_ptr() % tensor.element_size() else tensor


class _Places:
    """Storages of a file in the older form: without memory, until their place is known."""

    def __init__(self) -> None:
        self.storages: dict[str, Any] = {}  # of torch's TypedStorage, which has no types
        self.starts: dict[int, int] = {}  # a storage's identity → where its numbers begin

    def persistent_load(self, saved: tuple[Any, ...]) -> Any:
        """The storage that a tensor of the pickle lies in; what device it was on is dropped."""
        import torch

        _, kind, key, _, count, view = saved
        if view is not None:
            raise ValueError("it holds views of storages, as torch before 0.4 wrote them")
        if key not in self.storages:
            make: Any = torch.UntypedStorage
            memory = make(count * kind.dtype.itemsize, device="meta")
            make = torch.TypedStorage
            self.storages[key] = make(wrap_storage=memory, dtype=kind.dtype, _internal=True)
        return self.storages[key]

    def place(self, keys: list[str], file: MappedFile, offset: int) -> None:
        """Note where each storage begins, from the first one's count at `offset`."""
        for key in keys:
            storage = self.storages[key]._untyped_storage
            itemsize = self.storages[key].dtype.itemsize
            count = int.from_bytes(file.read(offset, 8), "little")
            if count * itemsize != storage.nbytes():
                raise ValueError(f"storage {key} has {count} numbers, not those of its tensors")
            self.starts[storage._cdata] = offset + 8
            offset += 8 + storage.nbytes()
        file.read(offset, 0)  # the last one may be cut off

    def span(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Where the numbers of a tensor begin in the file, and how many there are to its last."""
        start = self.starts[tensor.untyped_storage()._cdata]
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
        return start + int(tensor.storage_offset()) * tensor.element_size(), count


def _legacy(path: Path) -> Unpickled:
    from torch._weights_only_unpickler import Unpickler

    file, places, make = MappedFile(path), _Places(), cast("Any", Unpickler)
    with path.open("rb") as stream:
        magic, _version, _system = (make(stream).load() for _ in range(3))
        if magic != _MAGIC:
            raise pickle.UnpicklingError("no magic number")
        unpickler = make(stream)
        unpickler.persistent_load = places.persistent_load
        value = unpickler.load()
        places.place(make(stream, encoding="ASCII").load(), file, stream.tell())

    def read(tensor: torch.Tensor) -> torch.Tensor:
        offset, count = places.span(tensor)
        numbers = file.tensor(offset, (count,), str(tensor.dtype).removeprefix("torch."))
        return numbers.as_strided(tensor.shape, tensor.stride())

    def release(tensor: torch.Tensor) -> None:
        offset, count = places.span(tensor)
        file.release(offset, count * tensor.element_size())

    return Unpickled(value, read, release)
