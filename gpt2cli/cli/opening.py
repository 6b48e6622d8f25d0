"""From MODEL to an opened checkpoint, its tokenizer and a network, with notes on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint import Checkpoint
from ..hub import fetch, parse_model, tokenizer_place
from ..tokenizer import Tokenizer, load_tokenizer
from .options import chosen_heads, note

if TYPE_CHECKING:
    from ..model import GPT2


def open_weights(model: str, *, quiet: bool, tokenizer: bool = False) -> Checkpoint:
    """The checkpoint of a MODEL, fetched when it is not here; its weights are not read yet."""
    path = fetch(parse_model(model), tokenizer=tokenizer, progress=not quiet)
    checkpoint = Checkpoint.open(path, chosen_heads())
    for line in checkpoint.notes:
        note(line, quiet)
    return checkpoint


def open_with_tokenizer(model: str, *, quiet: bool) -> tuple[Checkpoint, Tokenizer]:
    """The checkpoint of a MODEL and its tokenizer, with one fetch for both."""
    checkpoint = open_weights(model, quiet=quiet, tokenizer=True)
    place = tokenizer_place(parse_model(model))
    return checkpoint, load_tokenizer(place, checkpoint.config.vocab_size)


def network(
    checkpoint: Checkpoint,
    device: str,
    threads: int | None,
    dtype: str = "float32",
    *,
    packed: bool = True,
) -> GPT2:
    """The checkpoint's network on a device; `loader.load` says what `dtype` and `packed` are."""
    checkpoint.prefetch()
    import torch

    from ..loader import load, pick_device

    if threads is not None:
        torch.set_num_threads(threads)
    return load(checkpoint, pick_device(device), dtype, packed=packed)
