"""The command line: a file a command, and the one seam where errors become lines and exit codes."""

import difflib
import importlib
import itertools
import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from .. import __version__
from ..errors import GPT2Error, one_line
from .help import Context
from .standard_error import make_sure as make_sure_of_stderr

# As --help shows them.
GROUPS = {
    "Text": ("generate", "score"),
    "Numbers": ("params", "verify", "tokens"),
    "Files": ("download", "models", "convert"),
    "Shell": ("completion",),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)

_NO_MEMORY = "Error: there is not enough memory; take a smaller model or text, or make room for it"


class _Lazy(click.Group):
    """A group that imports a command's module when that command is asked for."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f".{cmd_name}", __name__).command
        command.context_class = Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = args[0] not in COMMANDS and not args[0].startswith("-")
        if unknown and not ctx.resilient_parsing:  # as it is when the shell completes
            ctx.fail(f"There is no command {args[0]!r}; {_meant(args)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            lines = [
                (f"{name:<{width}}", command.get_short_help_str(formatter.width - width))
                for name, command in commands
                if command is not None
            ]
            with formatter.section(title):
                formatter.write_dl(lines)


def _meant(args: list[str]) -> str:
    """What may have been meant by arguments that begin with no command: one, or a prompt."""
    if close := difflib.get_close_matches(args[0].lower(), COMMANDS, n=1):
        return f"did you mean {close[0]}?"
    words = itertools.takewhile(lambda word: not word.startswith("-"), args)
    return f"to continue a text: gpt2 generate {shlex.quote(' '.join(words))}"


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="gpt2", message="%(prog)s %(version)s")
def group() -> None:
    """GPT-2 on the command line: generate text, count parameters, verify the numbers.

    \b
    gpt2 generate -m austen "My dear"      text, with no network
    gpt2 score -m austen -f letter.txt     how likely a text is
    gpt2 params gpt2-xl                    a count by component
    gpt2 verify ./model                    what it computes
    gpt2 tokens "Hello, world"             text to token ids
    gpt2 download gpt2 --to ./gpt2         files, checked
    gpt2 convert out/ckpt.pt ./model       in another form

    MODEL is a name (austen, gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2), a folder or
    file, or owner/name[@revision] on the Hugging Face Hub. The default is gpt2, or what the
    environment variable GPT2_MODEL says.
    """


class _Terminated(BaseException):
    """SIGTERM arrived."""


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def main() -> NoReturn:
    """Run the program and leave with its exit code: 0, 1, 2, 70, 130, 141 or 143."""
    signal.signal(signal.SIGTERM, _terminate)
    make_sure_of_stderr()
    code = _run()
    for number in (signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(number)):  # while Python takes itself down, it would print
            signal.signal(number, signal.SIG_DFL)
    sys.exit(code)


def _run() -> int:
    """Run the command; every way it can end, as an exit code."""
    try:
        if sys.stdout is None:
            raise GPT2Error("standard output is closed; send it to a file or to /dev/null")
        code = _invoke()
        sys.stdout.flush()
        return code
    except GPT2Error as error:
        return _say(f"Error: {error}", 1)
    except click.ClickException as error:
        _completed(error).show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except _Terminated:
        return 143
    except BrokenPipeError:
        _drop_buffered()
        return 141
    except OSError as error:
        return _bug(error) if error.errno is None else _refused_by_system(error)
    except (MemoryError, RuntimeError) as error:
        return _say(_NO_MEMORY, 1) if _out_of_memory(error) else _bug(error)
    except Exception as error:  # the seam: whatever else arrives here is a bug of ours
        return _bug(error)


def _invoke() -> int:
    """The command's exit code. Not by way of click's `main`, which ends a closed pipe with 1."""
    from .completion import complete

    if (answered := complete(group)) is not None:
        return answered
    try:
        with group.make_context("gpt2", sys.argv[1:]) as context:
            try:
                result = group.invoke(context)
            except GPT2Error as error:
                raise _with_origin(error, context) from error
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0


def _completed(error: click.ClickException) -> click.ClickException:
    """The error; of an option that was cut short, with those that begin so as what was meant."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    params = error.ctx.command.get_params(error.ctx)
    names = {name for param in params for name in (*param.opts, *param.secondary_opts)}
    begun = sorted(name for name in names if name.startswith(error.option_name))
    if not begun or not error.option_name.startswith("--"):
        return error
    return click.NoSuchOption(error.option_name, possibilities=begun, ctx=error.ctx)


def _with_origin(error: GPT2Error, context: click.Context) -> GPT2Error:
    """The error; of a MODEL that the environment named, which the user does not see, it says so."""
    from .options import model_from_environment

    name = model_from_environment(context)
    if not name or name not in str(error):
        return error
    return GPT2Error(f"{error} ({name} is what GPT2_MODEL says)")


def _out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Whether memory was asked for that is not there: by Python, or by torch on any device."""
    if isinstance(error, MemoryError):
        return True
    return type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)


def _refused_by_system(error: OSError) -> int:
    """What the system refused; what is written to and has no name is stdout."""
    if error.filename is not None:
        return _say(f"Error: {one_line(f'cannot use {error.filename}: {error.strerror}')}", 1)
    _drop_buffered()
    return _say(f"Error: cannot write to standard output: {error.strerror}", 1)


def _drop_buffered() -> None:
    """What is still buffered for stdout goes nowhere, so that it does not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(error: Exception) -> int:
    if os.environ.get("GPT2_DEBUG") == "1":
        traceback.print_exc()
        return 70
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return _say(
        f"Error: internal error ({place}); run again with GPT2_DEBUG=1 for the traceback", 70
    )


def _say(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code
