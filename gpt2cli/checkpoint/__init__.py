"""What lies on disk → a config and tensors under released names, read lazily."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import (
    GPT2Config,
    ParsedConfig,
    note_on_outside,
    note_on_unknown,
    read_json,
    with_generation_config,
)
from ..errors import GPT2Error, listing
from . import safetensors, tf_bundle
from .finding import find_checkpoints, open_file
from .hub_config import check_heads
from .stored import Matched, Source, StoredTensor, match

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "StoredTensor"]


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint: headers are read and matched, weights are not.

    `folder` is where its tokenizer files would lie, `file_bytes` is the size of the files that
    hold the weights, `notes` are lines that the user should see.
    """

    path: Path
    folder: Path
    dialect: str
    parsed: ParsedConfig
    matched: Matched
    file_bytes: int
    notes: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, n_head: int | None = None) -> Checkpoint:
        """The checkpoint in a folder or a file.

        A folder with several is read as safetensors, else as ``pytorch_model.bin``, else as a TF
        checkpoint, else as ``ckpt.pt``, and a note names the one taken and those left. `n_head`
        is the number of heads, for files that do not say it. Raises GPT2Error for a file that no
        reader knows, and for any tensor that is missing, unexpected, mis-shaped or of a type that
        holds no weights.
        """
        if not path.exists() and not path.name.endswith(tf_bundle.INDEX_SUFFIX):
            raise GPT2Error(f"{path} does not exist")
        taken, *left = find_checkpoints(path) if path.is_dir() else [path]
        source = open_file(taken, n_head)
        check_heads(source.parsed, n_head, taken)
        checkpoint = cls._from_source(taken, source)
        if not left:
            return checkpoint
        names = listing([other.name for other in left], 8)
        note = f"{path} holds several checkpoints: taking {taken.name}, leaving {names}"
        return replace(checkpoint, notes=(note, *checkpoint.notes))

    @classmethod
    def from_headers(cls, folder: Path, headers: Mapping[str, tuple[bytes, int]]) -> Checkpoint:
        """The checkpoint whose safetensors headers were fetched without their weights.

        `folder` holds ``config.json``; `headers` gives, a file name each, the bytes up to the
        data and the file's size. It can be counted and not read.
        """
        return cls._from_source(folder, safetensors.open_headers(folder, headers))

    @classmethod
    def _from_source(cls, path: Path, source: Source) -> Checkpoint:
        folder = path if path.is_dir() else path.parent
        parsed = source.parsed
        notes = note_on_unknown(parsed, str(folder / "config.json"))
        generation = folder / "generation_config.json"
        if generation.exists():
            parsed = with_generation_config(parsed, read_json(generation), str(generation))
        notes += note_on_outside(parsed, str(folder))
        matched = match(source.stored, source.rule, parsed.config, str(path))
        lines = (*source.notes, *notes)
        return cls(path, folder, source.dialect, parsed, matched, source.file_bytes, lines)

    @property
    def config(self) -> GPT2Config:
        """The sizes and switches of the network."""
        return self.parsed.config

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a released name, in the released shape and its stored dtype."""
        return self.matched.tensors[name].read()

    def prefetch(self) -> None:
        """Have the system page the weights in while something else is done."""
        if hasattr(os, "posix_fadvise"):
            for path in {stored.file for stored in self.matched.tensors.values()}:
                # a file that is gone by now is still mapped
                with suppress(OSError), path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def release(self, name: str) -> None:
        """Give back the memory that a tensor was mapped to, once nothing needs it at once."""
        self.matched.tensors[name].release()

    def check_copies(self) -> None:
        """Raise GPT2Error when a stored head differs from ``wte.weight`` in a tied model."""
        import torch

        for copy in self.matched.copies:
            if not torch.equal(copy.read(), self.read("wte.weight")):
                raise GPT2Error(
                    f"{copy.file}: {copy.name} differs from wte.weight, and the config says they "
                    "are tied; set tie_word_embeddings to false if the head is its own"
                )
