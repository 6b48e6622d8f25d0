"""The program as its users meet it: called in this process, or as a child of its own."""

import io
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from gpt2cli.cli import main

PROGRAM = "from gpt2cli.start import program; program()"  # what the installed `gpt2` runs


@dataclass(frozen=True)
class Ran:
    """How a run ended, and what it printed."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


class Terminal(io.TextIOWrapper):
    """Standard input that nobody types at; reading it is an error."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def isatty(self) -> bool:
        return True

    @property
    def buffer(self):
        raise AssertionError("standard input was read")


def run(*args: str, stdin: bytes | None = None) -> Ran:
    """`gpt2` with these arguments, in this process; a `stdin` of None is a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    entry = Terminal() if stdin is None else io.TextIOWrapper(io.BytesIO(stdin))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        mock.patch.multiple(sys, argv=["gpt2", *args], stdin=entry),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert code != 70, err.buffer.getvalue().decode()
    return Ran(code, out.buffer.getvalue(), err.buffer.getvalue().decode())


def done(*args: str, stdin: bytes | None = None) -> Ran:
    """A run that ended well."""
    ran = run(*args, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def refusal(*args: str, stdin: bytes | None = None) -> str:
    """The one line with which a run fails."""
    ran = run(*args, stdin=stdin)
    assert (ran.code, ran.out) == (1, b""), ran
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1
    return ran.err


def child(*args: str | bytes, **options) -> subprocess.Popen:
    """`gpt2` with these arguments as a process of its own, with pipes for what is not given."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *args], **(pipes | options))
