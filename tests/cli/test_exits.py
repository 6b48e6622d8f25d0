"""How the program ends: exit codes, signals, closed pipes, full disks, and bugs."""

import inspect
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest
from program import PROGRAM, child, done, refusal, run

from gpt2cli import cli
from gpt2cli.cli import COMMANDS, params
from gpt2cli.errors import GPT2Error

# A locale without UTF-8, and Python kept from choosing a better one.
ASCII = {
    "LC_ALL": "C",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}


def environment(**more: str) -> dict[str, str]:
    return os.environ | more


def end(process: subprocess.Popen, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    """The exit code of a child, and the rest of what it printed."""
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out or b"", err or b""


def one_line(err: bytes) -> str:
    line = err.decode()
    assert line.startswith("Error: ")
    assert line.count("\n") == 1
    return line


# Signals and pipes

ENDLESS = (
    "generate",
    "-q",
    "-m",
    "austen",
    "-t",
    "0",
    "-n",
    "999999",
    "--overflow",
    "slide",
    "--threads",
    "1",
)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_text_and_what_was_written_stays(sent, code):
    with child(*ENDLESS, "My dear") as process:
        begun = process.stdout.read(40)
        process.send_signal(sent)
        found, rest, err = end(process)
    whole = done("generate", "-m", "austen", "-t", "0", "-n", "40", "--threads", "1", "My dear").out
    assert (found, err) == (code, b"")
    text = begun + rest
    both = min(len(text), len(whole) - 1)
    assert both >= 40
    assert text[:both] == whole[:both]


@pytest.mark.parametrize("args", [(*ENDLESS, "My dear"), ("generate", "--help")])
def test_a_closed_pipe_is_quiet(args):
    with child(*args) as process:
        if "--help" not in args:
            assert process.stdout.read(1) == b"M"
        process.stdout.close()
        process.stdout = None
        code, _, err = end(process)
    assert (code, err) == (141, b"")


# Standard output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "args",
    [
        ("params", "gpt2"),
        ("params", "gpt2", "--json"),
        ("tokens", "a"),
        ("--help",),
        ("--version",),
    ],
)
def test_a_full_disk_is_one_line(args):
    with Path("/dev/full").open("wb") as full, child(*args, stdout=full) as process:
        code, _, err = end(process)
    assert code == 1
    assert "standard output" in one_line(err)


@pytest.mark.parametrize("args", [("params", "gpt2"), ("--version",)])
def test_a_closed_standard_output_is_one_line(args):
    with child(*args, preexec_fn=lambda: os.close(1)) as process:
        code, _, err = end(process)
    assert code == 1
    assert "standard output is closed" in one_line(err)


def test_standard_input_that_cannot_be_read_is_one_line(tmp_path):
    with (tmp_path / "x").open("wb") as unreadable, child("tokens", stdin=unreadable) as process:
        code, out, err = end(process)
    assert (code, out) == (1, b"")
    assert "cannot read standard input" in one_line(err)


# Text in a locale without it


def test_text_goes_out_in_utf8_whatever_the_locale():
    text = "né 🤗".encode()
    args = ("generate", "-m", "austen", "-n", "0", "--stop", text, text)
    with child(*args, env=environment(**ASCII)) as process:
        assert end(process) == (0, text + b"\n", b"")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        *(((command, "--help"), 0) for command in COMMANDS),
        (("--help",), 0),
        (("params", "gpt2"), 0),
        (("params", "./🤗".encode()), 1),
        (("params", b"./caf\xe9"), 1),
        (("tokens", "--decode", "🤗".encode()), 2),
        (("tokens", b"caf\xe9", "--pieces"), 0),
        (("tokens", "🤗".encode(), "--json"), 0),
    ],
)
def test_nothing_stumbles_over_the_locale(args, code):
    with child(*args, env=environment(**ASCII)) as process:
        found, out, err = end(process)
    assert found == code, err
    assert bool(out) == (code == 0)
    assert b"Traceback" not in err


def test_a_model_whose_path_is_no_utf8_can_be_named(tmp_path):
    model = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    checkpoints.write(Path(model))
    assert done("verify", model, "--threads", "1", "--json").out.startswith(b'{"passed"')
    assert done("verify", model, "--threads", "1").text.startswith(
        os.fspath(tmp_path) + r"/caf\udce9"
    )


# Errors


def fail(error: BaseException):
    def failing(*_args, **_options):
        raise error

    return failing


def ended(monkeypatch, capsys, error: BaseException) -> tuple[int, str]:
    """The exit code and stderr of a command in which `error` is raised."""
    monkeypatch.setattr(params, "_count", fail(error))
    monkeypatch.setattr(sys, "argv", ["gpt2", "params"])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as left:
            cli.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    printed = capsys.readouterr()
    assert printed.out == ""
    return left.value.code, printed.err


@pytest.mark.parametrize("error", [KeyError("x"), OSError("no number"), AssertionError()])
def test_a_bug_names_its_place_in_one_line(monkeypatch, capsys, error):
    monkeypatch.delenv("GPT2_DEBUG", raising=False)
    lines, first = inspect.getsourcelines(fail)
    line = first + next(i for i, text in enumerate(lines) if "raise" in text)
    place = f"{type(error).__name__} at test_exits.py:{line}"
    message = f"internal error ({place}); run again with GPT2_DEBUG=1 for the traceback"
    assert ended(monkeypatch, capsys, error) == (70, f"Error: {message}\n")


def test_a_file_that_fails_where_nobody_looked_for_it_is_one_line(monkeypatch, capsys):
    error = OSError(5, "Input/output error", "some\nname")
    line = "Error: cannot use some name: Input/output error\n"
    assert ended(monkeypatch, capsys, error) == (1, line)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_that_is_not_there_is_one_line_and_no_bug(monkeypatch, capsys, error):
    code, err = ended(monkeypatch, capsys, error)
    assert code == 1
    assert re.fullmatch("Error: there is not enough memory; .*\n", err)


def test_any_other_error_of_the_same_kind_is_a_bug(monkeypatch, capsys):
    assert ended(monkeypatch, capsys, RuntimeError("the size of tensor a"))[0] == 70


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of memory that Linux keeps")
@pytest.mark.parametrize(
    "args", [("tokens",), ("generate", "-m", "austen"), ("score", "-m", "austen")], ids="".join
)
@pytest.mark.parametrize("place", [("-f", "/dev/zero"), ()], ids=["file", "stdin"])
def test_a_text_without_an_end_is_refused_by_its_length(args, place):
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))

    with (
        Path("/dev/zero").open("rb") as zeros,
        child(*args, *place, stdin=zeros, preexec_fn=bound) as gpt2,
    ):
        out, err = gpt2.communicate()
    assert (gpt2.returncode, out) == (1, b"")
    name = "/dev/zero" if place else "standard input"
    assert re.fullmatch(f"Error: {name} has more than [0-9,]+ bytes.*; give less\n", err.decode())


@pytest.mark.parametrize("module", ["gpt2cli.cli", "contextlib", "click", "gpt2cli.errors"])
def test_ctrl_c_is_quiet_while_the_program_is_imported(module):
    interrupted = f"""
import sys
class Finder:
    def find_spec(name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.modules.pop({module!r}, None)
sys.meta_path.insert(0, Finder)
"""
    ran = subprocess.run([sys.executable, "-c", interrupted + PROGRAM], capture_output=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def test_a_bug_shows_its_traceback_when_asked(monkeypatch, capsys):
    monkeypatch.setenv("GPT2_DEBUG", "1")
    code, err = ended(monkeypatch, capsys, KeyError("x"))
    assert code == 70
    assert err.startswith("Traceback")
    assert err.endswith("KeyError: 'x'\n")


def test_an_error_is_one_line_without_control_characters(monkeypatch, capsys):
    error = GPT2Error("what \n went\twrong: \x1b[31m é 🤗")
    assert ended(monkeypatch, capsys, error) == (1, "Error: what went wrong: \\x1b[31m é 🤗\n")


def test_ctrl_c_is_quiet_anywhere(monkeypatch, capsys):
    assert ended(monkeypatch, capsys, KeyboardInterrupt()) == (130, "")


@pytest.mark.parametrize(
    "args", [(), ("nothing",), ("--no-such",), ("params", "--no-such"), ("params", "a", "b")]
)
def test_wrong_usage_is_2(args):
    ran = run(*args)
    assert (ran.code, ran.out) == (2, b"")
    assert "Usage: gpt2" in ran.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--temp", "Did you mean '--temperature'?"),
        ("--no", "'--no-echo'"),
        ("--sead", "--seed"),
        ("-1", "No such option '-1'."),
    ],
)
def test_an_option_that_was_cut_short_is_completed(option, said):
    ran = run("generate", option, "1")
    assert (ran.code, ran.out) == (2, b"")
    assert said in ran.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("genrate", "hi"), "did you mean generate?"),
        (("Params",), "did you mean params?"),
        (("Hello world",), "gpt2 generate 'Hello world'"),
        (("It's", "so", "-n", "5"), """gpt2 generate 'It'"'"'s so'"""),
    ],
)
def test_what_is_no_command_gets_a_hint(args, said):
    ran = run(*args)
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.endswith(f"{said}\n")


@pytest.mark.parametrize("args", [("params",), ("tokens", "a"), ("generate", "a"), ("verify",)])
def test_an_error_says_when_the_environment_named_the_model(args, monkeypatch):
    monkeypatch.setenv("GPT2_MODEL", "./no/such")
    assert refusal(*args).endswith("check the path (./no/such is what GPT2_MODEL says)\n")
    option = ("-m", "./none")
    assert "GPT2_MODEL" not in refusal(*args, *option)
    if args[0] in ("params", "verify"):
        assert "GPT2_MODEL" not in refusal(*args, "./no/such")


@pytest.mark.parametrize("args", [("params", ""), ("verify", ""), ("tokens", "-m", "", "a")])
def test_a_model_that_is_empty_is_refused_by_name(args):
    assert "MODEL is empty" in refusal(*args)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_reads_well_on_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = done(*command.split(), "--help").text
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"RANGE|INTEGER|FLOAT|<=|>=", text)


def test_help_and_version_are_0():
    assert re.fullmatch(r"gpt2 \d+\.\d+\.\d+\S*\n", done("--version").text)
    for command in COMMANDS:
        assert done(command, "--help").text.startswith(f"Usage: gpt2 {command} ")
        assert done(command, "-h").out == done(command, "--help").out
