"""The tokenizer in a GGUF file's metadata: byte-level BPE as GPT-2 has it, or refused.

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer.
"""

from pathlib import Path
from typing import Any

from ..checkpoint.gguf import metadata
from ..errors import GPT2Error
from .added import AddedToken
from .merges import pair
from .tokenizer_json import Parsed

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # of token_type

# Names of the split that GPT-2 has; files from before the key existed lack it.
_SPLITS = (None, "default", "gpt-2")


def parse_gguf(path: Path) -> Parsed | None:
    """The tokenizer of a GGUF file; None when its metadata hold none.

    Raises GPT2Error for a tokenizer of another kind.
    """
    kind, split = _value(path, "model"), _value(path, "pre")
    if kind is None or kind == "none":
        return None
    if kind != "gpt2" or split not in _SPLITS:
        raise GPT2Error(
            f"{path} holds a tokenizer of kind {kind!r} with the split {split!r}; only GPT-2's "
            "byte-level BPE is read"
        )
    for key in ("add_bos_token", "add_eos_token"):
        if _value(path, key):
            raise GPT2Error(f"{path}: {key}, which adds a token to every text, is not built here")
    texts, merges = _value(path, "tokens"), _value(path, "merges")
    if not isinstance(texts, list) or not isinstance(merges, list):
        raise GPT2Error(f"{path} holds a tokenizer without tokens or merges; convert it again")
    types = _value(path, "token_type") or [1] * len(texts)
    numbered = list(zip(texts, range(len(texts)), types, strict=False))
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


def _value(path: Path, key: str) -> Any:
    return metadata(path, f"tokenizer.ggml.{key}")
