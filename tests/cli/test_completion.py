"""Completion: what the program offers to the shell, and the scripts that ask for it."""

import os
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
    for name in ("name", "part"):
        folder = tmp_path / f"models--owner--{name}"
        shutil.copytree(FIXTURE, folder / "snapshots" / ("a" * 40))
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("a" * 40)
    (folder / "snapshots" / ("a" * 40) / "model.safetensors").unlink()
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_by_the_script(tmp_path):
    program = tmp_path / "gpt2"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpt2cli "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(gpt2 completion bash)"
        compopt() { :; }  # it works inside a completion alone
        COMP_WORDS=(gpt2 generate -m gpt2-); COMP_CWORD=3
        _gpt2_completion gpt2
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == ["gpt2-medium", "gpt2-large", "gpt2-xl"]
