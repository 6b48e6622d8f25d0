"""Vocabulary: what a checkpoint's own tokenizer files say, read exactly or refused by name.

Three spellings of one thing are read: a byte-level BPE ``tokenizer.json`` of the tokenizers
package, ``vocab.json`` with ``merges.txt`` as transformers writes them, and OpenAI's
``encoder.json`` with ``vocab.bpe``. Of several the first in this order is taken, as transformers
does.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config import read_json
from ..errors import GPT2Error
from ..presets import weights_folder
from .added import END_OF_TEXT, AddedToken, added_tokens, is_token_id, optional_json
from .merges import Pair, are_released, first_unreached, read_merges, spelled, unspelled
from .tokenizer_json import Parsed, parse

# SHA-256 of the published ranks (r50k_base.tiktoken, whisper's gpt2.tiktoken).
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"

PAIRS_OF_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))

# Vocabularies of tokenizers that are not byte-level BPE.
_OTHER_FILES = {
    "spiece.model": "SentencePiece",
    "tokenizer.model": "SentencePiece",
    "sentencepiece.bpe.model": "SentencePiece",
    "vocab.txt": "BERT (WordPiece)",
}

_CLASSES = ("GPT2Tokenizer", "PreTrainedTokenizer", "TokenizersBackend")


@dataclass(frozen=True)
class Vocabulary:
    """Everything a tokenizer needs to know.

    `tokens` maps each id that stands for something to its bytes. `ranks` is what tiktoken merges
    by: the 256 single bytes, then the merges in their order. `ids` maps a rank to its id, None
    for a byte that the vocabulary lacks. `prefix_space`: whether a text that does not begin with
    a space is given one.
    """

    where: str
    tokens: Mapping[int, bytes]
    ranks: Mapping[bytes, int]
    ids: tuple[int | None, ...]
    added: tuple[AddedToken, ...]
    prefix_space: bool = False


def bundled() -> Vocabulary:
    """GPT-2's own 50,257 tokens, from the ranks that ship with the program.

    Raises GPT2Error when that file is missing or is not the published one.
    """
    path = weights_folder() / "gpt2.tiktoken"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}; install gpt2cli again") from error
    if hashlib.sha256(data).hexdigest() != RANKS_SHA256:
        raise GPT2Error(f"{path} is damaged: its SHA-256 is wrong; install gpt2cli again")
    # Line r is a token in base64 and r, which is its rank and its id.
    tokens = [base64.b64decode(line.partition(b" ")[0]) for line in data.splitlines()]
    end = AddedToken(END_OF_TEXT, len(tokens), special=True, normalized=False)
    return Vocabulary(
        where=str(path),
        tokens={**dict(enumerate(tokens)), end.id: end.text.encode()},
        ranks={token: rank for rank, token in enumerate(tokens)},
        ids=tuple(range(len(tokens))),
        added=(end,),
    )


def has_files(folder: Path) -> bool:
    """Whether the folder has tokenizer files of a kind that is read here."""
    return (folder / "tokenizer.json").is_file() or _pair_of_files(folder) is not None


def read(folder: Path) -> Vocabulary | None:
    """The vocabulary that the folder's files describe; None when it has no tokenizer files.

    ``add_prefix_space`` is that of tokenizer_config.json where it has one, as in transformers.
    Raises GPT2Error for a tokenizer of another kind, for anything in the files that changes the
    ids in a way that is not built here, and for merges that tiktoken does not follow.
    """
    _refuse_other_classes(folder)
    parsed = _parsed(folder)
    if parsed is None:
        _refuse_other_files(folder)
        return None
    added = added_tokens(folder, parsed.added, _checked(parsed.strings, parsed.where))
    stated = optional_json(folder / "tokenizer_config.json").get("add_prefix_space")
    prefix_space = parsed.prefix_space if stated is None else bool(stated)
    return assembled(parsed, added, prefix_space)


def assembled(parsed: Parsed, added: tuple[AddedToken, ...], prefix_space: bool) -> Vocabulary:
    """The vocabulary of a parsed tokenizer and all its added tokens; raises as `read` does."""
    strings = _checked(parsed.strings, parsed.where)
    ranks, ids = _ranked(parsed, strings)
    tokens = _tokens(strings, added, {i for i in ids if i is not None}, parsed.where)
    return Vocabulary(str(parsed.where), tokens, ranks, ids, added, prefix_space)


def _pair_of_files(folder: Path) -> tuple[Path, Path] | None:
    for names in PAIRS_OF_FILES:
        vocab, merges = (folder / name for name in names)
        if vocab.is_file() and merges.is_file():
            return vocab, merges
    return None


def _parsed(folder: Path) -> Parsed | None:
    if (folder / "tokenizer.json").is_file():
        return parse(folder / "tokenizer.json")
    if files := _pair_of_files(folder):
        vocab, merges = files
        return Parsed(vocab, read_json(vocab), read_merges(merges), {}, prefix_space=False)
    return None


def _refuse_other_classes(folder: Path) -> None:
    """GPT2Error when the checkpoint names a tokenizer of another kind, or one that adds tokens."""
    settings = folder / "tokenizer_config.json"
    for path in (settings, folder / "config.json"):
        name = optional_json(path).get("tokenizer_class")
        if name is not None and str(name).removesuffix("Fast") not in _CLASSES:
            raise GPT2Error(f"{path} names a {name}; only GPT-2's byte-level BPE is read")
    for key in ("add_bos_token", "add_eos_token"):
        if optional_json(settings).get(key):
            raise GPT2Error(
                f"{settings}: {key}, which adds a token to every text, is not built here;"
                " set it to false and write the token into the text (--special)"
            )


def _refuse_other_files(folder: Path) -> None:
    for vocab, merges in PAIRS_OF_FILES:
        for name, missing in ((vocab, merges), (merges, vocab)):
            if (folder / name).is_file():
                raise GPT2Error(f"{folder / name} lies without its {missing}; fetch that file too")
    for name, kind in _OTHER_FILES.items():
        if (folder / name).is_file():
            raise GPT2Error(
                f"{folder / name} is a vocabulary of another kind, {kind};"
                " only GPT-2's byte-level BPE is read"
            )


def _checked(strings: Mapping[str, object], where: Path) -> dict[str, int]:
    """The token → id table of a file: whole numbers, each of one token."""
    owners: dict[int, str] = {}
    for text, number in strings.items():
        if not is_token_id(number):
            raise GPT2Error(f"{where}: the id of token {text!r} is {number!r}")
        if number in owners:
            raise GPT2Error(f"{where}: id {number} is both {owners[number]!r} and {text!r}")
        owners[number] = text
    if not owners:
        raise GPT2Error(f"{where} holds no token; fetch the file again")
    return {text: number for number, text in owners.items()}


def _ranked(
    parsed: Parsed, strings: Mapping[str, int]
) -> tuple[dict[bytes, int], tuple[int | None, ...]]:
    """(token → rank, rank → id): single bytes in the order of their ids, then merge by merge."""
    numbers = {byte: strings.get(spelled(bytes([byte]))) for byte in range(256)}
    # GPT-2's own files come out with rank and id the same; a byte without id comes last.
    order = sorted(range(256), key=lambda byte: (numbers[byte] is None, numbers[byte] or 0))
    ranks = {bytes([byte]): rank for rank, byte in enumerate(order)}
    ids = [numbers[byte] for byte in order]
    for rank, (left, right) in enumerate(parsed.merges, 256):
        for token in (left, right, left + right):
            if spelled(token) not in strings:
                raise _bad_merge(
                    parsed,
                    (left, right),
                    f"{spelled(token)} is not a token; fetch both files again",
                )
        ranks.setdefault(left + right, rank)
        ids.append(strings[spelled(left + right)])
    if not are_released(parsed.merges):
        index = first_unreached(parsed.merges, ranks)
        if index is not None:
            reason = "tiktoken does not reach that token by this pair"
            raise _bad_merge(parsed, parsed.merges[index], reason)
    return ranks, tuple(ids)


def _bad_merge(parsed: Parsed, merge: Pair, reason: str) -> GPT2Error:
    left, right = map(spelled, merge)
    return GPT2Error(f"{parsed.where}: merge {left} {right} cannot be followed: {reason}")


def _tokens(
    strings: Mapping[str, int], added: tuple[AddedToken, ...], ordinary: set[int], where: Path
) -> dict[int, bytes]:
    """Id → bytes. An added token stands for its text, any other for the bytes it spells."""
    tokens: dict[int, bytes] = {}
    owners: dict[int, str] = {number: text for text, number in strings.items()}
    for text, number in strings.items():
        token = unspelled(text)
        tokens[number] = text.encode("utf-8", "surrogatepass") if token is None else token
    for entry in added:
        token = entry.text.encode("utf-8", "surrogatepass")
        other = owners.setdefault(entry.id, entry.text)
        if other != entry.text or (entry.id in ordinary and tokens[entry.id] != token):
            raise GPT2Error(
                f"{where}: id {entry.id} is both token {other!r} and added token {entry.text!r}"
            )
        tokens[entry.id] = token
    return tokens
