"""gpt2 download: fetch the few files that a model needs, and check them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from ..errors import GPT2Error
from ..naming import Model, parse_model
from .completion import MODEL
from .models import megabytes
from .options import NAME, note, quiet_option, shows_progress
from .output import emit, json_line
from .progress import duration

if TYPE_CHECKING:
    from ..cache import Bar
    from ..repository import Advance


@click.command("download", short_help="Fetch a model's files, and check them.")
@click.argument("name", metavar="MODEL", type=MODEL)
@click.option("--revision", metavar="REV", help="A branch, tag or commit; as MODEL@REV.")
@click.option(
    "--to",
    type=NAME,
    metavar="DIR",
    help="Put the files into DIR.  [default: the Hub client's cache]",
)
@click.option(
    "--force", is_flag=True, help="Replace files that are damaged, or that differ in DIR."
)
@click.option("--json", "as_json", is_flag=True, help="The files, sizes and hashes as JSON.")
@quiet_option
def command(
    name: str, revision: str | None, to: Path | None, force: bool, as_json: bool, quiet: bool
) -> None:
    """Fetch the files that MODEL needs, check them, and print the folder they lie in.

    \b
    gpt2 download gpt2
    gpt2 download owner/name@v1.0 --to ./model
    gpt2 generate -m "$(gpt2 download gpt2)" "Hello"

    Each file is checked by its size and hash, also what is here already: run it again to check
    what an earlier run fetched. Whole files are kept. Without network the cache is checked.

    The folder is a model by itself: -m DIR. What is in DIR besides is left alone.
    """
    model = _model(name, revision)
    if model.path is not None:
        return _say_local(model, to, as_json, quiet)
    from ..download import download

    found = download(model, to, force=force, bar=bars(quiet))
    folder, size = found.folder.absolute(), sum(file.size for file in found.files)
    whose = "the Hub's" if found.asked else "the cache's (the Hub is out of reach)"
    checked = f"checked against {whose} hashes" if found.known else "with no hash to check by"
    note(f"{len(found.files)} files, {megabytes(size)}, {checked}: {found.commit}", quiet)
    files = [vars(file) for file in found.files]
    _print(name, found.commit, folder, files, as_json)
    return None


def _model(name: str, revision: str | None) -> Model:
    model = parse_model(name)
    if revision is None:
        return model
    if model.repository is None:
        raise GPT2Error(f"{name} is no repository and has no revision {revision}; leave it out")
    if model.revision is not None:
        raise click.UsageError("MODEL@REV and --revision were both given; give one of them.")
    return parse_model(f"{name}@{revision}")


def _say_local(model: Model, to: Path | None, as_json: bool, quiet: bool) -> None:
    """Of a model that is here anyway: where."""
    path = Path(os.path.abspath(model.path or ""))  # noqa: PTH100  Path's keeps the dots
    if to is not None:
        raise GPT2Error(
            f"{model.name} is no repository; what it needs is {path}, which you can copy"
        )
    note(f"{model.name} is here already; nothing is downloaded", quiet)
    _print(model.name, None, path, [], as_json)


def _print(
    name: str, commit: str | None, folder: Path, files: list[dict[str, object]], as_json: bool
) -> None:
    if as_json:
        emit(json_line({"model": name, "revision": commit, "path": str(folder), "files": files}))
    else:
        emit(os.fsencode(folder) + b"\n")


def bars(quiet: bool) -> Bar:
    """Progress bars on stderr with the whole size and the time left, if that is a terminal."""

    @contextmanager
    def bar(what: str, size: int) -> Iterator[Advance]:
        hidden = not (size and shows_progress(quiet))
        began = perf_counter()

        def left(_: object) -> str | None:
            if not size / 100 <= shown.pos < size:  # before, it is the wait for an answer
                return None
            rest = (perf_counter() - began) * (size - shown.pos) / shown.pos
            return f"{duration(rest)} left"

        shown = click.progressbar(
            length=size,
            label=f"{what} {megabytes(size)}",
            show_eta=False,
            item_show_func=left,
            file=sys.stderr,
            hidden=hidden,
        )
        with shown:
            yield shown.update

    return bar
