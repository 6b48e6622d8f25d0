"""The README: its commands print what it says, and its tree names what is there.

``python tests/test_readme.py`` runs the commands and writes what they print into it.
"""

import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
BRANCH = re.compile(r"(?P<indent>(?:  )*)(?P<name>\S+)  +\S.*")

# Rounding differs between machines; what is measured of it is a percentage, a number of nats,
# or so small that it has an exponent.
MEASURED = re.compile(r"\d[\d.]*(e[+-]\d+)?(?= %| nats)|\d[\d.]*e[+-]\d+")

# What a reader of the tree can do without.
NOT_NAMED = {".gitignore", "gpt2cli/__init__.py", "gpt2cli/__main__.py", "gpt2cli/py.typed"}


def transcripts(text: str) -> list[tuple[str, str]]:
    """Every command of the console blocks, and what is printed under it."""
    return [
        tuple(part.split("\n", 1))
        for block in CONSOLE.findall(text)
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


def printed(command: str) -> str:
    """What a command prints, in whole lines, in a folder with the checkout's tests in it."""
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tests").symlink_to(ROOT / "tests")
        ran = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            text=True,
        )
    assert ran.returncode in (0, 1), ran.stdout
    return ran.stdout if ran.stdout.endswith("\n") else f"{ran.stdout}\n"


def masked(text: str) -> str:
    return MEASURED.sub("#", text)


def branches(tree: str) -> Iterator[str]:
    """The paths that a tree names, a line each, two spaces deeper than the folder they lie in."""
    above: list[str] = []
    for line in tree.splitlines():
        branch = BRANCH.fullmatch(line)
        assert branch is not None, line
        above[len(branch["indent"]) // 2 :] = [branch["name"].rstrip("/")]
        yield "/".join(above)


def listed(*places: str) -> set[str]:
    """What git keeps, or would keep, one level below these folders of the checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    parts = [path.split("/") for path in ran.stdout.splitlines()]
    depths = {place: len(place.split("/")) + 1 if place else 1 for place in places}
    return {
        "/".join(path[:depth])
        for path in parts
        for place, depth in depths.items()
        if len(path) >= depth and "/".join(path[: depth - 1]) == place
    }


@pytest.mark.parametrize(
    ("command", "output"), transcripts(README.read_text()), ids=lambda text: text.split("\n")[0]
)
def test_a_command_prints_what_the_readme_says(command: str, output: str) -> None:
    assert masked(printed(command)) == masked(output)


def test_the_readme_has_transcripts_and_one_tree() -> None:
    assert len(transcripts(README.read_text())) > 5
    assert len(TREE.findall(README.read_text())) == 1


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git tells what belongs to the project")
def test_the_tree_names_what_is_there() -> None:
    (tree,) = TREE.findall(README.read_text())
    named = list(branches(tree))
    assert len(named) == len(set(named))
    assert [path for path in named if not (ROOT / path).exists()] == []
    tops = {path.split("/")[0] for path in named}
    assert listed("", "gpt2cli", "weights") - NOT_NAMED - set(named) - tops == set()


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("max |Δlogit|        4.77e-07", "max |Δlogit|        9.54e-07", True),
        ("tolerance used      0.374 % of", "tolerance used      1.2e-05 % of", True),
        ("mean KL             0 nats", "mean KL             1.2e-15 nats", True),
        ("positions compared  24", "positions compared  25", False),
        ("max |Δlogit|        0.1", "max |Δlogit|        0.2", False),
        ("124,439,808", "124,439,809", False),
    ],
)
def test_only_what_is_measured_may_differ(one: str, other: str, alike: bool) -> None:
    assert (masked(one) == masked(other)) is alike


def test_commands_are_told_from_what_they_print() -> None:
    text = "```console\n$ a\n1\n2\n$ b\n3\n```\n```sh\n$ c\n```\n"
    assert transcripts(text) == [("a", "1\n2\n"), ("b", "3\n")]


def rewrite() -> None:
    """Put what each command prints into the README."""

    def run(block: re.Match[str]) -> str:
        commands = [line for line in block[0].splitlines() if line.startswith("$ ")]
        return "".join(f"{command}\n{printed(command[2:])}" for command in commands)

    README.write_text(CONSOLE.sub(run, README.read_text()))


if __name__ == "__main__":
    rewrite()
