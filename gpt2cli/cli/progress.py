"""How far many texts are, on stderr: one line that changes on a terminal, else one now and then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..generation import Step

_TERMINAL_SECONDS = 0.2
_PLAIN_SECONDS = 10.0


class Progress:
    """Counts texts and tokens, and says from time to time how many there are and how fast."""

    def __init__(self, texts: int, total: int, quiet: bool) -> None:
        """`texts` of `total` were there before."""
        self.before = self.texts = texts
        self.total = total
        self.tokens = 0
        self._whole = 0  # tokens of the texts that have ended
        self._quiet = quiet
        self._shown = False  # a line that has not ended
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._began = self._said = perf_counter()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The last line; what was begun is not left open."""
        if kind is None or self._shown:
            self._say(f"{self._sum()}, took {duration(perf_counter() - self._began)}")
        if self._shown:
            click.echo(err=True)

    def watch(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The same steps, counted as they come."""
        for step in steps:
            yield step
            self.tokens += step.token is not None
            if step.continuation.finish_reason is not None:
                self.texts += 1
                self._whole += len(step.continuation.tokens)
            every = _TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS
            if self.texts < self.total and perf_counter() - self._said >= every:
                self._say(f"{self._sum()}, {self._left()}")

    def _say(self, line: str) -> None:
        self._said = perf_counter()
        if self._quiet:
            return
        if self._terminal:
            self._shown = True
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        else:
            click.echo(line, err=True)

    def _sum(self) -> str:
        rate = self.tokens / max(perf_counter() - self._began, 1e-9)
        return f"{self.texts:,} of {self.total:,} texts, {rate:,.0f} tokens/s"

    def _left(self) -> str:
        """How long the rest takes, at the speed and with texts as long as those so far."""
        done = self.texts - self.before
        if not done:
            return "time left unknown"
        # a text is its tokens and one more, as some have none
        begun = self.tokens - self._whole
        rest = max(0, (self._whole + done) / done * (self.total - self.texts) - begun)
        passed = perf_counter() - self._began
        return f"{duration(passed * rest / (self.tokens + done))} left"


def duration(seconds: float) -> str:
    """As 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
