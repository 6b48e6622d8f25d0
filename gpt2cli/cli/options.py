"""Options that several commands share, and what they mean."""

import re
import sys
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import click

from ..arguments import LARGEST, Number
from ..errors import GPT2Error, one_line
from ..hub import DEFAULT
from ..layout import DTYPES
from .completion import MODEL

_HEADS = f"{__name__}.n_head"
_FROM_ENVIRONMENT = f"{__name__}.model"

_PLAIN = re.compile(r"[0-9A-Za-z.+-]+")  # as numbers are written outside of Python

MOST_THREADS = 1024  # beyond what a machine can start, OpenMP ends the process

Command = TypeVar("Command", bound=Callable[..., Any])


def number(
    kind: type[int] | type[float], low: float, high: float = LARGEST, *, above: bool = False
) -> Callable[[Any], int | float]:
    """The type of an option: a finite number from `low` to `high`; where `above`, more than `low`.

    It raises click.BadParameter, which says what would have been such a number.
    """
    wanted = Number(Integral if kind is int else Real, low, high, above)

    def convert(value: Any) -> int | float:
        try:
            found: int | float = wanted.checked("it", kind(value))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {wanted}.") from None
        if not _PLAIN.fullmatch(str(value)):
            raise click.BadParameter(f"{value!r} is not {wanted} in plain digits.")
        return found

    return convert


class _Name(click.Path):
    """The name of a file or folder; an empty one would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" and param is not None:
            name = max(param.opts, key=len) if isinstance(param, click.Option) else param.metavar
            raise GPT2Error(f"{name} is empty; give the name of a file or folder")
        return super().convert(value, param, ctx)


NAME = _Name()


def _note_origin(ctx: click.Context, _param: click.Parameter, model: str | None) -> str | None:
    if ctx.get_parameter_source("model") is click.core.ParameterSource.ENVIRONMENT:
        ctx.meta[_FROM_ENVIRONMENT] = model
    return model


def model_from_environment(ctx: click.Context) -> str | None:
    """The MODEL of the command that ran in `ctx`, if the environment named it."""
    model: str | None = ctx.meta.get(_FROM_ENVIRONMENT)
    return model


model_option = click.option(
    "-m",
    "--model",
    type=MODEL,
    metavar="MODEL",
    envvar="GPT2_MODEL",
    default=DEFAULT,
    show_default=True,
    callback=_note_origin,
    help="A name, a folder or file, or owner/name[@revision] on the Hub.",
)

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="No notes and no progress on stderr."
)


def _note_heads(ctx: click.Context, _param: click.Parameter, n_head: int | None) -> None:
    ctx.meta[_HEADS] = n_head


heads_option = click.option(
    "--n-head",
    type=number(int, 1),
    metavar="N",
    expose_value=False,
    callback=_note_heads,
    help="Attention heads, for a file that has no config.",
)


def chosen_heads() -> int | None:
    """The --n-head of the command that is running."""
    heads: int | None = click.get_current_context().meta.get(_HEADS)
    return heads


def model_argument(command: Command) -> Command:
    """MODEL as an argument or as -m/--model, whichever is given; both is a usage error."""
    option = click.option(
        "-m",
        "--model",
        type=MODEL,
        metavar="MODEL",
        envvar="GPT2_MODEL",
        hidden=True,
        callback=_note_origin,
    )
    command = option(command)
    return click.argument("argument", type=MODEL, metavar="[MODEL]", required=False)(command)


def chosen_model(argument: str | None, option: str | None) -> str:
    """The one MODEL that was given, else the default."""
    ctx = click.get_current_context()
    if argument is None:
        return DEFAULT if option is None else option
    if ctx.get_parameter_source("model") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("MODEL and --model were both given; give one of them.")
    ctx.meta.pop(_FROM_ENVIRONMENT, None)
    return argument


def computing(command: Command) -> Command:
    """The options of every command that runs a network."""
    for option in (
        heads_option,
        click.option(
            "--threads",
            type=number(int, 1, MOST_THREADS),
            metavar="N",
            help="CPU threads to compute with; 1 beside other work.  [default: torch's choice]",
        ),
        click.option(
            "--dtype",
            type=click.Choice(DTYPES),
            metavar="TYPE",
            default="float32",
            show_default=True,
            help=f"Hold weights as {', '.join(DTYPES[:-1])} or {DTYPES[-1]}; all else is float32.",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda", "mps"]),
            default="auto",
            show_default=True,
            help="Where to compute.",
        ),
    ):
        command = option(command)
    return command


def note(text: str, quiet: bool = False) -> None:
    """A line on stderr, unless the user asked for quiet."""
    if not quiet:
        click.echo(f"note: {one_line(text)}", err=True)


def shows_progress(quiet: bool = False) -> bool:
    """Whether stderr is a terminal, for what is of no use in a file, and the user wants it."""
    return not quiet and sys.stderr is not None and sys.stderr.isatty()
