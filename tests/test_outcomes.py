"""docs/outcomes.md: every test that it names is there, and every fault that is tested is in it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "outcomes.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HEAD = "| fault | outcome | test |"


def rows(text: str) -> list[list[str]]:
    """The cells of every row below a head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    kept = [line for line in lines if line != HEAD and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def functions_in(path: Path) -> set[str]:
    """The test functions that a file defines."""
    tree = ast.parse(path.read_text())
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {name for name in names if name.startswith("test_")}


def test_every_row_has_a_fault_an_outcome_and_tests() -> None:
    assert len(rows(TABLE)) > 50
    for cells in rows(TABLE):
        assert len(cells) == 3, cells
        assert all(cells), cells
        assert NAMED.sub("", cells[2]).strip(", ") == "", cells


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TABLE)
    files = {path: functions_in(ROOT / path) for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if name not in files[path]] == []


def test_every_fault_that_is_tested_stands_in_the_table() -> None:
    named = {f"{path}::{name}" for path, name in NAMED.findall(TABLE)}
    tested = {
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for folder in ("faults", "fuzz")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
        for name in functions_in(path)
    }
    assert len(tested) > 50
    assert tested - named == set()


def test_the_readme_leads_there() -> None:
    assert "(docs/outcomes.md)" in (ROOT / "README.md").read_text()
