"""Completion: what the program offers to the shell, and the scripts that ask for it."""

import os
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import done, run

from gpt2cli.cli import COMMANDS
from gpt2cli.cli.completion import VARIABLE
from gpt2cli.naming import names

pty = pytest.importorskip("pty", reason="a pseudo-terminal is a thing of Unix")

FIXTURE = Path(__file__).parents[1] / "fixtures" / "hub" / "hub-released"


def ask(line: str, **environment: str) -> subprocess.CompletedProcess:
    """What the program answers to bash when Tab is pressed at the end of `line`."""
    words = line.split(" ")
    question = {VARIABLE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(
        [sys.executable, "-m", "gpt2cli"],
        capture_output=True,
        text=True,
        env=os.environ | question | environment,
    )


def offered(line: str, **environment: str) -> list[str]:
    ran = ask(line, **environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def cached(cache: Path, name: str) -> Path:
    """A model called owner/`name` in the Hub client's cache."""
    folder = cache / f"models--owner--{name}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("a" * 40)
    return shutil.copytree(FIXTURE, folder / "snapshots" / ("a" * 40))


def test_commands_and_options_are_offered():
    assert offered("gpt2 ") == [f"plain,{name}" for name in COMMANDS]
    assert offered("gpt2 par") == ["plain,params"]
    assert "plain,--temperature" in offered("gpt2 generate --te")
    assert offered("gpt2 nothing ") == [f"plain,{name}" for name in COMMANDS]


@pytest.mark.parametrize(
    "before",
    ["generate -m", "tokens --model", "params", "verify", "download", "convert", "score -m"],
)
def test_model_is_a_name_that_is_known_or_cached_or_a_file(before, tmp_path):
    cached(tmp_path, "name")
    (cached(tmp_path, "part") / "model.safetensors").unlink()
    cache = {"HF_HUB_CACHE": str(tmp_path)}
    known = [f"plain,{name}" for name in [*names(), "owner/name"]]
    assert offered(f"gpt2 {before} ", **cache) == ["file,", *known]
    assert offered(f"gpt2 {before} own", **cache) == ["file,own", "plain,owner/name"]


def test_a_cache_that_cannot_be_read_leaves_the_known_names(tmp_path):
    (tmp_path / "file").touch()
    found = offered("gpt2 generate -m au", HF_HUB_CACHE=str(tmp_path / "file"))
    assert found == ["file,au", "plain,austen"]


def test_completing_loads_neither_torch_nor_the_hubs_http_client():
    code = (
        "import atexit, sys\n"
        "heavy = {'torch', 'numpy', 'httpx', 'httpx2'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules))))\n"
        "from gpt2cli.cli import main; main()"
    )
    words = {VARIABLE: "bash_complete", "COMP_WORDS": "gpt2 params ", "COMP_CWORD": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | words
    )
    assert ran.stdout.splitlines()[-1] == "[]"
    assert "plain,gpt2-xl" in ran.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_what_the_variable_asks_for(shell, monkeypatch):
    script = done("completion", shell).out
    assert f"{VARIABLE}={shell}_complete".encode() in script
    monkeypatch.setenv(VARIABLE, f"{shell}_source")
    assert done().out == script


def test_a_question_that_no_shell_asked_is_no_bug(monkeypatch):
    monkeypatch.setenv(VARIABLE, "bash_complete")
    assert run().code == 1
    monkeypatch.setenv(VARIABLE, "nothing")
    assert run().code == 1


# As the shells do it


@pytest.fixture
def at_home(tmp_path, monkeypatch) -> None:
    """A folder to be in, with a file and a cached model, where `gpt2` is this program."""
    program = tmp_path / "bin" / "gpt2"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpt2cli "$@"\n')
    program.chmod(0o755)
    cached(tmp_path / "cache", "name")
    (tmp_path / "letter.txt").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")


def in_shell(*command: str) -> list[str]:
    """The lines that a shell prints; it says nothing on stderr."""
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("generate -m gpt2-", ["gpt2-medium", "gpt2-large", "gpt2-xl"]),
        ("generate --model = own", ["owner/name"]),  # how bash splits --model=own
        ("generate --dtype = int", ["int8"]),
    ],
)
def test_bash_completes_by_the_script(at_home, words, answers):
    script = f"""
        eval "$(gpt2 completion bash)"
        compopt() {{ :; }}  # it works inside a completion alone
        COMP_WORDS=(gpt2 {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _gpt2_completion gpt2
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert in_shell("bash", "--norc", "-c", script) == answers


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("gpt2 gen", "generate\tContinue a text."),
        ("gpt2 mode", "models\tList the models known, and what is here."),
        ("gpt2 generate -m own", "owner/name"),
        ("gpt2 generate --model=own", "--model=owner/name"),
        ("gpt2 generate -f let", "letter.txt"),
        ("gpt2 params let", "letter.txt"),
    ],
)
def test_fish_completes_by_the_script(at_home, line, answer):
    script = f"gpt2 completion fish | source; complete -C {shlex.quote(line)}"
    assert in_shell("fish", "-c", script) == [answer]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("gpt2 gen", "gpt2 generate "),
        ("gpt2 generate -m own", "gpt2 generate -m owner/name "),
        ("gpt2 generate --model=own", "gpt2 generate --model=owner/name "),
        ("gpt2 generate -f let", "gpt2 generate -f letter.txt "),
    ],
)
def test_zsh_completes_by_the_script(at_home, line, whole):
    pid, fd = pty.fork()
    if not pid:
        os.execvp("zsh", ["zsh", "-f", "-i"])
    setup = """eval "$(gpt2 completion zsh)"
        leave() { print -rn -- "$BUFFER" > line; exit }
        zle -N leave; bindkey '^X' leave; print now; print type\n"""
    os.write(fd, setup.encode())
    read_until(fd, b"now\r\ntype\r\n")
    os.write(fd, f"{line}\t\x18".encode())
    os.waitpid(pid, 0)
    os.close(fd)
    assert Path("line").read_text() == whole


def read_until(fd: int, end: bytes) -> None:
    """Read what is shown until `end` comes."""
    shown = b""
    while end not in shown:
        assert select.select([fd], [], [], 60)[0], shown
        shown += os.read(fd, 65536)


def test_without_a_shell_the_ones_known_are_named_in_one_line():
    ran = run("completion")
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.endswith("Error: Give SHELL: bash, zsh or fish.\n")
