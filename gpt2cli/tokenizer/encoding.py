"""Tokenizer: text ↔ ids, from the checkpoint's own files or GPT-2's bundled ranks.

tiktoken splits and merges; it is given ranks that were read here, so it never asks the network
for any. Everything else about a vocabulary is in `vocabulary`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..checkpoint.gguf import is_gguf
from ..errors import GPT2Error
from . import characters, vocabulary
from .added import END_OF_TEXT, AddedToken
from .gguf_tokenizer import parse_gguf
from .vocabulary import Vocabulary

# The released pattern with possessive repeats, as tiktoken has it for "gpt2": the same pieces.
SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

# vocab_size values that GPT-2's own vocabulary is taken for when a checkpoint brings no files:
# its size, and what people round it up to.
PADDED = range(50257, 51200 + 1)

# The characters that \s stands for in tiktoken's regular expressions; Python's has four more.
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# tiktoken panics on a run of a million spaces before a word. The pattern ends a piece before the
# last space of such a run, so the text can be cut there.
_LONG_SPACE = re.compile(rf"(?<![{_SPACE}])[{_SPACE}]{{100000,}}(?=[{_SPACE}][^{_SPACE}])")

# Where a text can be cut anyway, as no piece goes on across it.
_LINE_END = re.compile(rf"(?<=[^{_SPACE}])(?=\n)")
_PART = 2**20  # characters that are given to tiktoken at once, up to the next such place

# tiktoken takes 32 bytes of memory for each byte of a piece, and ends the process where there are
# none. A piece has characters of one kind: letters, numbers, spaces or others.
_RUN = 2**24
_NO_OTHER = re.compile(r"[^\W_]|\s")

# What errors="surrogateescape" makes of bytes that are no UTF-8.
_NO_TEXT = re.compile("([\udc80-\udcff]+)")


class Tokenizer:
    """Text, or any bytes, to token ids and back.

    Ids lie in ``range(n_vocab)``, where some may stand for nothing. `end_of_text` is the id of
    ``<|endoftext|>``, None where the vocabulary has none.
    """

    n_vocab: int
    end_of_text: int | None

    def __init__(self, vocab: Vocabulary) -> None:
        import tiktoken

        self._vocabulary = vocab
        self._encoding = tiktoken.Encoding(
            "gpt2cli", pat_str=SPLIT, mergeable_ranks=dict(vocab.ranks), special_tokens={}
        )
        self.n_vocab = max(vocab.tokens, default=-1) + 1
        added = {token.text: token.id for token in vocab.added}
        self.end_of_text = added.get(END_OF_TEXT)
        self._added = added
        self._patterns = {special: _patterns(vocab.added, special) for special in (False, True)}
        ordinary = frozenset(vocab.ids)
        self._special = {token.id for token in vocab.added if token.special} - ordinary
        self._permuted = vocab.ids != tuple(range(len(vocab.ids)))

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of `text`; with `special`, special tokens in it are those tokens, not text.

        Raises GPT2Error when the vocabulary lacks a byte of it, or millions of characters stand
        together that nothing splits, and UnicodeEncodeError for a lone surrogate.
        """
        text.encode()
        return self._encode(text, special)

    def encode_bytes(self, data: bytes, *, special: bool = False) -> list[int]:
        """The ids of any bytes. Those that are no UTF-8 are merged run by run, beside the text.

        Raises GPT2Error as `encode` does.
        """
        return self._encode(data.decode("utf-8", "surrogateescape"), special)

    def encode_parts(self, data: bytes, *, special: bool = False) -> Iterator[list[int]]:
        """The ids that `encode_bytes` gives, in parts: those of a long text are many to hold."""
        return self._parts(data.decode("utf-8", "surrogateescape"), special)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that `ids` stand for; GPT2Error names an id that stands for nothing."""
        return b"".join(map(self.token_bytes, ids))

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` stand for, with U+FFFD for bytes that are no UTF-8."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; GPT2Error when the id stands for nothing."""
        try:
            return self._vocabulary.tokens[token_id]
        except KeyError:
            raise GPT2Error(
                f"token id {token_id} is not in the vocabulary {self._vocabulary.where}"
                f" (its ids end at {self.n_vocab - 1})"
            ) from None

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a special token, and not one that ordinary text also has."""
        return token_id in self._special

    def known(self, token_id: int) -> bool:
        """Whether the id stands for something."""
        return token_id in self._vocabulary.tokens

    def unknown_ids(self, vocab_size: int) -> list[int]:
        """The ids below `vocab_size` that stand for nothing: padding, and holes."""
        return [token_id for token_id in range(vocab_size) if not self.known(token_id)]

    def _encode(self, text: str, special: bool) -> list[int]:
        """The ids of `text`, in which lone surrogates are bytes that are no UTF-8."""
        return [token_id for part in self._parts(text, special) for token_id in part]

    def _parts(self, text: str, special: bool) -> Iterator[list[int]]:
        _check_runs(text)
        for part, is_added in _split(text, self._patterns[special]):
            if is_added:
                yield [self._added[part]]
            else:
                yield from self._plain_parts(part)

    def _plain_parts(self, text: str) -> Iterator[list[int]]:
        """The ids of a text without added tokens."""
        if self._vocabulary.prefix_space and not text.startswith(" "):
            text = " " + text
        for index, part in enumerate(_NO_TEXT.split(text)):
            if index % 2:  # what the pattern's group found
                data = part.encode("utf-8", "surrogateescape")
                yield self._ids(self._encoding._encode_single_piece(data))
            else:
                for piece in _short_of_panic(part):
                    yield self._ids(self._encoding.encode_ordinary(piece))

    def _ids(self, ranks: list[int]) -> list[int]:
        if not self._permuted:
            return ranks
        table = self._vocabulary.ids
        ids = [number for rank in ranks if (number := table[rank]) is not None]
        if len(ids) < len(ranks):
            rank = next(rank for rank in ranks if table[rank] is None)
            byte = self._encoding.decode_single_token_bytes(rank)
            raise GPT2Error(
                f"byte 0x{byte.hex().upper()} of the text is not in the vocabulary"
                f" {self._vocabulary.where}; leave it out"
            )
        return ids


def load_tokenizer(place: Path | None, vocab_size: int | None) -> Tokenizer:
    """The tokenizer of the checkpoint at `place`, whose model has `vocab_size` ids.

    `place` is a folder, or a file: a GGUF file has its tokenizer in it, any other beside it. None
    asks for GPT-2's own vocabulary, and a checkpoint without a tokenizer gets it when its size
    fits. A `vocab_size` of None is not compared with anything. Raises GPT2Error for
    files that cannot be followed exactly, tokens past the end of the model's table, and a
    checkpoint for which no vocabulary is found.
    """
    return Tokenizer(_vocabulary(place, vocab_size))


def tokenizer_size(place: Path | None, vocab_size: int) -> int | None:
    """The `n_vocab` of the tokenizer that `load_tokenizer` gives; None where it raises GPT2Error.

    Only the files are read for it: no tokenizer is built.
    """
    try:
        return max(_vocabulary(place, vocab_size).tokens) + 1
    except GPT2Error:
        return None


def _vocabulary(place: Path | None, vocab_size: int | None) -> Vocabulary:
    """What `load_tokenizer` makes a tokenizer of."""
    vocab = _own(place, vocab_size) if place is not None else None
    if vocab is None:
        if vocab_size not in PADDED if vocab_size is not None else place is not None:
            raise _nothing_found(place, vocab_size)
        vocab = vocabulary.bundled()
    last = max(vocab.tokens)
    if vocab_size is not None and last >= vocab_size:
        text = vocab.tokens[last].decode("utf-8", "replace")
        raise GPT2Error(
            f"{vocab.where}: token {text!r} has id {last}, and the model has ids below"
            f" {vocab_size} only; remove the added tokens that the model was not resized for"
        )
    return vocab


def _own(place: Path, vocab_size: int | None) -> Vocabulary | None:
    """The vocabulary that a checkpoint brings; None when it brings none."""
    if is_gguf(place):
        parsed = parse_gguf(place)
        if parsed is None:
            return None
        return vocabulary.assembled(parsed, tuple(parsed.added.values()), prefix_space=False)
    folder = place if place.is_dir() else place.parent
    found, table = vocabulary.read(folder), folder / characters.FILE
    if found is not None or not table.is_file():
        return found
    vocab = characters.read_characters(table)
    if vocab_size is not None and len(vocab.tokens) != vocab_size:
        raise GPT2Error(
            f"{table} has {len(vocab.tokens)} characters, and the model {vocab_size} ids; put the "
            "tokenizer files that the model was trained with there"
        )
    return vocab


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder brings tokenizer files of a kind that is read here."""
    return vocabulary.has_files(folder)


def _nothing_found(place: Path | None, vocab_size: int | None) -> GPT2Error:
    files = "tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, meta.pkl"
    size = "unknown" if vocab_size is None else str(vocab_size)
    where = f"{place} has no tokenizer files ({files})" if place else "no files were given"
    return GPT2Error(
        f"{where}, and its vocab_size, {size}, is not that of GPT-2's own vocabulary"
        f" ({PADDED[0]}, or padded up to {PADDED[-1]}); put the checkpoint's tokenizer files there"
    )


def _patterns(added: Sequence[AddedToken], special: bool) -> list[re.Pattern[str]]:
    """What finds added tokens, longest first: those matched at once, then those matched after."""
    patterns = []
    for normalized in (False, True):
        texts = [
            token.text
            for token in added
            if token.normalized == normalized and (special or not token.special)
        ]
        if texts:
            longest_first = sorted(texts, key=len, reverse=True)
            patterns.append(re.compile(f"({'|'.join(map(re.escape, longest_first))})"))
    return patterns


def _split(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[tuple[str, bool]]:
    """The parts of `text` that are not empty, in order, and whether each is an added token."""
    if not patterns:
        if text:
            yield text, False
        return
    for index, part in enumerate(patterns[0].split(text)):
        if index % 2:
            yield part, True
        else:
            yield from _split(part, patterns[1:])


def _short_of_panic(text: str) -> Iterator[str]:
    """`text` in parts that split and merge as the whole does, none with an endless run of spaces.

    A part starts with the last space of a run, which the pattern gives to the next piece, or with
    the end of a line.
    """
    start = 0
    for run in _LONG_SPACE.finditer(text):
        yield from _lines(text[start : run.end()])
        start = run.end()
    yield from _lines(text[start:])


def _lines(text: str) -> Iterator[str]:
    """`text` in parts of about _PART characters, where it has lines that end between."""
    start = 0
    while end := _LINE_END.search(text, start + _PART):
        yield text[start : end.start()]
        start = end.start()
    yield text[start:]


def _check_runs(text: str) -> None:
    """Raise GPT2Error for characters of one kind that fill a whole block of the text."""
    for start in range(0, len(text) - _RUN + 1, _RUN):
        block = text[start : start + _RUN]
        if block.isalpha() or block.isnumeric() or block.isspace() or not _NO_OTHER.search(block):
            raise GPT2Error(
                f"from character {start:,} on, the text has {_RUN:,} characters of one kind in a "
                "row, which nothing splits into tokens; break them up"
            )
