"""llm.c's debug state: what its train_gpt2.py wrote for its C program to be tested against.

The file, after llm.c's test_gpt2.c (https://github.com/karpathy/llm.c): 256 int32 (magic,
version, B, T, the rest 0), inputs and targets as int32 [B, T], logits as float32 [B, T, V], the
loss, and the gradients in the order of the parameters. V is the vocabulary without its padding,
and stands nowhere in the file; the gradients' wte has padded rows. All is little-endian.
"""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..config import GPT2Config
from ..errors import GPT2Error
from ..layout import count, shapes
from .reference import Reference

MAGIC = 20240327
_VERSION = 2
_HEADER = 256  # int32


@dataclass(frozen=True)
class DebugState:
    """A debug state whose vocabulary is not known yet; `rest` is all float32 after the targets."""

    path: Path
    input_ids: Tensor
    targets: Tensor
    rest: Tensor

    @classmethod
    def claims(cls, path: Path) -> bool:
        """Whether a file begins as a debug state does."""
        try:
            with path.open("rb") as file:
                return file.read(4) == MAGIC.to_bytes(4, "little")
        except OSError:
            return False

    @classmethod
    def read(cls, path: Path) -> "DebugState":
        """The debug state in a file; GPT2Error for another version or one that is cut off."""
        numbers = np.fromfile(path, "<i4")
        if len(numbers) < _HEADER:
            raise GPT2Error(f"{path} is cut off within its header; fetch the file again")
        _, version, rows, columns = numbers[:4].tolist()
        if version != _VERSION:
            raise GPT2Error(
                f"{path} is a debug state of version {version}, and only {_VERSION} is read; "
                "write it with a newer llm.c"
            )
        ends = _HEADER + rows * columns * np.arange(3)
        if min(rows, columns) < 1 or len(numbers) <= ends[2]:
            raise GPT2Error(f"{path} is cut off: {rows} rows of {columns} tokens are not all there")
        inputs, targets = (
            torch.from_numpy(numbers[start:stop].astype(np.int64)).view(rows, columns)
            for start, stop in itertools.pairwise(ends)
        )
        return cls(path, inputs, targets, torch.from_numpy(numbers[ends[2] :].view("<f4")))

    def reference(self, config: GPT2Config) -> Reference:
        """Inputs, targets, logits and loss for a model with this config.

        Raises GPT2Error when the rest of the file is not logits, a loss and gradients of its sizes.
        """
        shape = (*self.input_ids.shape, config.vocab_size)
        n_logits = math.prod(shape)
        padding = len(self.rest) - n_logits - 1 - count(shapes(config))
        if padding < 0 or padding % config.n_embd:
            raise GPT2Error(
                f"{self.path} is no debug state of this model: {len(self.rest)} numbers are not "
                f"{n_logits} logits, a loss and {count(shapes(config))} gradients"
            )
        logits = self.rest[:n_logits].view(shape)
        source = f"llm.c's {self.path.name}"
        loss = float(self.rest[n_logits])
        return Reference(source, self.input_ids, logits, targets=self.targets, loss=loss)
