"""``gpt2 tokens``: text to token ids and back, exact to the byte."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

import click

from ..checkpoint import Checkpoint
from ..checkpoint.finding import holds_pickle
from ..checkpoint.gguf import is_gguf
from ..config import parse_config, read_json
from ..errors import GPT2Error
from ..hub import parse_model, tokenizer_place
from ..tokenizer import Tokenizer, has_tokenizer, load_tokenizer
from .options import NAME, chosen_heads, heads_option, model_option, note, shows_progress
from .output import emit, literal
from .text_input import MOST_BYTES, STDIN, read_bytes

_LONG = 20_000_000  # bytes that take more than a few seconds


@click.command("tokens", short_help="Text to token ids, and back.")
@click.argument("words", metavar="[TEXT]", nargs=-1)
@model_option
@click.option(
    "-f",
    "--file",
    type=NAME,
    metavar="FILE",
    help="Read the text, or the ids, from FILE; - is standard input.",
)
@click.option("--decode", is_flag=True, help="Ids to the exact bytes they stand for.")
@click.option("--count", is_flag=True, help="Print how many tokens there are.")
@click.option("--pieces", is_flag=True, help="Print each token on a line: id, tab, its text.")
@click.option("--json", "as_json", is_flag=True, help='Print {"ids", "pieces", "count"}.')
@click.option("--special", is_flag=True, help="<|endoftext|> in the text is that token, not text.")
@heads_option
def command(
    words: tuple[str, ...],
    model: str,
    file: Path | None,
    decode: bool,
    count: bool,
    pieces: bool,
    as_json: bool,
    special: bool,
) -> None:
    """Print the token ids of TEXT, of a file, or of standard input.

    \b
    gpt2 tokens "Hello, world"
    gpt2 tokens --pieces -f letter.txt
    gpt2 tokens --decode "15496 11 995"

    Any bytes are taken exactly as they are; no newline is dropped. Ids come out on one line,
    separated by spaces. With --decode the ids are given instead, separated by spaces, commas or
    newlines, or as a JSON list, and the bytes come out with nothing added.

    --pieces writes a token's text as a Python literal: ' world', or b'\\xf0\\x9f' where its bytes
    are not whole characters. In --json such bytes are U+FFFD; the ids are exact.
    """
    if count + pieces + as_json + decode > 1:
        raise click.UsageError("Give one of --decode, --count, --pieces and --json.")
    if decode and special:
        raise click.UsageError("--special has no meaning with --decode.")
    if len(words) > 1 and not decode:
        raise click.UsageError("TEXT is one argument; put it in quotes.")
    data = read_bytes(" ".join(words) if words else None, file, MOST_BYTES)
    if data is None:
        raise click.UsageError("Give TEXT, --file FILE, or a text on standard input.")
    if decode:
        ids = _parse_ids(data, typed=bool(words) and words != (STDIN,))
        return emit(_decoded(ids, model))
    tokenizer = _tokenizer(model)
    if len(data) >= _LONG and shows_progress():
        note(f"{len(data):,} bytes; that takes a while")
    if count:
        number = sum(map(len, tokenizer.encode_parts(data, special=special)))
        return emit(f"{number}\n".encode())
    if not (pieces or as_json):
        return _emit_ids(tokenizer.encode_parts(data, special=special))
    ids = tokenizer.encode_bytes(data, special=special)
    if pieces:
        return emit("".join(f"{i}\t{literal(tokenizer.token_bytes(i))}\n" for i in ids).encode())
    texts = [tokenizer.decode([token_id]) for token_id in ids]
    line = json.dumps({"ids": ids, "pieces": texts, "count": len(ids)}, ensure_ascii=False)
    return emit(line.encode() + b"\n")


def _emit_ids(parts: Iterable[list[int]]) -> None:
    """The ids on one line, each part as soon as it is known."""
    space = ""
    for part in filter(None, parts):
        emit((space + " ".join(map(str, part))).encode())
        space = " "
    emit(b"\n")


def _tokenizer(name: str) -> Tokenizer:
    """The tokenizer of MODEL; its size is checked where the size is known."""
    model = parse_model(name)
    place = tokenizer_place(model)
    vocab_size = None
    if model.preset is not None:
        vocab_size = model.preset.config.vocab_size
    elif place is not None:
        vocab_size = _vocab_size(place)
    return load_tokenizer(place, vocab_size)


def _vocab_size(place: Path) -> int | None:
    """The ids of the model at `place`, where that can be told without opening a pickle."""
    folder = place if place.is_dir() else place.parent
    if (path := folder / "config.json").is_file():
        return parse_config(read_json(path), str(path)).config.vocab_size
    if place.is_dir() or has_tokenizer(folder) or is_gguf(place) or holds_pickle(place):
        return None
    return Checkpoint.open(place, chosen_heads()).config.vocab_size


def _decoded(ids: list[int], model: str) -> bytes:
    """The bytes that ids of MODEL stand for."""
    tokenizer = _tokenizer(model)
    for token_id in ids:
        if not tokenizer.known(token_id):
            raise GPT2Error(
                f"token id {token_id} is not in the vocabulary of {model} (its ids end at "
                f"{tokenizer.n_vocab - 1}); name the model that the ids are of with -m"
            )
    return tokenizer.decode_bytes(ids)


def _parse_ids(data: bytes, typed: bool) -> list[int]:
    """The ids in `data`, or in one JSON list; else wrong usage if it was typed, or a bad file."""
    text = os.fsdecode(data).strip()
    words = re.split(r"[\s,]+", text[1:-1] if text[:1] + text[-1:] == "[]" else text)
    for word in words:
        if word and not re.fullmatch("[0-9]{1,18}", word):
            message = f"{word[:40]!r} is not a token id; ids are whole numbers"
            raise click.UsageError(message + ".") if typed else GPT2Error(message)
    return [int(word) for word in words if word]
