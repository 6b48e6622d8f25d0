"""What someone else computed: token ids, their logits, and optionally the states in between."""

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..checkpoint.single_file import write_whole
from ..config import read_json
from ..errors import GPT2Error, listing

# Types of a safetensors file's ids, and of all else in it.
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

_LONGEST_HEADER = 10**8  # bytes; safetensors reads none that is longer


@dataclass(frozen=True)
class Reference:
    """Logits to compare with.

    `input_ids` is int64 [B, T], `logits` float32 [B, T, V]. `hidden_states` are the inputs of
    the blocks and the last block's output, n_layer + 1 of [B, T, C], or none. `parts` are
    outputs inside the blocks under their released names, as ``h.0.attn.c_attn``, and ``ln_f``.
    `targets`, int64 [B, T], are the tokens that come next, and `loss` is the mean of their −log p.
    """

    source: str
    input_ids: Tensor
    logits: Tensor
    hidden_states: tuple[Tensor, ...] = ()
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    targets: Tensor | None = None
    loss: float | None = None

    @classmethod
    def read(cls, path: Path) -> "Reference":
        """The reference in a JSON or safetensors file, whatever its name; GPT2Error for another."""
        try:
            with path.open("rb") as file:
                head = file.read(64)
        except OSError as error:
            raise GPT2Error(f"cannot read {path}: {error.strerror}; check the path") from error
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _LONGEST_HEADER:
            return _from_safetensors(path)
        if (text := head.removeprefix(codecs.BOM_UTF8).lstrip()).startswith(b"{"):
            return _from_json(path)
        what = "it is empty" if not head else f"it begins with {head[:16]!r}"
        what = "it is a web page or XML" if text.startswith(b"<") else what
        raise GPT2Error(
            f"{path} is no reference: {what}; name a JSON or safetensors file with input_ids and "
            "logits, or llm.c's debug state"
        )

    def write(self, path: Path) -> None:
        """Write to `path`, whole or not at all: JSON by its suffix, else safetensors.

        JSON holds ids and logits alone. A link stays, and the file that it leads to is replaced.
        """
        write_whole(path, self._json() if is_json(path) else self._safetensors())

    def _json(self) -> bytes:
        ids, logits = self.input_ids.tolist(), self.logits.tolist()
        return json.dumps({"input_ids": ids, "logits": logits, "source": self.source}).encode()

    def _safetensors(self) -> bytes:
        states = {f"hidden_states.{n}": state for n, state in enumerate(self.hidden_states)}
        tensors = {"input_ids": self.input_ids, "logits": self.logits} | states | {**self.parts}
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return save(whole, metadata={"source": self.source})


def is_json(path: Path) -> bool:
    """Whether a reference of this name is written as JSON."""
    return path.name.lower().endswith(".json")


def _from_json(path: Path) -> Reference:
    data = read_json(path)
    for name in ("input_ids", "logits"):
        if name not in data:
            raise GPT2Error(f"{path} has no {name}; a reference holds input_ids and logits")
    ids = _tensor(data["input_ids"], "input_ids", path)
    if ids.numel() and (ids.dtype != torch.int64 or _has_truth(data["input_ids"])):
        raise GPT2Error(f"{path}: input_ids are not all whole numbers")
    logits = _tensor(data["logits"], "logits", path).to(torch.float32)
    return Reference(str(data.get("source", path.name)), ids.to(torch.int64), logits)


def _has_truth(values: object) -> bool:
    """Whether true or false is among the numbers, where torch would take them for 1 and 0."""
    if isinstance(values, list):
        return any(map(_has_truth, values))
    return isinstance(values, bool)


def _tensor(values: object, name: str, path: Path) -> Tensor:
    try:
        return torch.tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise GPT2Error(
            f"{path}: {name} is no block of numbers whose rows are alike in length ({error})"
        ) from error


def _from_safetensors(path: Path) -> Reference:
    try:
        tensors = load_file(path)
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as error:
        raise GPT2Error(f"{path} cannot be read as safetensors: {error}; fetch it again") from error
    for name in ("input_ids", "logits"):
        if name not in tensors:
            raise GPT2Error(f"{path} has no {name}; a reference holds input_ids and logits")
    ids, logits = tensors.pop("input_ids"), tensors.pop("logits")
    if ids.dtype not in _WHOLE:
        raise GPT2Error(f"{path}: input_ids are not whole numbers")
    odd = {str(t.dtype) for t in (logits, *tensors.values()) if t.dtype not in _FLOATS}
    if odd:
        raise GPT2Error(f"{path} holds {listing(sorted(odd))}; save float32")
    states: list[Tensor] = []
    while (state := tensors.pop(f"hidden_states.{len(states)}", None)) is not None:
        states.append(state.to(torch.float32))
    parts = {name: part.to(torch.float32) for name, part in tensors.items()}
    source = metadata.get("source", path.name)
    return Reference(source, ids.to(torch.int64), logits.to(torch.float32), tuple(states), parts)
