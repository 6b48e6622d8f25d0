"""What lies in a file, tensor by tensor, and the strict match with what a config asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import GPT2Config, ParsedConfig
from ..errors import GPT2Error, listing
from ..layout import HEAD, Shape, shapes

if TYPE_CHECKING:
    import torch

WEIGHT_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file holds it, and how to read it.

    `name` is the file's own spelling, `shape` is in the released orientation, `dtype` is torch's
    name of the stored type. `read()` gives the tensor in that shape and dtype on aligned memory,
    mapped where the file allows it, and raises GPT2Error when the file is damaged. `release()`
    gives back the pages it was mapped to; whoever uses it afterwards reads them again. `remark`
    says what was done to what is stored, if anything.
    """

    name: str
    shape: Shape
    dtype: str
    nbytes: int
    file: Path
    read: Callable[[], torch.Tensor]
    release: Callable[[], None] = lambda: None
    remark: str = ""


def turned(tensor: StoredTensor) -> StoredTensor:
    """A dense weight that is stored [out, in], as a view in the released orientation."""
    if len(tensor.shape) != 2:
        return tensor  # of a wrong shape, which the match says
    remark = ", ".join(filter(None, [tensor.remark, "turned from [out, in]"]))
    return replace(tensor, shape=tensor.shape[::-1], read=lambda: tensor.read().T, remark=remark)


@dataclass(frozen=True)
class Skipped:
    """Why a stored tensor is no part of the network."""

    reason: str


# A dialect's rule: the released name of a stored tensor, why it is skipped, or None for unknown.
Rule = Callable[[StoredTensor], "str | Skipped | None"]


@dataclass(frozen=True)
class Matched:
    """Stored tensors under released names, in the table's order.

    `copies` are stored heads of a tied model: each must equal ``wte.weight``.
    """

    tensors: dict[str, StoredTensor]
    copies: tuple[StoredTensor, ...]
    skipped: tuple[tuple[StoredTensor, str], ...]


def match(stored: Iterable[StoredTensor], rule: Rule, config: GPT2Config, where: str) -> Matched:
    """Every stored tensor under its released name; strict both ways.

    Raises GPT2Error with all that is missing, unexpected, doubled, mis-shaped or of a type that
    holds no weights, in one line.
    """
    table = shapes(config)
    found: dict[str, StoredTensor] = {}
    copies: list[StoredTensor] = []
    skipped: list[tuple[StoredTensor, str]] = []
    problems = _Problems()
    for tensor in stored:
        name = rule(tensor)
        if isinstance(name, Skipped):
            skipped.append((tensor, name.reason))
        elif name == HEAD and config.tie_word_embeddings:
            problems.check(tensor, table["wte.weight"])
            copies.append(tensor)
        elif name not in table:
            problems.unexpected.append(tensor.name)
        elif name in found:
            problems.doubled.append(f"{found[name].name} and {tensor.name}")
        else:
            problems.check(tensor, table[name])
            found[name] = tensor
    problems.missing += [name for name in table if name not in found]
    problems.refuse(where)
    return Matched({name: found[name] for name in table}, tuple(copies), tuple(skipped))


class _Problems:
    """All that is wrong with a set of tensors, told at once."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.doubled: list[str] = []
        self.misshapen: list[str] = []
        self.mistyped: list[str] = []

    def check(self, tensor: StoredTensor, shape: Shape) -> None:
        if tensor.shape != shape:
            self.misshapen.append(f"{tensor.name} is {[*tensor.shape]}, not {[*shape]}")
        if tensor.dtype not in WEIGHT_DTYPES:
            self.mistyped.append(f"{tensor.name} is {tensor.dtype}")

    def refuse(self, where: str) -> None:
        parts = [
            f"{len(names)} {what} ({listing(names)})"
            for what, names in (
                ("missing", self.missing),
                ("unexpected", self.unexpected),
                ("stored twice", self.doubled),
                ("of the wrong shape", self.misshapen),
                (f"not of {'/'.join(WEIGHT_DTYPES)}", self.mistyped),
            )
            if names
        ]
        if parts:
            raise GPT2Error(f"{where} does not hold the tensors of its config: {', '.join(parts)}")


@dataclass(frozen=True)
class Source:
    """What a dialect's reader finds: a config, tensors in the file's names, and their rule.

    `notes` are lines that the user should see.
    """

    dialect: str
    parsed: ParsedConfig
    stored: list[StoredTensor]
    rule: Rule
    file_bytes: int
    notes: tuple[str, ...] = ()
