"""How fast texts were written, for ``--timing``."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

from ..config import GPT2Config
from ..layout import shapes

if TYPE_CHECKING:
    from ..generation import Meter, Step

_STARTED = perf_counter()  # this module is imported as the command line is read

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


class Clock:
    """When the first token came, and how many there were."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = self.began = _STARTED
        self.tokens = 0

    def watch(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The same steps, counted as they come."""
        for step in steps:
            if step.token is not None:
                self.tokens += 1
                self.last = perf_counter()
                self.first = self.first or self.last
            yield step

    def report(self, meter: Meter, config: GPT2Config, dtype: str) -> str:
        """Lines of figures; seconds count from the start of the program."""
        lines = [f"prompt        {_rate(meter.prompt_tokens, meter.prompt_seconds)}"]
        if self.first is not None:
            lines.append(f"decode        {_rate(self.tokens - 1, self.last - self.first)}")
            lines.append(f"first token   {self.first - self.began:.2f} s after the start")
        if meter.passes:
            read = weight_bytes(config, dtype) * meter.passes / meter.pass_seconds / 1e9
            passes = _counted(meter.passes, "pass", "passes")
            lines.append(f"weights read  {read:.1f} GB/s in {passes}")
        if meter.drafted:
            share = meter.accepted / meter.drafted
            lines.append(f"drafts        {meter.accepted} of {meter.drafted} held ({share:.0%})")
        return "\n".join(lines)


def weight_bytes(config: GPT2Config, dtype: str) -> int:
    """Bytes of weights that one pass reads: the blocks' and the unembedding's."""
    table = shapes(config)
    blocks = sum(a * b for name, (a, *rest) in table.items() if name[0] == "h" for b in rest)
    return (blocks + config.vocab_size * config.n_embd) * _BYTES[dtype]


def _rate(tokens: int, seconds: float) -> str:
    counted = _counted(tokens, "token", "tokens")
    if not seconds:
        return counted
    return f"{counted} in {seconds:.2f} s, {tokens / seconds:.1f} tokens/s"


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
