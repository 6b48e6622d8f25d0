"""Pickles that torch.save wrote: ``pytorch_model.bin``, whole or in shards with an index.

No pickle runs code: torch's own unpickler for weights_only=True builds tensors, containers and
numbers, and refuses everything else by name. Tensors are built without memory here, and mapped
from the file when they are read. The zip form (since torch 1.6) holds the object as ``data.pkl``
and each storage as ``data/KEY``, none of them compressed. The form before it holds, one after
another, four pickles (a magic number, a version, the writer's system, the object), a fifth with
the storages' keys, and each storage as a 64-bit count and its numbers (``_save`` and
``_legacy_save`` of torch/serialization.py, https://github.com/pytorch/pytorch).
"""

from __future__ import annotations

import io
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ..errors import GPT2Error, listing
from .hub_config import hub_source
from .index import shard_tensors
from .mapping import MappedFile
from .pickle_ops import check_opcodes
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


# How many bytes of tensors may stand on a byte of file: a tied head stands there twice.
_MOST_SHARED = 4


@dataclass(frozen=True)
class Unpickled:
    """What a file holds, and how a tensor of it is read; `release` gives its pages back.

    `holds` says whether a tensor's numbers are in the file: a pickle may make others up.
    """

    value: object
    holds: Callable[[torch.Tensor], bool]
    read: Callable[[torch.Tensor], torch.Tensor]
    release: Callable[[torch.Tensor], None]


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a pickle: in a zip archive, or by itself."""
    return head.startswith((_ZIP, b"\x80"))


def open_index(path: Path, n_head: int | None) -> Source:
    """The checkpoint in the shards that ``pytorch_model.bin.index.json`` names."""
    return hub_source("pickle", path, shard_tensors(path, _shard), n_head)


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
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_neg():
            raise GPT2Error(f"{path}: {name} is sparse or quantised, which is not read; {_ADVICE}")
        if not unpickled.holds(tensor):
            raise GPT2Error(f"{path}: {name} has no numbers in the file; {_ADVICE}")
    stored = [_stored(path, name, tensor, unpickled) for name, tensor in state.items()]
    needed, there = sum(tensor.nbytes for tensor in stored), path.stat().st_size
    if needed > _MOST_SHARED * there:
        raise GPT2Error(f"{path}: its tensors share numbers, {there} bytes for {needed}; {_ADVICE}")
    return stored


def unpickle(path: Path) -> Unpickled:
    """What the pickle at `path` holds; no number of its tensors is read yet.

    Raises GPT2Error for a damaged file, and names what a pickle asks to run that is no tensor.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old types; what is wrong ends in an error
            file = MappedFile(path)
            zipped = file.read(0, min(len(_ZIP), file.size)) == _ZIP
            return _from_zip(file) if zipped else _legacy(file)
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


class _Places:
    """Storages of a file: without memory, until their place in it is known."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.storages: dict[str, Any] = {}  # of torch's TypedStorage, which has no types
        self.starts: dict[int, int] = {}  # a storage's identity → where its numbers begin

    def persistent_load(self, saved: tuple[Any, ...]) -> Any:
        """The storage that a tensor of the pickle lies in; what device it was on is dropped."""
        import torch

        _, kind, key, _, count, *view = saved
        if view not in ([], [None]):
            raise ValueError("it holds views of storages, as torch before 0.4 wrote them")
        if key not in self.storages:
            dtype = torch.uint8 if kind is torch.UntypedStorage else kind.dtype
            make: Any = torch.UntypedStorage
            memory = make(count * dtype.itemsize, device="meta")
            make = torch.TypedStorage
            self.storages[key] = make(wrap_storage=memory, dtype=dtype, _internal=True)
        return self.storages[key]

    def place(self, key: str, offset: int, nbytes: int) -> None:
        """Note that the storage of a key lies in the file, and that it has all its numbers."""
        storage = self.storages[key]._untyped_storage
        if nbytes != storage.nbytes():
            raise ValueError(f"storage {key} has {nbytes} bytes, not those of its tensors")
        self.file.read(offset + nbytes, 0)  # it may be cut off
        self.starts[storage._cdata] = offset

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the numbers of a tensor are in the file."""
        return tensor.untyped_storage()._cdata in self.starts

    def span(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Where the numbers of a tensor begin in the file, and how many there are to its last."""
        start = self.starts[tensor.untyped_storage()._cdata]
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
        return start + int(tensor.storage_offset()) * tensor.element_size(), count

    def unpickled(self, value: object) -> Unpickled:
        return Unpickled(value, self.holds, self.read, self.release)

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        offset, count = self.span(tensor)
        numbers = self.file.tensor(offset, (count,), str(tensor.dtype).removeprefix("torch."))
        return numbers.as_strided(tensor.shape, tensor.stride())

    def release(self, tensor: torch.Tensor) -> None:
        offset, count = self.span(tensor)
        self.file.release(offset, count * tensor.element_size())


def _load(stream: IO[bytes], places: _Places | None = None, **options: str) -> Any:
    """The pickle at the stream's place, by torch's unpickler that runs nothing."""
    from torch._weights_only_unpickler import Unpickler

    check_opcodes(stream)
    unpickler = cast("Any", Unpickler)(stream, **options)
    if places is not None:
        unpickler.persistent_load = places.persistent_load
    return unpickler.load()


def _from_zip(file: MappedFile) -> Unpickled:
    with zipfile.ZipFile(file.path) as archive:
        records = {record.filename: record for record in archive.infolist()}
        name = next((name for name in records if name.endswith("data.pkl")), None)
        if name is None:
            raise GPT2Error(
                f"{file.path} is a zip archive of {listing([*records])} and not of torch.save; "
                f"{_ADVICE}"
            )
        root = name.removesuffix("data.pkl")
        order = records.get(f"{root}byteorder")
        if order and _record(file, order) != b"little":
            raise GPT2Error(f"{file.path} is big-endian, which is not read; {_ADVICE}")
        places = _Places(file)
        value = _load(io.BytesIO(_record(file, records[name])), places, encoding="utf-8")
        for key in places.storages:
            places.place(key, *_span(file, records[f"{root}data/{key}"]))
    return places.unpickled(value)


def _span(file: MappedFile, record: zipfile.ZipInfo) -> tuple[int, int]:
    """Where the bytes of a record begin, and how many they are; ValueError when compressed."""
    if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1:
        raise ValueError(f"{record.filename} is compressed or encrypted")
    name, extra = struct.unpack("<HH", file.read(record.header_offset + 26, 4))
    return record.header_offset + 30 + name + extra, record.file_size


def _record(file: MappedFile, record: zipfile.ZipInfo) -> bytes:
    return file.read(*_span(file, record))


def _legacy(file: MappedFile) -> Unpickled:
    places = _Places(file)
    with file.path.open("rb") as stream:
        magic, _version, _system = (_load(stream) for _ in range(3))
        if magic != _MAGIC:
            raise pickle.UnpicklingError("no magic number")
        value = _load(stream, places)
        keys, offset = _load(stream, encoding="ASCII"), stream.tell()
        for key in keys:
            count = int.from_bytes(file.read(offset, 8), "little")
            nbytes = count * places.storages[key].dtype.itemsize
            places.place(key, offset + 8, nbytes)
            offset += 8 + nbytes
    return places.unpickled(value)
