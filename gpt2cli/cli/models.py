"""gpt2 models: the names known, what is here of them, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ..cache import Snapshot, snapshots
from ..config import parse_config, read_json
from ..errors import GPT2Error
from ..hub import CONFIG
from ..layout import count, shapes
from ..presets import ALIASES, EMBEDDED, PRESETS, Preset, weights_folder
from .options import note, quiet_option
from .output import emit, emit_lines, json_line


def megabytes(size: int) -> str:
    """A number of bytes to three digits, in the units that the Hub and most shops use."""
    number, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


@dataclass(frozen=True)
class _Row:
    """A model by a name it can be called by, and what is here of it."""

    model: str
    aliases: list[str]
    repository: str | None
    parameters: int | None
    download_bytes: int | None
    bytes: int | None
    revision: str | None
    refs: list[str]
    path: str | None
    complete: bool


@click.command("models", short_help="List the models known, and what is here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a model, a line each.")
@quiet_option
def command(as_json: bool, quiet: bool) -> None:
    """List the names that MODEL can be, and every GPT-2 in the Hub client's cache.

    \b
    gpt2 models
    gpt2 models --json

    The size is what lies on disk, and for a model that is not here the size of its weights. A
    revision is a branch or tag of the repository, and the beginning of its commit.
    """
    rows = list(_rows(quiet))
    if as_json:
        emit(b"".join(json_line(vars(row)) for row in rows))
    else:
        emit_lines(_table(rows))


def _rows(quiet: bool) -> Iterator[_Row]:
    yield _shipped()
    cached = _cached(quiet)
    for name, preset in PRESETS.items():
        here = [found for found in cached if found.repository == preset.repository]
        for found in here:
            yield _row(found, preset)
        if not here:
            yield _absent(name, preset)
    released = {preset.repository for preset in PRESETS.values()}
    for found in cached:
        if found.repository not in released:
            yield _row(found, None)


def _cached(quiet: bool) -> list[Snapshot]:
    """What the cache holds; what cannot be read of it is said, and no reason to fail."""
    try:
        found = list(snapshots())
    except GPT2Error as error:
        note(str(error), quiet)
        return []
    for snapshot in found:
        if snapshot.problem:
            note(f"{snapshot.repository}: {snapshot.problem}", quiet)
    return [snapshot for snapshot in found if snapshot.commit]


def _shipped() -> _Row:
    folder = weights_folder() / EMBEDDED
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    parameters = _parameters(folder)
    return _Row(EMBEDDED, [], None, parameters, None, size, None, [], str(folder), complete=True)


def _absent(name: str, preset: Preset) -> _Row:
    parameters = count(shapes(preset.config))
    size, repository = preset.file_bytes, preset.repository
    aliases = _aliases(name)
    return _Row(name, aliases, repository, parameters, size, None, None, [], None, complete=False)


def _row(found: Snapshot, preset: Preset | None) -> _Row:
    return _Row(
        model=found.model,
        aliases=_aliases(found.model),
        repository=found.repository,
        parameters=count(shapes(preset.config)) if preset else _parameters(found.folder),
        download_bytes=preset.file_bytes if preset else None,
        bytes=found.size,
        revision=found.commit,
        refs=list(found.refs),
        path=str(found.folder),
        complete=found.complete,
    )


def _aliases(name: str) -> list[str]:
    return [alias for alias, released in ALIASES.items() if released == name]


def _parameters(folder: Path) -> int | None:
    """How many parameters a config means; None for one that cannot be read."""
    try:
        return count(shapes(parse_config(read_json(folder / CONFIG), CONFIG).config))
    except GPT2Error:
        return None


def _table(rows: list[_Row]) -> Iterator[str]:
    lines = [("model", "also", "parameters", "size", "revision", "where")]
    lines += [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for model, also, parameters, size, revision, where in lines:
        yield (
            f"{model:<{widths[0]}}  {also:<{widths[1]}}  {parameters:>{widths[2]}}  "
            f"{size:>{widths[3]}}  {revision:<{widths[4]}}  {where}"
        ).rstrip()


def _cells(row: _Row) -> tuple[str, str, str, str, str, str]:
    parameters = "" if row.parameters is None else f"{row.parameters:,}"
    size = row.download_bytes if row.bytes is None else row.bytes
    revision = " ".join([*row.refs, row.revision[:7]]) if row.revision else ""
    where = row.path or "not here"
    if row.path and not row.complete:
        where = f"{row.path} (in part)"
    return row.model, ", ".join(row.aliases), parameters, megabytes(size or 0), revision, where
