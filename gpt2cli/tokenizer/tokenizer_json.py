"""The ``tokenizer.json`` of the tokenizers package: byte-level BPE as GPT-2 has it, or refused.

What the fields mean: https://huggingface.co/docs/tokenizers/components.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import read_json
from ..errors import GPT2Error
from .added import AddedToken, add, entries
from .merges import Pair, pair, unspelled


@dataclass(frozen=True)
class Parsed:
    """A tokenizer as its files describe it: token → id as spelled there, merges, added tokens."""

    where: Path
    strings: Mapping[str, object]
    merges: list[Pair]
    added: Mapping[str, AddedToken]
    prefix_space: bool


def parse(path: Path) -> Parsed:
    """The tokenizer that a ``tokenizer.json`` describes.

    Raises GPT2Error for any model but BPE over bytes, and names the part that would split,
    normalize or frame the text in a way that GPT-2 does not.
    """
    data, where = read_json(path), str(path)
    model = data.get("model")
    if not isinstance(model, dict):
        raise GPT2Error(f"{where} has no model, so it is no tokenizer; fetch the file again")
    if (kind := model.get("type", "BPE")) != "BPE":
        raise GPT2Error(f"{where} is a {kind} tokenizer; only GPT-2's byte-level BPE is read")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise _refused(where, f"{key} {model[key]!r}")
    _refuse_parts(data, where)
    prefix_space = _byte_level(data.get("pre_tokenizer"), where)
    vocab, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not isinstance(merges, list):
        raise GPT2Error(f"{where} holds no vocab and merges; fetch the file again")
    pairs = [pair(item.split(" ") if isinstance(item, str) else item, where) for item in merges]
    if model.get("ignore_merges"):
        _refuse_unmerged(vocab, pairs, where)
    return Parsed(path, vocab, pairs, _listed(data, where), prefix_space)


def _refused(where: str, what: str) -> GPT2Error:
    return GPT2Error(f"{where}: {what} is not built here; only GPT-2's byte-level BPE is read")


def _steps(part: object, key: str, where: str) -> list[dict[str, Any]]:
    """The parts of a normalizer, pre-tokenizer and so on; those of a Sequence one by one."""
    if part is None:
        return []
    if not isinstance(part, dict):
        raise GPT2Error(f"{where}: {part!r} is no description of a part; fetch the file again")
    if part.get("type") == "Sequence":
        inner = entries(part.get(key), f"{where}: {key}")
        return [step for item in inner for step in _steps(item, key, where)]
    return [part]


def _refuse_parts(data: Mapping[str, Any], where: str) -> None:
    """GPT2Error for a normalizer, a decoder and a post-processor that changes text or ids."""
    for step in _steps(data.get("normalizer"), "normalizers", where):
        raise _refused(where, f"normalizer {step.get('type')}")
    for step in _steps(data.get("decoder"), "decoders", where):
        if step.get("type") not in ("ByteLevel", "Fuse"):
            raise _refused(where, f"decoder {step.get('type')}")
    for step in _steps(data.get("post_processor"), "processors", where):
        if not (step.get("type") == "ByteLevel" or _adds_nothing(step)):
            raise _refused(where, f"post_processor {step.get('type')}, which adds tokens,")


def _adds_nothing(step: Mapping[str, Any]) -> bool:
    """Whether a TemplateProcessing frames a single text with nothing."""
    pieces = step.get("single")
    return (
        step.get("type") == "TemplateProcessing"
        and isinstance(pieces, list)
        and len(pieces) == 1
        and isinstance(pieces[0], dict)
        and "Sequence" in pieces[0]
    )


def _byte_level(part: object, where: str) -> bool:
    """The ``add_prefix_space`` of the one pre-tokenizer that is read."""
    steps = _steps(part, "pretokenizers", where)
    for step in steps:
        if step.get("type") != "ByteLevel":
            raise _refused(where, f"pre_tokenizer {step.get('type')}")
        if step.get("use_regex") is False:
            raise _refused(where, "pre_tokenizer ByteLevel with use_regex false")
    if len(steps) != 1:
        raise _refused(where, f"a pre_tokenizer of {len(steps)} parts")
    return bool(steps[0].get("add_prefix_space", True))


def _listed(data: Mapping[str, Any], where: str) -> dict[str, AddedToken]:
    added: dict[str, AddedToken] = {}
    for entry in entries(data.get("added_tokens"), f"{where}: added_tokens"):
        add(added, entry, entry.get("id") if isinstance(entry, dict) else None, where)
    return added


def _refuse_unmerged(vocab: Mapping[str, object], merges: list[Pair], where: str) -> None:
    """GPT2Error for a token that only ``ignore_merges`` reaches; without any it has no effect."""
    reached = {left + right for left, right in merges}
    for text in vocab:
        token = unspelled(text)
        if token is None or (len(token) > 1 and token not in reached):
            raise _refused(where, f"ignore_merges with {text!r}, a token of no merge,")
