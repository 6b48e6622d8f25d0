"""gpt2 convert: any checkpoint that is read, written as Hub-style safetensors or for nanoGPT."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ..checkpoint import Checkpoint
from ..checkpoint.nanogpt import FILE as CKPT
from ..checkpoint.nanogpt_writing import refuse_inexpressible, write_nanogpt
from ..checkpoint.replacing import new_files
from ..checkpoint.writing import (
    Advance,
    hub_config,
    write_json,
    write_safetensors,
    written_bytes,
)
from ..config import GPT2Config, read_json
from ..errors import GPT2Error, listing
from ..hub import CONFIG, GENERATION_CONFIG, parse_model
from ..tokenizer import load_tokenizer, tokenizer_files
from ..tokenizer.saving import NAMES
from .completion import MODEL
from .opening import open_weights
from .options import NAME, heads_option, note, quiet_option, shows_progress

_UNITS = {"": 1} | {
    letter + ending: base**power
    for ending, base in (("B", 1000), ("IB", 1024))
    for power, letter in enumerate("KMGT", 1)
}

_FILES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")  # no names of folders

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json")

# Fields of a config.json that a converted one keeps: they are for training, or for a head.
_KEPT = re.compile(r"(attn|embd|resid)_pdrop|initializer_range|pad_token_id|use_cache|summary_\w+")


def _bytes(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]i?B)?", text, re.IGNORECASE | re.ASCII)
    size = int(float(found[1]) * _UNITS[(found[2] or "").upper()]) if found else 0
    if size < 1:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB or 2GB.")
    return size


@click.command("convert", short_help="Rewrite a checkpoint in another form.")
@click.argument("source", type=MODEL)
@click.argument("dest", type=NAME, metavar="DEST")
@click.option(
    "--format",
    "form",
    type=click.Choice(["safetensors", "nanogpt"]),
    default="safetensors",
    show_default=True,
    help="What to write: a folder as on the Hub, or nanoGPT's ckpt.pt.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Round the weights to this type.  [default: as stored]",
)
@click.option(
    "--shard-size",
    metavar="SIZE",
    callback=_bytes,
    help="Most bytes of weights in a file, as 2GB.  [default: one file]",
)
@click.option("--force", is_flag=True, help="Replace a checkpoint that is there.")
@heads_option
@quiet_option
def command(
    source: str,
    dest: Path,
    form: str,
    dtype: str | None,
    shard_size: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Rewrite SOURCE, any checkpoint that is read here, as DEST.

    \b
    gpt2 convert out/ckpt.pt ./model
    gpt2 convert gpt2-xl ./gpt2-xl --dtype bfloat16 --shard-size 2GB
    gpt2 convert ./model out/ckpt.pt --format nanogpt

    DEST is a folder for safetensors, with the config and tokenizer files; for nanoGPT it may be
    a file that ends in .pt. A form that cannot express the model is refused. DEST appears whole
    or not at all, and what is there is replaced with --force only.
    """
    if form == "nanogpt" and shard_size is not None:
        raise click.UsageError("--shard-size belongs to safetensors.")
    if form == "safetensors" and dest.suffix in _FILES and not dest.is_dir():
        raise click.UsageError(
            "DEST is a folder; the file in it is called model.safetensors. A .pt file is written "
            "with --format nanogpt."
        )
    target = _Target.of(dest, form)
    target.check(force)
    preset = parse_model(source).preset
    if preset is not None and form == "nanogpt":
        refuse_inexpressible(preset.config)
    checkpoint = open_weights(source, quiet=quiet, tokenizer=True)
    if form == "nanogpt":
        refuse_inexpressible(checkpoint.config)
    checkpoint.check_copies()
    place = None if preset is not None else checkpoint.path
    files = {} if target.file else _tokenizer_files(place, checkpoint.config, quiet)
    tensors = checkpoint.matched.tensors
    size = written_bytes(tensors, dtype)
    target.check_room(size)
    with new_files(target.folder, target.outdated) as new, _bar(size, quiet) as advance:
        for name, data in files.items():
            (new / name).write_bytes(data)
        if form == "nanogpt":
            path = new / (target.file or CKPT)
            write_nanogpt(path, checkpoint.config, tensors, dtype, advance)
        else:
            _write_configs(new, checkpoint, place, dtype)
            write_safetensors(new, tensors, dtype, shard_size, advance)
    note(f"wrote {dest}: {len(tensors)} tensors, {size:,} bytes of weights", quiet)


@dataclass(frozen=True)
class _Target:
    """Where a checkpoint is written: a folder, and for nanoGPT perhaps one `file` in it."""

    folder: Path
    file: str | None
    form: str

    @classmethod
    def of(cls, dest: Path, form: str) -> _Target:
        if form == "nanogpt" and dest.suffix == ".pt" and not dest.is_dir():
            return cls(dest.parent, dest.name, form)
        return cls(dest, None, form)

    def check(self, force: bool) -> None:
        """Raise GPT2Error unless the checkpoint may be written here."""
        exists = self.folder.exists()
        if self.folder.is_symlink() and not exists:
            raise GPT2Error(
                f"{self.folder} is a link that leads nowhere; remove it, or give another"
            )
        if exists and not self.folder.is_dir():
            raise GPT2Error(f"{self.folder} is a file, and DEST is a folder; give another")
        if not (exists or self.folder.parent.is_dir()) or (self.file and not exists):
            missing = self.folder if self.file else self.folder.parent
            raise GPT2Error(f"there is no folder {missing} to write into; make it first")
        if (there := self._there()) and not force:
            raise GPT2Error(
                f"{self.folder} has {listing(there)} already; give --force to replace them, or "
                "another DEST"
            )

    def check_room(self, size: int) -> None:
        """Raise GPT2Error where the file system has less than `size` bytes free."""
        free = shutil.disk_usage(self.folder if self.folder.exists() else self.folder.parent).free
        if free < size:
            raise GPT2Error(
                f"{self.folder} needs {size:,} bytes of weights, and {free:,} are free there; make "
                "room, or give another DEST"
            )

    def outdated(self, written: set[str]) -> set[str]:
        """What a replaced checkpoint has here and the new one, whose files are `written`, has not.

        Old shards would be read before a new index, an old tokenizer beside a new one.
        """
        if self.file:
            return set()
        old = set(self._there()) - written
        return {name for name in old if name not in NAMES or NAMES & written}

    def _there(self) -> list[str]:
        """The files here that a checkpoint of this form is made of."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if self._own(path.name))

    def _own(self, name: str) -> bool:
        if self.file:
            return name == self.file
        if self.form == "nanogpt":
            return name == CKPT or name in NAMES
        return bool(_WEIGHTS.fullmatch(name)) or name in {CONFIG, GENERATION_CONFIG, *NAMES}


def _tokenizer_files(place: Path | None, config: GPT2Config, quiet: bool) -> dict[str, bytes]:
    try:
        files = tokenizer_files(place, config.vocab_size)
    except OSError as error:
        raise GPT2Error(f"cannot read {error.filename}: {error.strerror}") from error
    if not files:
        note("no tokenizer files came with the model, so none are written", quiet)
    return files


def _write_configs(
    folder: Path, checkpoint: Checkpoint, place: Path | None, dtype: str | None
) -> None:
    """``config.json`` and ``generation_config.json``."""
    config = _with_ends(checkpoint.config, place)
    rest: dict[str, Any] = {}
    if (path := checkpoint.folder / CONFIG).is_file():
        kept = [name for name in checkpoint.parsed.irrelevant if _KEPT.fullmatch(name)]
        found = read_json(path)
        rest = {name: found[name] for name in kept if name in found}
    stored = checkpoint.matched.tensors["wte.weight"].dtype
    data = hub_config(config, dtype or stored, rest)
    write_json(folder / CONFIG, data)
    path = checkpoint.folder / GENERATION_CONFIG
    ids = {name: data[name] for name in ("bos_token_id", "eos_token_id") if data[name] is not None}
    generation = read_json(path) if path.is_file() else {"_from_model_config": True}
    write_json(folder / GENERATION_CONFIG, generation | ids)


def _with_ends(config: GPT2Config, place: Path | None) -> GPT2Config:
    """`config` with the end-of-text token of its tokenizer, where it names no end of its own."""
    if config.eos_token_id:
        return config
    try:
        end = load_tokenizer(place, config.vocab_size).end_of_text
    except GPT2Error:
        return config
    if end is None:
        return config
    start = end if config.bos_token_id is None else config.bos_token_id
    return replace(config, eos_token_id=(end,), bos_token_id=start)


@contextmanager
def _bar(size: int, quiet: bool) -> Iterator[Advance]:
    """A progress bar of bytes on stderr, if that is a terminal."""
    hidden = not shows_progress(quiet)
    with click.progressbar(length=size, label="writing", file=sys.stderr, hidden=hidden) as bar:
        yield bar.update
