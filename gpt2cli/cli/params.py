"""gpt2 params: count parameters from the config and the file headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import click

from ..checkpoint import Checkpoint
from ..config import GPT2Config, ParsedConfig
from ..hub import Model, open_remote, parse_model
from ..layout import HEAD, block_shapes, count, shapes
from ..tokenizer import has_tokenizer, tokenizer_size
from .options import (
    chosen_heads,
    chosen_model,
    heads_option,
    model_argument,
    note,
    quiet_option,
)
from .output import emit, emit_lines, json_line


@dataclass(frozen=True)
class _Row:
    """A stored tensor and what became of its name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    mapping: str


@dataclass(frozen=True)
class _Counted:
    """What there is to say about a model without reading a weight."""

    model: str
    parsed: ParsedConfig
    file_bytes: int
    rows: list[_Row]
    tokenizer_size: int | None


@click.command("params", short_help="Count the parameters of a model.")
@model_argument
@click.option("--tensors", is_flag=True, help="List every tensor, and how its name was mapped.")
@click.option("--json", "as_json", is_flag=True, help="The counts as one JSON object.")
@heads_option
@quiet_option
def command(
    argument: str | None, model: str | None, tensors: bool, as_json: bool, quiet: bool
) -> None:
    """Count the parameters of MODEL by component; no weight is read.

    \b
    gpt2 params gpt2-xl
    gpt2 params austen --tensors
    gpt2 params ./model --json

    A released size needs neither files nor network. Of a repository on the Hub only the config
    and the headers of its safetensors files are fetched.
    """
    counted = _count(chosen_model(argument, model), quiet)
    if as_json:
        emit(json_line(_json(counted, tensors)))
        return
    emit_lines([*_table(counted), *(_listing(counted.rows) if tensors else ())])


def _count(name: str, quiet: bool) -> _Counted:
    model = parse_model(name)
    if model.preset is not None:
        config = model.preset.config
        rows = [_Row(n, shape, "float32", "") for n, shape in shapes(config).items()]
        known = tuple(field.name for field in fields(config))
        parsed = ParsedConfig(config, known, (), ())
        return _Counted(name, parsed, model.preset.file_bytes, rows, config.vocab_size)
    checkpoint = (
        open_remote(model) if model.path is None else Checkpoint.open(model.path, chosen_heads())
    )
    for line in checkpoint.notes:
        note(line, quiet)
    rows = [*_rows(checkpoint)]
    size = _tokenizer_size(model, checkpoint)
    return _Counted(name, checkpoint.parsed, checkpoint.file_bytes, rows, size)


def _tokenizer_size(model: Model, checkpoint: Checkpoint) -> int | None:
    """How many ids the tokenizer has; None without one, and for a repository's that is not here."""
    if model.path is None and not has_tokenizer(checkpoint.folder):
        return None
    return tokenizer_size(checkpoint.path, checkpoint.config.vocab_size)


def _rows(checkpoint: Checkpoint) -> Iterator[_Row]:
    matched = checkpoint.matched
    for name, stored in matched.tensors.items():
        renamed = "" if stored.name == name else f"stored as {stored.name}"
        mapping = ", ".join(filter(None, [renamed, stored.remark]))
        yield _Row(name, stored.shape, stored.dtype, mapping)
    for copy in matched.copies:
        yield _Row(copy.name, copy.shape, copy.dtype, "ignored: copy of wte.weight, its tied head")
    for stored, reason in matched.skipped:
        yield _Row(stored.name, stored.shape, stored.dtype, f"ignored: {reason}")


def _components(config: GPT2Config) -> dict[str, Any]:
    table, block = shapes(config), block_shapes(config)
    components: dict[str, Any] = {
        "wte": count(table, "wte."),
        "wpe": count(table, "wpe."),
        "block": {part: count(block, f"{part}.") for part in ("ln_1", "attn", "ln_2", "mlp")},
        "ln_f": count(table, "ln_f."),
    }
    if not config.tie_word_embeddings:
        components["lm_head"] = count(table, HEAD)
    return components


def _json(counted: _Counted, tensors: bool) -> dict[str, Any]:
    config, parsed = counted.parsed.config, counted.parsed
    components = _components(config)
    result: dict[str, Any] = {
        "model": counted.model,
        "total": count(shapes(config)),
        "embeddings": components["wte"] + components["wpe"],
        "per_block": sum(components["block"].values()),
        "n_layer": config.n_layer,
        "untied_extra": _untied_extra(config),
        "components": components,
        "vocab_size": config.vocab_size,
        "tokenizer_size": counted.tokenizer_size,
        "kv_bytes_per_token": _kv_bytes(config),
        "file_bytes": counted.file_bytes,
        "config": {
            "applied": parsed.applied,
            "irrelevant": parsed.irrelevant,
            "unknown": parsed.unknown,
        },
    }
    if tensors:
        result["tensors"] = [vars(row) for row in counted.rows]
    return result


def _untied_extra(config: GPT2Config) -> int:
    """What a head of its own would add; nothing where the model has one already."""
    return config.vocab_size * config.n_embd if config.tie_word_embeddings else 0


def _kv_bytes(config: GPT2Config) -> int:
    """Bytes of float32 keys and values that a token takes in the cache."""
    return 2 * 4 * config.n_layer * config.n_embd


def _table(counted: _Counted) -> Iterator[str]:
    config = counted.parsed.config
    parts = _components(config)
    total, per_block = count(shapes(config)), sum(parts["block"].values())
    embeddings = parts["wte"] + parts["wpe"]
    yield counted.model
    yield _line("wte", parts["wte"], f"{config.vocab_size:,} × {config.n_embd:,}")
    if padding := config.vocab_size - (counted.tokenizer_size or config.vocab_size):
        remark = f"{padding:,} of these rows are past the tokenizer's {counted.tokenizer_size:,}"
        yield _line("  padding", padding * config.n_embd, remark)
    yield _line("wpe", parts["wpe"], f"{config.n_positions:,} × {config.n_embd:,}")
    yield _line("embeddings", embeddings)
    for part, n in parts["block"].items():
        yield _line(f"  {part}", n)
    yield _line("a block", per_block)
    yield _line("blocks", per_block * config.n_layer, f"× {config.n_layer}")
    yield _line("ln_f", parts["ln_f"])
    if "lm_head" in parts:
        yield _line("lm_head", parts["lm_head"], "its own, not tied to wte")
    yield _line("total", total)
    yield _line("without embeddings", total - embeddings)
    if config.tie_word_embeddings:
        yield _line("untied head", _untied_extra(config), "would be added")
    yield _line("on disk", counted.file_bytes, "bytes")
    yield _line("KV cache", _kv_bytes(config), "bytes a token in float32")


def _line(name: str, number: int, remark: str = "") -> str:
    return f"{name:<20}{number:>15,}  {remark}".rstrip()


def _listing(rows: list[_Row]) -> Iterator[str]:
    yield ""
    width = max(len(row.name) for row in rows)
    for row in rows:
        shape = f"[{', '.join(map(str, row.shape))}]"
        yield f"{row.name:<{width}}  {shape:<14}  {row.dtype:<8}  {row.mapping}".rstrip()
