"""The README: its commands print what it says, and its tree names what is there.

``python tests/test_readme.py`` runs the commands and writes what they print into it.
"""

import os
import re
import runpy
import subprocess
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures.py"

CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
BRANCH = re.compile(r"(?P<indent>(?:  )*)(?P<name>\S+)  +\S.*")

# Rounding differs between machines; what is measured of it is a percentage, a number of nats,
# or so small that it has an exponent.
MEASURED = re.compile(r"\d[\d.]*(e[+-]\d+)?(?= %| nats)|\d[\d.]*e[+-]\d+")

# What a source distribution is made of.
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SDIST = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
DISTRIBUTED = {"pyproject.toml", *(name.strip("/") for name in SDIST)}

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
        left = sorted(path.name for path in Path(folder).iterdir() if path.name != "tests")
    assert ran.returncode in (0, 1), ran.stdout
    assert left == [], "a reader who follows this would have these files in the checkout"
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


def kept() -> list[str]:
    """The project's files: what git tracks, or what a source distribution is made of."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z"]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        return ran.stdout.split("\0")[:-1]
    files = [path for top in sorted(DISTRIBUTED) for path in [ROOT / top, *(ROOT / top).rglob("*")]]
    own = [path.relative_to(ROOT) for path in files if path.is_file()]
    return [path.as_posix() for path in own if "__pycache__" not in path.parts]


def listed(*places: str) -> set[str]:
    """What the project keeps one level below these folders of the checkout."""
    parts = [path.split("/") for path in kept()]
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


def test_what_the_readme_says_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"(?<=^```python\n).*?(?=^```$)", README.read_text(), re.M | re.S)
    exec(compile(block, README.name, "exec"), {})
    *texts, perplexity = capsys.readouterr().out.splitlines()
    assert len(texts) >= 2
    assert float(perplexity) > 1


def lettering(svg: str) -> str:
    """The text of a picture of a terminal, in its lines, below the window's title."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    shown = [text.text or "" for text in texts if not text.attrib["class"].endswith("-title")]
    return "".join(shown).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.skipif(not PICTURES.exists(), reason="a source distribution has no pictures")
def test_the_picture_of_a_terminal_shows_what_its_commands_print() -> None:
    pictures = runpy.run_path(str(PICTURES))
    shown = lettering(pictures["TERMINAL"].read_text())
    assert masked(shown) == masked(lettering(pictures["terminal"]()))


def test_the_readme_has_transcripts_and_one_tree() -> None:
    assert len(transcripts(README.read_text())) > 5
    assert len(TREE.findall(README.read_text())) == 1


def test_the_tree_names_what_is_there() -> None:
    (tree,) = TREE.findall(README.read_text())
    named = list(branches(tree))
    assert len(named) == len(set(named))
    missing = [path for path in named if not (ROOT / path).exists()]
    in_git = (ROOT / ".git").exists()
    assert [path for path in missing if in_git or path.split("/")[0] in DISTRIBUTED] == []
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


def written(text: str) -> list[str]:
    """The files that the commands of all blocks write, as `gpt2` and the shell are told to."""
    blocks = re.findall(r"(?<=^```sh\n).*?(?=^```$)", text, re.MULTILINE | re.DOTALL)
    commands = [command for command, _ in transcripts(text)] + "\n".join(blocks).splitlines()
    shell = [command.partition("  #")[0] for command in commands]
    target = re.compile(r"(?:--record|--to|-o|convert (?:-\S+ )*\S+|>) (\S+)")
    return [name for command in shell for name in target.findall(command)]


def test_no_command_of_the_readme_leaves_a_file_in_the_checkout() -> None:
    text = (
        "```console\n$ gpt2 a > x\n> no\n```\n"
        "```sh\ngpt2 convert -q b ./c  # -o d\ngpt2 -o ~/e\n```\n"
    )
    assert written(text) == ["x", "./c", "~/e"]
    assert [
        name for name in written(README.read_text()) if not name.startswith(("/", "~/", '"$d/'))
    ] == []


def rewrite() -> None:
    """Put what each command prints into the README."""

    def run(block: re.Match[str]) -> str:
        commands = [line for line in block[0].splitlines() if line.startswith("$ ")]
        return "".join(f"{command}\n{printed(command[2:])}" for command in commands)

    README.write_text(CONSOLE.sub(run, README.read_text()))


if __name__ == "__main__":
    rewrite()
