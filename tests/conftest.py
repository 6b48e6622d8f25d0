"""What holds for every test: no network but this machine, and no setting from outside."""

import os
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

GUARD = Path(__file__).parent / "network_guard"

# What the program and the packages it stands on read from the environment.
SETTINGS = (
    "GPT2_",
    "HF_",
    "HUGGING",
    "TRANSFORMERS_",
    "TIKTOKEN_",
    "DATA_GYM_",
    "XDG_",
    "PYTHON",
    "OMP_",
)
COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS")


def is_setting(name: str) -> bool:
    """Whether an environment variable could change what a test sees."""
    return name.startswith(SETTINGS) or name in COLOURS or name.upper().endswith("_PROXY")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported: the Hub's client reads its settings on import."""
    for name in filter(is_setting, list(os.environ)):
        del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="gpt2cli-tests-")
    config.add_cleanup(home.cleanup)
    os.environ["HF_HOME"] = home.name
    os.environ["PYTHONPATH"] = str(GUARD)
    # threads that wait for each other sleep: on a busy machine spinning takes ten times as long
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    runpy.run_path(str(GUARD / "sitecustomize.py"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny layers take longer to share out than to compute."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
