"""What someone else computed: token ids, their logits, and optionally the states in between."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..config import read_json
from ..errors import GPT2Error


@dataclass(frozen=True)
class Reference:
    """Logits to compare with.

    `input_ids` is int64 [B, T], `logits` float32 [B, T, V]. `hidden_states` are the inputs of
    the blocks and the last block's output, n_layer + 1 of [B, T, C], or none. `parts` are
    outputs inside the blocks under their released names, as ``h.0.attn.c_attn``, and ``ln_f``.
    """

    source: str
    input_ids: Tensor
    logits: Tensor
    hidden_states: tuple[Tensor, ...] = ()
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Reference":
        """The reference in a JSON or safetensors file; GPT2Error when it is neither."""
        if not path.exists():
            raise GPT2Error(f"{path} does not exist")
        return _from_safetensors(path) if path.suffix == ".safetensors" else _from_json(path)

    def write(self, path: Path) -> None:
        """Write to `path`, whole or not at all: JSON by its suffix, else safetensors.

        JSON holds ids and logits alone.
        """
        try:
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".recording-") as folder:
                whole = Path(folder) / "reference"
                whole.write_bytes(self._json() if path.suffix == ".json" else self._safetensors())
                whole.replace(path)
        except OSError as error:
            raise GPT2Error(f"cannot write {path}: {error.strerror or error}") from error

    def _json(self) -> bytes:
        ids, logits = self.input_ids.tolist(), self.logits.tolist()
        return json.dumps({"input_ids": ids, "logits": logits, "source": self.source}).encode()

    def _safetensors(self) -> bytes:
        states = {f"hidden_states.{n}": state for n, state in enumerate(self.hidden_states)}
        tensors = {"input_ids": self.input_ids, "logits": self.logits} | states | {**self.parts}
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return save(whole, metadata={"source": self.source})


def _from_json(path: Path) -> Reference:
    data = read_json(path)
    for name in ("input_ids", "logits"):
        if name not in data:
            raise GPT2Error(f"{path} has no {name}; a reference holds input_ids and logits")
    ids = _tensor(data["input_ids"], "input_ids", path)
    if ids.numel() and ids.dtype != torch.int64:
        raise GPT2Error(f"{path}: input_ids are not all whole numbers")
    logits = _tensor(data["logits"], "logits", path).to(torch.float32)
    return Reference(str(data.get("source", path.name)), ids.to(torch.int64), logits)


def _tensor(values: object, name: str, path: Path) -> Tensor:
    try:
        return torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GPT2Error(f"{path}: {name} is no block of numbers with even rows") from error


def _from_safetensors(path: Path) -> Reference:
    try:
        tensors = load_file(path)
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as error:
        raise GPT2Error(f"{path} cannot be read as safetensors: {error}") from error
    for name in ("input_ids", "logits"):
        if name not in tensors:
            raise GPT2Error(f"{path} has no {name}; a reference holds input_ids and logits")
    ids, logits = tensors.pop("input_ids"), tensors.pop("logits")
    if ids.is_floating_point():
        raise GPT2Error(f"{path}: input_ids are not whole numbers")
    states: list[Tensor] = []
    while (state := tensors.pop(f"hidden_states.{len(states)}", None)) is not None:
        states.append(state.to(torch.float32))
    parts = {name: part.to(torch.float32) for name, part in tensors.items()}
    source = metadata.get("source", path.name)
    return Reference(source, ids.to(torch.int64), logits.to(torch.float32), tuple(states), parts)
