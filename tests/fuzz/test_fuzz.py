"""Damaged files, by the thousand: each ends in a result or in one clear line.

FUZZ is how many of each kind; without it a few, always the same.
"""

import os
import shutil
from pathlib import Path

import pytest
import torch
from fuzz import mutations
from fuzz.bounds import bounded
from fuzz.seeds import Numbers, Seed, seeds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpt2cli.errors import GPT2Error

COUNT = int(os.environ.get("FUZZ", "0"))

NAMES = """
safetensors, safetensors header, config.json, index.json, zip, zip pickle, legacy pickle, nanogpt,
llmc, gguf, gguf tokenizer, tf index, tf block, tf header, tf row, tf data, tf checkpoint file,
hparams.json, tokenizer.json, vocab.json, merges.txt, added_tokens.json, tokenizer_config.json,
special_tokens_map.json, meta.pkl, reference.json, reference.safetensors, debug state
"""


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[str, Seed]:
    return seeds(tmp_path_factory.mktemp("seeds"))


def outcome(seed: Seed, folder: Path, data: bytes) -> Numbers | str:
    """The numbers in the file, or the one line with which it is refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    seed.write(folder, data)
    try:
        with bounded():
            return seed.read(folder)
    except GPT2Error as error:
        said = str(error)
        assert said.isprintable()
        assert str(folder) in said
        return said


def same(one: Numbers, other: Numbers) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


@pytest.mark.parametrize("name", [name.strip() for name in NAMES.split(",")])
def test_a_damaged_file_ends_in_a_result_or_one_clear_line(
    every: dict[str, Seed], name: str, tmp_path: Path
) -> None:
    seed, folder = every[name], tmp_path / "m"
    sound = outcome(seed, folder, seed.sound)
    assert isinstance(sound, dict), sound
    tried: list[int] = []
    kinds = [mutations.damaged(seed.sound, seed.marks)]
    if seed.is_json:
        kinds = [mutations.damaged_json(seed.sound)] * 3 + kinds

    @settings(
        max_examples=COUNT or 25,
        deadline=None,
        database=None,
        derandomize=not COUNT,
        phases=[Phase.generate, *([Phase.shrink] if COUNT else [])],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(kinds))
    def check(data: bytes) -> None:
        tried.append(len(data))
        found = outcome(seed, folder, data)
        if seed.exact and isinstance(found, dict):
            assert same(found, sound)

    check()
    assert len(tried) >= COUNT


def test_every_kind_is_among_them(every: dict[str, Seed]) -> None:
    assert [*every] == [name.strip() for name in NAMES.split(",")]
