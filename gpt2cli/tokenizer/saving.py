"""Tokenizer files for a converted checkpoint: those it has, else the same vocabulary in files."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from ..checkpoint.gguf import is_gguf
from .encoding import PADDED
from .gguf_tokenizer import parse_gguf
from .merges import Pair, spelled
from .tokenizer_json import Parsed
from .vocabulary import bundled

# The files of a tokenizer, by the names they are copied under.
_FILES = {
    "tokenizer.json": "tokenizer.json",
    "vocab.json": "vocab.json",
    "merges.txt": "merges.txt",
    "encoder.json": "vocab.json",  # OpenAI's names of the same two
    "vocab.bpe": "merges.txt",
    "added_tokens.json": "added_tokens.json",
    "special_tokens_map.json": "special_tokens_map.json",
    "tokenizer_config.json": "tokenizer_config.json",
    "vocab.txt": "vocab.txt",  # the rest are of other kinds of tokenizers
    "spiece.model": "spiece.model",
    "tokenizer.model": "tokenizer.model",
    "sentencepiece.bpe.model": "sentencepiece.bpe.model",
    "meta.pkl": "meta.pkl",
}

NAMES = frozenset(_FILES.values())


def tokenizer_files(place: Path | None, vocab_size: int) -> dict[str, bytes]:
    """The names and contents of the tokenizer files of the checkpoint at `place`; maybe none.

    They are copied where it has some. A GGUF file's metadata, and GPT-2's own vocabulary where
    `place` is None or brings none and the size fits, become files that transformers reads. Raises
    GPT2Error for a GGUF file's tokenizer of another kind, and OSError.
    """
    if place is not None and is_gguf(place) and (parsed := parse_gguf(place)):
        return _spelled_out(parsed)
    if place is not None:
        folder = place if place.is_dir() else place.parent
        found: dict[str, bytes] = {}
        for name, target in _FILES.items():
            if (folder / name).is_file():
                found.setdefault(target, (folder / name).read_bytes())
        if found:
            return found
    return _released() if place is None or vocab_size in PADDED else {}


def _spelled_out(parsed: Parsed) -> dict[str, bytes]:
    decoder = {
        str(token.id): {"content": text, "special": token.special, "normalized": token.normalized}
        for text, token in parsed.added.items()
    }
    return _files(
        parsed.strings, parsed.merges, {"added_tokens_decoder": decoder} if decoder else {}
    )


def _released() -> dict[str, bytes]:
    """GPT-2's own vocabulary, from its ranks."""
    vocab = bundled()
    added = {token.id for token in vocab.added}
    strings: dict[str, object] = {
        token.decode() if number in added else spelled(token): number
        for number, token in vocab.tokens.items()
    }
    return _files(strings, _merges(vocab.ranks), {})


def _files(
    strings: Mapping[str, object], merges: Iterator[Pair] | list[Pair], more: Mapping[str, object]
) -> dict[str, bytes]:
    lines = [f"{spelled(left)} {spelled(right)}\n" for left, right in merges]
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, **more}
    return {
        "vocab.json": json.dumps(strings, ensure_ascii=False).encode(),
        "merges.txt": ("#version: 0.2\n" + "".join(lines)).encode(),
        "tokenizer_config.json": (json.dumps(settings, indent=2) + "\n").encode(),
    }


def _merges(ranks: Mapping[bytes, int]) -> Iterator[Pair]:
    """The pair that each token is merged from, by the ranks below its own."""
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            parts = [bytes([byte]) for byte in token]
            while len(parts) > 2:
                pairs = [ranks.get(a + b, math.inf) for a, b in pairwise(parts)]
                first = pairs.index(min(pairs))
                parts[first : first + 2] = [parts[first] + parts[first + 1]]
            yield parts[0], parts[1]
