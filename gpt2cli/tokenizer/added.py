"""Added tokens: texts that are one token wherever they stand, from every file that names some.

The flags are those of the tokenizers package's ``AddedToken``
(https://huggingface.co/docs/tokenizers/api/added-tokens).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from ..config import MOST, read_json
from ..errors import GPT2Error

END_OF_TEXT = "<|endoftext|>"

_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_NAMED_LISTS = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True)
class AddedToken:
    """A text that is one token, whatever the merges would make of it.

    `special` ones are plain text until they are asked for. `normalized` ones are looked for after
    the others, in what those have left.
    """

    text: str
    id: int
    special: bool
    normalized: bool


def is_token_id(number: object) -> TypeGuard[int]:
    """Whether a value of a file is an id that a token can have."""
    return type(number) is int and 0 <= number <= MOST


def optional_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file at `path`, empty when there is no such file."""
    return read_json(path) if path.is_file() else {}


def entries(value: object, where: str) -> list[Any]:
    """A list of a file, empty when it is left out; GPT2Error for anything else."""
    if value is not None and not isinstance(value, list):
        raise GPT2Error(f"{where} is no list; fetch the file again")
    return value or []


def add(added: dict[str, AddedToken], entry: object, number: object, where: str) -> None:
    """Put the token that `entry` describes and its id into `added`, by its text.

    Raises GPT2Error for an entry that is none, for a second id of the same text, and for the
    flags that would take neighbouring text into the token or depend on it.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
        raise GPT2Error(f"{where}: {entry!r} is no added token")
    text = entry["content"]
    if not is_token_id(number):
        raise GPT2Error(f"{where}: the id of added token {text!r} is {number!r}")
    if text in added and added[text].id != number:
        raise GPT2Error(f"{where}: token {text!r} has two ids, {added[text].id} and {number}")
    _refuse_flags(entry, where)
    special = bool(entry.get("special", False))
    if text:  # an empty one would stand everywhere
        added[text] = AddedToken(text, number, special, bool(entry.get("normalized", not special)))


def added_tokens(
    folder: Path, listed: Mapping[str, AddedToken], strings: Mapping[str, int]
) -> tuple[AddedToken, ...]:
    """The added tokens of `folder`: those `listed` in tokenizer.json, and all that stand elsewhere.

    `strings` is the token → id table of the vocabulary. A token that some file names as the
    start, end, padding and so on is special; one that is named so and has no id is left out.
    Raises GPT2Error where the files contradict each other.
    """
    added = dict(listed)
    path = folder / "added_tokens.json"
    for text, number in optional_json(path).items():
        add(added, {"content": text}, number, str(path))
    path = folder / "tokenizer_config.json"
    decoder = optional_json(path).get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict):
        raise GPT2Error(f"{path}: added_tokens_decoder is no table")
    for key, entry in decoder.items():
        add(added, entry, int(key) if re.fullmatch("[0-9]{1,9}", key) else key, str(path))
    for named, where in _named_special(folder):
        _mark_special(added, named, strings, where)
    for token in added.values():
        if strings.get(token.text, token.id) != token.id:
            raise GPT2Error(
                f"{folder}: token {token.text!r} has two ids,"
                f" {strings[token.text]} in the vocabulary and {token.id} as an added token"
            )
    return tuple(added.values())


def _refuse_flags(entry: Mapping[str, Any], where: str) -> None:
    for flag in ("lstrip", "rstrip", "single_word"):
        if entry.get(flag):
            raise GPT2Error(
                f"{where}: added token {entry['content']!r} has {flag}, which is not built here;"
                " set it to false if the model was not trained with it"
            )


def _named_special(folder: Path) -> Iterator[tuple[object, str]]:
    """The tokens that have a role, as the files give them: a text, or an object with flags."""
    for path in (folder / "special_tokens_map.json", folder / "tokenizer_config.json"):
        data = optional_json(path)
        for key in _NAMED:
            yield data.get(key), str(path)
        for key in _NAMED_LISTS:
            group = data.get(key)
            several = [*group.values()] if isinstance(group, dict) else group
            for entry in entries(several, f"{path}: {key}"):
                yield entry, str(path)
    yield END_OF_TEXT, str(folder)


def _mark_special(
    added: dict[str, AddedToken], entry: object, strings: Mapping[str, int], where: str
) -> None:
    text = entry.get("content") if isinstance(entry, dict) else entry
    if not isinstance(text, str):
        return
    if isinstance(entry, dict) and (text in added or text in strings):
        _refuse_flags(entry, where)
    if text in added:
        added[text] = replace(added[text], special=True)
    elif text in strings and text:
        added[text] = AddedToken(text, strings[text], special=True, normalized=False)
