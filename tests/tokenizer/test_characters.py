"""nanoGPT's meta.pkl: characters to ids and back, and nothing in it ever runs."""

import os
import pickle
from pathlib import Path

import nanogpt_model
import pytest
import torch
from program import done

from gpt2cli.errors import GPT2Error
from gpt2cli.tokenizer import load_tokenizer

CHARACTERS = "\n !abcdefgé’猫🤗"


def write(folder: Path, characters: str = CHARACTERS, **changes: object) -> Path:
    """A table as prepare.py writes it."""
    stoi = {character: number for number, character in enumerate(characters)}
    itos = dict(enumerate(characters))
    meta = {"vocab_size": len(characters), "itos": itos, "stoi": stoi} | changes
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder


def refusal(folder: Path, vocab_size: int | None = None) -> str:
    with pytest.raises(GPT2Error) as refused:
        load_tokenizer(folder, vocab_size)
    return str(refused.value)


def test_each_character_is_its_id_and_back(tmp_path: Path) -> None:
    ours = load_tokenizer(write(tmp_path), len(CHARACTERS))
    for text in (CHARACTERS, CHARACTERS[::-1], "", "a猫🤗 ’é\n\n", "gg  gg"):
        ids = [CHARACTERS.index(character) for character in text]
        assert ours.encode(text) == ids
        assert ours.decode(ids) == text
    assert ours.n_vocab == len(CHARACTERS)
    assert ours.end_of_text is None


@pytest.mark.parametrize("text", ["z", "a–", "ab\u2018", "\N{NERD FACE}"])
def test_a_character_that_is_not_in_the_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(GPT2Error, match=r"is not in the vocabulary .*meta\.pkl"):
        load_tokenizer(write(tmp_path), None).encode(text)


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_table_that_would_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    write(tmp_path, stoi=Runs(witness))
    said = refusal(tmp_path)
    assert "asks for posix.system" in said
    assert "nothing of it was run" in said
    assert not witness.exists()


@pytest.mark.parametrize(
    ("stoi", "said"),
    [
        (None, "has no stoi"),
        ({}, "has no stoi"),
        ({"ab": 0}, "token 'ab' is not a character"),
        ({"": 0}, "token '' is not a character"),
        ({"\ud800": 0}, "is not a character"),
        ({"a": -1}, "the id of 'a' is -1"),
        ({"a": True}, "the id of 'a' is True"),
        ({"a": 0, "b": 0}, "two characters have one id"),
    ],
)
def test_a_table_of_anything_but_characters_is_refused(
    tmp_path: Path, stoi: object, said: str
) -> None:
    assert said in refusal(write(tmp_path, stoi=stoi))


@pytest.mark.parametrize("data", [b"", b"x", b"\x80", pickle.dumps([1]), pickle.dumps({})[:-1]])
def test_a_damaged_table_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "meta.pkl").write_bytes(data)
    assert "table of characters" in refusal(tmp_path)


def test_a_table_of_another_size_than_the_models_is_refused(tmp_path: Path) -> None:
    assert "has 14 characters, and the model 50304 ids" in refusal(write(tmp_path), 50304)


def test_a_checkpoint_with_its_table_beside_it_writes_text(tmp_path: Path) -> None:
    args = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 16, "bias": False}
    args |= {"vocab_size": len(CHARACTERS)}
    saved = {"model": nanogpt_model.random_state(args), "model_args": args}
    torch.save(saved, write(tmp_path) / "ckpt.pt")
    for model in (tmp_path, tmp_path / "ckpt.pt"):
        ran = done("generate", "-q", "-m", str(model), "-n", "9", "-s", "3", "猫")
        assert len(ran.text.removesuffix("\n")) in (9, 10)
        assert set(ran.text) <= set(CHARACTERS)
        assert done("tokens", "-m", str(model), "a猫").text == "3 12\n"
