"""How the program is put together: what imports what, what start-up loads, what is pinned."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import done

import gpt2cli
from gpt2cli import presets
from gpt2cli.cli import group
from gpt2cli.errors import GPT2Error

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpt2cli"

# A module or package imports only from those before it; the first is the package itself.
LEVELS = (
    "__init__",
    "errors",
    "arguments",
    "config",
    "presets",
    "layout",
    "checkpoint",
    "naming",
    "hub_errors",
    "hub_setup",
    "repository",
    "hub",
    "cache",
    "download",
    "tokenizer",
    "model",
    "packing",
    "exactness",
    "loader",
    "sampling",
    "tracing",
    "request",
    "lookup",
    "prompting",
    "generation",
    "scoring",
    "verification",
    "api",
    "cli",
    "start",
    "__main__",
)


def upward(package: Path) -> list[str]:
    """Every import in a copy of the package that is not of a lower level, as ``FILE: NAME``."""
    return [
        f"{path.relative_to(package)}: {name}"
        for path in sorted(package.rglob("*.py"))
        for name in imported(path, package)
        if not allowed(path.relative_to(package).with_suffix("").parts, name.split("."))
    ]


def allowed(importer: tuple[str, ...], target: list[str]) -> bool:
    """Whether a file may import: from a lower level, or a file beside it in its own package.

    The package itself offers what programs use, which it imports when that is asked for.
    """
    if (importer, target) == (("__init__",), ["api"]):
        return True
    if target[0] == importer[0]:
        return len(importer) > 1 and len(target) > 1
    return {target[0], importer[0]} <= set(LEVELS) and (
        LEVELS.index(target[0]) < LEVELS.index(importer[0])
    )


def imported(path: Path, package: Path) -> Iterator[str]:
    """The files and packages of gpt2cli that a file imports, as ``checkpoint.stored``."""
    home = path.relative_to(package).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "gpt2cli":
                    yield alias.name.partition(".")[2] or "__init__"
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*home[: len(home) - node.level + 1], *base]
            elif base[:1] == ["gpt2cli"]:
                base = base[1:]
            else:
                continue
            for alias in node.names:
                whole = [*base, alias.name]
                yield ".".join(whole if exists(package, whole) else base) or "__init__"


def exists(package: Path, parts: list[str]) -> bool:
    place = package.joinpath(*parts)
    return place.is_dir() or place.with_suffix(".py").exists()


def test_imports_point_downward() -> None:
    assert upward(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("config.py", "from .model import GPT2", "config.py: model"),
        ("config.py", "def f():\n    from . import cli", "config.py: cli"),
        ("layout.py", "import gpt2cli.hub", "layout.py: hub"),
        ("layout.py", "from gpt2cli.cli.verify import command", "layout.py: cli.verify"),
        ("__init__.py", "from .loader import load", "__init__.py: loader"),
        ("checkpoint/names.py", "from ..loader import load", "checkpoint/names.py: loader"),
        ("checkpoint/names.py", "from . import Checkpoint", "checkpoint/names.py: checkpoint"),
        ("unlisted.py", "from . import errors", "unlisted.py: errors"),
    ],
)
def test_an_upward_import_is_found(tmp_path: Path, file: str, line: str, found: str) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "gpt2cli")
    with (copy / file).open("a") as planted:
        planted.write(f"\n{line}\n")
    assert upward(copy) == [found]


def loads_torch(*args: str) -> bool:
    """Whether a fresh ``gpt2`` with these arguments, which must end well, imports torch."""
    code = (
        "import atexit, sys\n"
        "from gpt2cli.cli import main\n"
        "atexit.register(lambda: sys.stderr.write(f'torch: {\"torch\" in sys.modules}'))\n"
        "main()"
    )
    ran = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.rsplit("torch: ")[-1] == "True"


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in group.list_commands(None)),
        ["params", "gpt2"],
        ["params", "austen"],
        ["tokens", "-m", "gpt2", "hi"],
        ["tokens", "-m", "austen", "hi"],
        ["models"],
        ["download", "austen"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_what_computes_nothing_does_not_load_torch(args: list[str]) -> None:
    assert not loads_torch(*args)


def test_what_computes_is_seen_to_load_torch() -> None:
    assert loads_torch("generate", "-m", "austen", "-n", "1", "Emma")


# What runs text or a file's bytes as code, or another program, or races for a name.
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"),
    *("pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "shelve.open"),
    *("pickle.Unpickler", "pickle._Unpickler", "torch.load"),
    *(f"subprocess.{name}" for name in ("run", "call", "Popen", "check_output", "check_call")),
}


def risky(source: str) -> list[str]:
    """The calls in a file that could run what it reads, by the names they were imported under."""
    tree = ast.parse(source)
    known = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } | {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        first, *rest = ast.unparse(call.func).split(".")
        name = ".".join([known.get(first, first), *rest])
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        if name == "torch.load" and options.get("weights_only") == "True":
            continue
        if name in FORBIDDEN or options.get("shell", "False") != "False":
            found.append(name)
    return found


def test_nothing_shipped_runs_what_it_reads() -> None:
    shipped = [path for name in ("gpt2cli", "weights") for path in (ROOT / name).rglob("*.py")]
    assert len(shipped) > 50
    assert {str(path): found for path in shipped if (found := risky(path.read_text()))} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("eval('1')", "eval"),
        ("exec(text)", "exec"),
        ("import os; os.system('ls')", "os.system"),
        ("import pickle; pickle.loads(b'')", "pickle.loads"),
        ("from pickle import load as read; read(file)", "pickle.load"),
        ("import pickle as p; p.Unpickler(file)", "pickle.Unpickler"),
        ("import torch; torch.load(path)", "torch.load"),
        ("import torch; torch.load(path, weights_only=False)", "torch.load"),
        ("from tempfile import mktemp; mktemp()", "tempfile.mktemp"),
        ("import subprocess; subprocess.run('ls', shell=True)", "subprocess.run"),
        ("start('ls', shell=True)", "start"),
    ],
)
def test_what_runs_what_it_reads_is_found(source: str, found: str) -> None:
    assert risky(source) == [found]


def test_what_runs_nothing_is_left_alone() -> None:
    source = "import torch; model.eval(); re.compile('a'); torch.load(path, weights_only=True)"
    assert risky(source) == []


def test_main_is_three_lines() -> None:
    assert len([line for line in (PACKAGE / "__main__.py").read_text().splitlines() if line]) == 3


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").read_bytes() == b""


def test_no_shipped_file_is_executable() -> None:
    shipped = [path for name in ("gpt2cli", "weights") for path in (ROOT / name).rglob("*")]
    assert [path for path in shipped if path.is_file() and path.stat().st_mode & 0o111] == []


def test_the_version_is_the_changelogs_first() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert done("--version").text == f"gpt2 {gpt2cli.__version__}\n"
    assert heading[1] == gpt2cli.__version__


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (["gpt2cli/weights"], "gpt2cli/weights"),
        (["weights"], "weights"),
        (["gpt2cli/weights", "weights"], "gpt2cli/weights"),
    ],
)
def test_weights_lie_in_the_package_or_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], taken: str
) -> None:
    for name in there:
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(presets, "__file__", str(tmp_path / "gpt2cli" / "presets.py"))
    assert presets.weights_folder() == tmp_path / taken


def test_weights_that_lie_nowhere_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "__file__", str(tmp_path / "gpt2cli" / "presets.py"))
    with pytest.raises(GPT2Error, match="install gpt2cli again"):
        presets.weights_folder()


def test_the_copy_of_the_weights_that_an_editable_install_leaves_is_never_read(
    tmp_path: Path,
) -> None:
    site, checkout = tmp_path / "site-packages", tmp_path / "checkout"
    (site / "gpt2cli" / "weights").mkdir(parents=True)
    (checkout / "weights").mkdir(parents=True)
    shutil.copytree(PACKAGE, checkout / "gpt2cli")
    code = (
        f"import sys; sys.path[:0] = [{str(site)!r}, {str(checkout)!r}]\n"
        "from gpt2cli.presets import weights_folder; print(weights_folder())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{checkout / 'weights'}\n"


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
    ]
    asked = {plain(requirement) for group in groups for requirement in group}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert asked - {plain(name) for name in pinned} == set()
    assert pinned["torch"] == "2.13.0"


def plain(requirement: str) -> str:
    """A requirement's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()
