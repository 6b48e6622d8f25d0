"""Options that several commands share, and what they mean."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..hub import DEFAULT

MOST_THREADS = 1024  # beyond what a machine can start, OpenMP ends the process

Command = TypeVar("Command", bound=Callable[..., Any])

model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    envvar="GPT2_MODEL",
    default=DEFAULT,
    show_default=True,
    help="A name, a folder or file, or owner/name[@revision] on the Hub.",
)

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="No notes and no progress on stderr."
)


def model_argument(command: Command) -> Command:
    """MODEL as an argument or as -m/--model, whichever is given; both is a usage error."""
    command = click.option("-m", "--model", metavar="MODEL", envvar="GPT2_MODEL", hidden=True)(
        command
    )
    return click.argument("argument", metavar="[MODEL]", required=False)(command)


def chosen_model(argument: str | None, option: str | None) -> str:
    """The one MODEL that was given, else the default."""
    source = click.get_current_context().get_parameter_source("model")
    if argument is not None and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("MODEL and --model were both given; give one of them.")
    return argument or option or DEFAULT


def computing(command: Command) -> Command:
    """The options of every command that runs a network."""
    for option in (
        click.option(
            "--threads",
            type=click.IntRange(min=1, max=MOST_THREADS),
            help="CPU threads to compute with.  [default: torch's choice]",
        ),
        click.option(
            "--dtype",
            type=click.Choice(["float32"]),
            default="float32",
            show_default=True,
            help="What weights are held in; narrower stored types are widened.",
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
        click.echo(f"note: {text}", err=True)


class Number(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As FloatRange does; NaN and infinity, which compare with nothing, are refused."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
