"""The config of weights in the Hub's names: ``config.json`` beside them, else what shapes say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import ParsedConfig, parse_config, read_json
from ..errors import GPT2Error, listing
from ..layout import HEAD, Shape
from .names import hub_name
from .stored import WEIGHT_DTYPES, Source, StoredTensor

RELEASED_HEAD = 64  # the width of a head in every released size

_LAYER = re.compile(r"h\.(\d{1,5})\.")


def hub_source(dialect: str, path: Path, stored: list[StoredTensor], n_head: int | None) -> Source:
    """The checkpoint of tensors in the Hub's names, which the file or index at `path` leads to.

    Its config is ``config.json`` in the same folder. Without that the sizes are those of the
    tensors, `n_head` is the number of heads, and the rest is as released; raises GPT2Error where
    that leaves something open.
    """
    file_bytes = sum(file.stat().st_size for file in {tensor.file for tensor in stored})
    config = path.parent / "config.json"
    if config.exists():
        parsed = parse_config(read_json(config), str(config))
        return Source(dialect, parsed, stored, hub_name, file_bytes)
    found = {name: t for t in stored if isinstance(name := hub_name(t), str)}
    shapes = {name: tensor.shape for name, tensor in found.items()}
    parsed = infer_config(shapes, n_head, str(path), "config.json")
    if HEAD in found:
        tied = _same(found[HEAD], found["wte.weight"])
        parsed = replace(parsed, config=replace(parsed.config, tie_word_embeddings=tied))
    return Source(dialect, parsed, stored, hub_name, file_bytes, (note_on_inferred(path),))


def note_on_inferred(path: Path) -> str:
    """What to tell the user of a config that was made up from shapes."""
    return (
        f"no config lies beside {path.name}: its sizes are those of its tensors, and the rest is "
        "taken as released (gelu_new, layer_norm_epsilon 1e-05)"
    )


def infer_config(
    shapes: Mapping[str, Shape], n_head: int | None, where: str, missing: str
) -> ParsedConfig:
    """The config of a GPT-2 whose tensors have these shapes, by released names.

    The number of heads shows in no shape: GPT2Error, which names the file that is `missing`, when
    `n_head` is None, and when the tensors are not those of a GPT-2.
    """
    names = ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight")
    flat = [name for name in names if len(shapes.get(name, ())) != 2]
    if flat:
        first = listing(list(shapes)) or "none"
        raise GPT2Error(
            f"{where} has no {missing} beside it and is no GPT-2: {flat[0]} is not among its "
            f"tensors (the first are {first})"
        )
    wte, wpe, c_fc = (shapes[name] for name in names)
    if n_head is None:
        width = f"{wte[1] // RELEASED_HEAD}" if wte[1] % RELEASED_HEAD == 0 else "N"
        raise GPT2Error(
            f"{where} has no {missing} beside it, and the number of heads shows in no tensor; "
            f"give --n-head {width}, or put the {missing} there"
        )
    if wte[1] % n_head:
        raise GPT2Error(
            f"{where} is {wte[1]} wide, which does not divide into --n-head {n_head}; give the "
            "number that it was trained with"
        )
    layers = [int(found[1]) for name in shapes if (found := _LAYER.match(name))]
    data: dict[str, Any] = {
        "vocab_size": wte[0],
        "n_positions": wpe[0],
        "n_embd": wte[1],
        "n_layer": 1 + max(layers),
        "n_head": n_head,
        "n_inner": None if c_fc[1] == 4 * wte[1] else c_fc[1],
    }
    return parse_config(data, where)


def check_heads(parsed: ParsedConfig, n_head: int | None, where: Path) -> None:
    """Raise GPT2Error where the user's --n-head is not the number that the file gives."""
    if n_head is not None and parsed.config.n_head != n_head:
        raise GPT2Error(
            f"{where} has {parsed.config.n_head} heads by its own config, not {n_head}; leave "
            "--n-head out"
        )


def _same(head: StoredTensor, wte: StoredTensor) -> bool:
    """Whether a stored head is a copy of wte; then the two are one, as released."""
    import torch

    alike = head.shape == wte.shape and {head.dtype, wte.dtype} <= {*WEIGHT_DTYPES}
    return alike and torch.equal(head.read(), wte.read())
