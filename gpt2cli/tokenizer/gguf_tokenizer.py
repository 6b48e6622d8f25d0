"""The tokenizer in a GGUF file's metadata: byte-level BPE as GPT-2 has it, or refused.

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer.
"""

from pathlib import Path
from typing import Any, cast

from ..checkpoint.gguf import metadata
from ..errors import GPT2Error
from .added import AddedToken
from .merges import pair
from .tokenizer_json import Parsed

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # of token_type

# Names of the split that GPT-2 has; files from before the key existed lack it.
_SPLITS = (None, "default", "gpt-2")


def parse_gguf(path: Path) -> Parsed | None:
    """The tokenizer of a GGUF file; None when its metadata hold none.

    Raises GPT2Error for a tokenizer of another kind.
    """
    values = metadata(path)
    names = ("model", "pre", "tokens", "merges", "token_type")
    kind, split, texts, merges, types = (
        cast("Any", values.get(f"tokenizer.ggml.{name}")) for name in names
    )
    if kind is None or kind == "none":
        return None
    if kind != "gpt2" or split not in _SPLITS:
        raise GPT2Error(
            f"{path} holds a tokenizer of kind {kind!r} with the split {split!r}; only GPT-2's "
            "byte-level BPE is read"
        )
    for key in ("add_bos_token", "add_eos_token"):
        if values.get(f"tokenizer.ggml.{key}"):
            raise GPT2Error(f"{path}: {key}, which adds a token to every text, is not built here")
    if texts is None or merges is None:
        raise GPT2Error(f"{path} holds a tokenizer without tokens or merges; convert it again")
    if types is None and _are_texts(texts):
        types = [_NORMAL] * len(texts)
    if not _are_texts(texts) or not _are_texts(merges) or not _are_kinds(types, len(texts)):
        raise GPT2Error(f"{path} holds tokens or merges of a form not known; convert it again")
    if len({*texts}) != len(texts):
        raise GPT2Error(f"{path} holds a token that stands twice; convert it again")
    numbered = list(zip(texts, range(len(texts)), types, strict=True))
    return Parsed(
        where=path,
        strings={text: number for text, number, kind in numbered if kind != _UNUSED},
        merges=[pair(merge.split(" "), str(path)) for merge in merges],
        added={
            text: AddedToken(text, number, special=kind == _CONTROL, normalized=False)
            for text, number, kind in numbered
            if kind in (_CONTROL, _USER_DEFINED)
        },
        prefix_space=False,
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _are_kinds(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count
