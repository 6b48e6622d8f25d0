"""What lies in weights/ is what its README says."""

import hashlib
import re
from pathlib import Path

WEIGHTS = Path(__file__).parents[1] / "weights"

# tiktoken's own source (tiktoken_ext/openai_public.py) pins r50k_base.tiktoken to this.
RANKS = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"

ROW = re.compile(r"^\| `([^`]+)` \| ([\d,]+) \| `?([0-9a-f]{64})`? \|$", re.MULTILINE)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_vocabulary_is_the_published_one() -> None:
    assert sha256(WEIGHTS / "gpt2.tiktoken") == RANKS


def test_the_readme_lists_every_file_and_its_hash() -> None:
    rows = ROW.findall((WEIGHTS / "README.md").read_text())
    files = [
        path
        for path in WEIGHTS.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path != WEIGHTS / "README.md"
    ]
    assert sorted(rows) == sorted(
        (path.relative_to(WEIGHTS).as_posix(), f"{path.stat().st_size:,}", sha256(path))
        for path in files
    )
