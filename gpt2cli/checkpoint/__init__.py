"""What lies on disk → a config and tensors under released names, read lazily."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import (
    GPT2Config,
    ParsedConfig,
    note_on_unknown,
    read_json,
    with_generation_config,
)
from ..errors import GPT2Error, listing
from . import safetensors, tf_bundle
from .stored import Matched, Source, StoredTensor, match

if TYPE_CHECKING:
    import torch

__all__ = ["Checkpoint", "StoredTensor"]

# Files that hold a GPT-2 in dialects that are not read yet.
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "ckpt.pt")


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
    def open(cls, path: Path) -> Checkpoint:
        """The checkpoint in a folder or a file.

        A folder with several is read as safetensors before a TF checkpoint, and a note names
        the one taken and those left. Raises GPT2Error for a file that no reader knows, and for any
        tensor that is missing, unexpected, mis-shaped or of a type that holds no weights.
        """
        if not path.exists() and not path.name.endswith(".index"):
            raise GPT2Error(f"{path} does not exist")
        taken, *left = _candidates(path) if path.is_dir() else [path]
        checkpoint = cls._from_source(taken, _open_file(taken))
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
            config = with_generation_config(parsed.config, read_json(generation), str(generation))
            parsed = replace(parsed, config=config)
        matched = match(source.stored, source.rule, parsed.config, str(path))
        return cls(path, folder, source.dialect, parsed, matched, source.file_bytes, tuple(notes))

    @property
    def config(self) -> GPT2Config:
        """The sizes and switches of the network."""
        return self.parsed.config

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a released name, in the released shape and its stored dtype."""
        return self.matched.tensors[name].read()

    def check_copies(self) -> None:
        """Raise GPT2Error when a stored head differs from ``wte.weight`` in a tied model."""
        import torch

        for copy in self.matched.copies:
            if not torch.equal(copy.read(), self.read("wte.weight")):
                raise GPT2Error(
                    f"{copy.file}: {copy.name} differs from wte.weight, and the config says they "
                    "are tied; set tie_word_embeddings to false if the head is its own"
                )


def _open_file(path: Path) -> Source:
    """The reader for a file, by its name."""
    if path.name.endswith((".safetensors", safetensors.INDEX_SUFFIX)):
        return safetensors.open_file(path)
    if path.name.endswith(".index"):
        return tf_bundle.open_bundle(path.with_suffix(""))
    raise GPT2Error(f"{path} is no checkpoint that is read here: {_looks_like(path)}")


def _candidates(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the one to take first, and those that are not read last."""
    weights, bundles = safetensors.find_weights(folder), tf_bundle.find_indexes(folder)
    if bundles and not weights:
        taken = tf_bundle.find_prefix(folder)
        bundles.sort(key=lambda index: index.with_suffix("") != taken)
    pickles = [folder / name for name in _PICKLES if (folder / name).exists()]
    if weights or bundles:
        return weights + bundles + pickles
    if pickles:
        raise GPT2Error(
            f"{folder} holds {pickles[0].name}, a pickle, which is not read here; "
            "save the model as safetensors"
        )
    raise GPT2Error(
        f"{folder} holds no checkpoint: neither model.safetensors, nor its index, "
        "nor a TF checkpoint"
    )


def _looks_like(path: Path) -> str:
    """What a file is, by its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    if head.lstrip()[:1] == b"<":
        return "it is a web page or XML; fetch the file again"
    if head[:2] == b"PK" or head[:1] == b"\x80":
        return "it is a pickle; save the model as safetensors"
    if head[:4] == b"GGUF":
        return "it is a GGUF file; use the safetensors the model was made from"
    return f"it begins with {head!r}; safetensors and OpenAI's TF checkpoints are read"
