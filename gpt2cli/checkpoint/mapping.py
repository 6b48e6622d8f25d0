"""A file of weights in memory, a tensor at a time: mapped where it lies aligned, else copied."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GPT2Error
from ..layout import Shape

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 20  # bytes: small enough to stay in the cache while they are summed


class MappedFile:
    """The bytes of one file as they were when it was opened here.

    A file that is later replaced by renaming another over it keeps giving the old bytes.
    `size` is in bytes. Raises GPT2Error when the path is no readable file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():
                raise GPT2Error(f"{path} is no file; name the checkpoint's own files")
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                # Writable but private: torch warns about memory it may not write to.
                self._bytes = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self.size else None
                )
        except OSError as error:
            raise GPT2Error(f"cannot read {path}: {error.strerror or error}") from error

    def tensor(self, offset: int, shape: Shape, dtype: str) -> torch.Tensor:
        """Map or copy the tensor of `shape` whose little-endian numbers start at byte `offset`.

        `dtype` is torch's name of the type. The memory is the mapping itself where `offset`
        is a multiple of the item size, else a fresh copy: arithmetic on unaligned memory takes
        nearly twice as long. Raises GPT2Error when the file ends before the tensor does.
        """
        import torch

        kind: torch.dtype = getattr(torch, dtype)
        count = math.prod(shape)
        nbytes = count * kind.itemsize
        self._require(offset, nbytes)
        if self._bytes is None or not count:
            return torch.empty(shape, dtype=kind)
        if offset % kind.itemsize == 0:
            return torch.frombuffer(self._bytes, dtype=kind, count=count, offset=offset).view(shape)
        raw = torch.frombuffer(self._bytes, dtype=torch.uint8, count=nbytes, offset=offset).clone()
        self.release(offset, nbytes)
        return raw.view(kind).view(shape)

    def read(self, offset: int, nbytes: int) -> bytes:
        """The `nbytes` bytes from `offset`; GPT2Error when the file is shorter."""
        self._require(offset, nbytes)
        return b"" if self._bytes is None else self._bytes[offset : offset + nbytes]

    def chunks(self, offset: int, nbytes: int) -> Iterator[bytes]:
        """Yield the `nbytes` bytes from `offset` in pieces of at most 1 MiB, for a checksum.

        Raises GPT2Error when the file is shorter.
        """
        self._require(offset, nbytes)
        if self._bytes is not None:
            for start in range(offset, offset + nbytes, _CHUNK):
                yield self._bytes[start : min(start + _CHUNK, offset + nbytes)]

    def _require(self, offset: int, nbytes: int) -> None:
        if offset < 0 or offset + nbytes > self.size:
            needed = f"{self.size} bytes are there, {offset + nbytes} are needed"
            raise GPT2Error(f"{self.path} is cut off: {needed}; fetch the file again")

    def release(self, offset: int, nbytes: int) -> None:
        """Give back the pages of a tensor; whoever looks at them again finds them in the file."""
        if self._bytes is not None and hasattr(mmap, "MADV_DONTNEED"):
            start = offset - offset % mmap.PAGESIZE
            self._bytes.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)
