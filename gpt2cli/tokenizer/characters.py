"""nanoGPT's ``meta.pkl``: a table of characters, for models that were trained on single ones.

As data/shakespeare_char/prepare.py of https://github.com/karpathy/nanoGPT writes it: a pickle of
``stoi`` (character → id) and ``itos``. It is read by an unpickler that knows containers, texts and
numbers and looks up no name, so nothing in it can run.
"""

import io
import pickle
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..checkpoint.pickle_ops import check_opcodes
from ..errors import GPT2Error
from .added import is_token_id
from .vocabulary import Vocabulary

FILE = "meta.pkl"

_MOST_BYTES = 1 << 25  # an entry for each character of Unicode is less

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
            shown = reprlib.repr(text)
            raise GPT2Error(f"{path}: token {shown} is not a character; only those are read")
        if not is_token_id(number):
            raise GPT2Error(f"{path}: the id of {text!r} is {reprlib.repr(number)}")
    if len(set(stoi.values())) < len(stoi):
        raise GPT2Error(f"{path}: two characters have one id")
    return stoi


def _unpickled(path: Path) -> Mapping[Any, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES or not path.is_file():
            raise GPT2Error(f"{path} is too large for a table of characters")
        stream = io.BytesIO(path.read_bytes())
        check_opcodes(stream)
        value = _Plain(stream).load()
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
