"""nanoGPT's ``meta.pkl``: a table of characters, for models that were trained on single ones.

As data/shakespeare_char/prepare.py of https://github.com/karpathy/nanoGPT writes it: a pickle of
``stoi`` (character → id) and ``itos``. It is read by an unpickler that knows containers, texts and
numbers and looks up no name, so nothing in it can run.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..errors import GPT2Error
from .vocabulary import Vocabulary

FILE = "meta.pkl"

_MOST_BYTES = 1 << 26

# What a damaged pickle raises, and one that asks for more than is built here.
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class _Plain(pickle.Unpickler):
    """Builds what pickle has opcodes for, and refuses to look up anything else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_characters(path: Path) -> Vocabulary:
    """The vocabulary of a ``meta.pkl``.

    Raises GPT2Error, and runs nothing, for a pickle that asks for more than containers, texts and
    numbers, and for tokens that are not single characters.
    """
    table = _table(path)
    tokens = {number: text.encode() for text, number in table.items()}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for token in tokens.values():
        # tiktoken reaches a character's bytes one by one, so each beginning needs a rank.
        for end in range(2, len(token) + 1):
            ranks.setdefault(token[:end], len(ranks))
    numbers = {token: number for number, token in tokens.items()}
    ids = tuple(numbers.get(token) for token in ranks)
    return Vocabulary(str(path), tokens, ranks, ids, ())


def _table(path: Path) -> dict[str, int]:
    """Character → id, checked."""
    stoi = _unpickled(path).get("stoi")
    if not isinstance(stoi, dict) or not stoi:
        raise GPT2Error(f"{path} has no stoi, nanoGPT's table of characters")
    for text, number in stoi.items():
        if not isinstance(text, str) or len(text) != 1 or "\ud800" <= text <= "\udfff":
            raise GPT2Error(f"{path}: token {text!r} is not a character; only those are read")
        if type(number) is not int or number < 0:
            raise GPT2Error(f"{path}: the id of {text!r} is {number!r}")
    if len(set(stoi.values())) < len(stoi):
        raise GPT2Error(f"{path}: two characters have one id")
    return stoi


def _unpickled(path: Path) -> Mapping[Any, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise GPT2Error(f"{path} is too large for a table of characters")
        with path.open("rb") as file:
            value = _Plain(file).load()
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GPT2Error(
            f"{path} is no plain table of characters ({reason[:120]}); nothing of it was run"
        ) from error
    if not isinstance(value, dict):
        raise GPT2Error(f"{path} holds a {type(value).__name__}, no table of characters")
    return value
