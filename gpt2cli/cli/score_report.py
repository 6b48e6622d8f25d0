"""What a score says of a text: its figures, as lines and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .surprisal import Piece

if TYPE_CHECKING:
    from ..scoring import Total


@dataclass(frozen=True)
class ScoreReport:
    """A text's tokens with their scores, and how it was read.

    `total` is over the scored tokens. Words are what white space separates.
    """

    model: str
    pieces: Sequence[Piece]
    total: Total
    words: int
    bytes: int
    window: int
    stride: int
    bos: bool

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The name of each figure, the figure, and what is to be known of it."""
        total = self.total
        yield "tokens", f"{len(self.pieces):,}", ""
        yield "scored tokens", f"{total.scored:,}", self._unscored()
        yield "words", f"{self.words:,}", "what white space separates"
        yield "bytes", f"{self.bytes:,}", ""
        yield "log-probability", f"{total.logprob:,.3f} nats", "of the scored tokens"
        yield "perplexity", _large(total.perplexity), "a scored token"
        yield "nats per token", f"{total.nats(total.scored):.4f}", "over the scored tokens"
        if self.words:
            yield "nats per word", f"{total.nats(self.words):.4f}", "over all words"
        yield "bits per byte", f"{total.bits(self.bytes):.4f}", "over all bytes"
        yield "window", f"{self.window:,}", "tokens read together"
        yield "stride", f"{self.stride:,}", "tokens from one window's start to the next"
        yield "start token", "yes" if self.bos else "no", ""

    def _unscored(self) -> str:
        """Why there are tokens without a score, if there are."""
        if self.window == self.stride < len(self.pieces) + self.bos:
            return "the first of a window follows nothing; a smaller --stride scores it"
        return "" if self.bos else "the first follows nothing; --bos scores it"

    def lines(self) -> Iterator[str]:
        """The figures in columns."""
        rows = [*self.rows()]
        width = max(len(value) for _, value, _ in rows)
        yield self.model
        for name, value, remark in rows:
            yield f"  {name:<15}  {value:<{width}}  {remark}".rstrip()

    def json(self, tokens: bool) -> dict[str, Any]:
        """The figures under their names; an endless perplexity is null. `tokens` adds each."""
        total = self.total
        found: dict[str, Any] = {
            "tokens": len(self.pieces),
            "logprob": total.logprob,
            "perplexity": total.perplexity if math.isfinite(total.perplexity) else None,
            "bits_per_byte": total.bits(self.bytes),
            "bytes": self.bytes,
            "window": self.window,
            "stride": self.stride,
            "bos": self.bos,
        }
        if tokens:
            found["token_scores"] = [_token(piece) for piece in self.pieces]
        return found


def _token(piece: Piece) -> dict[str, Any]:
    return {
        "id": piece.id,
        "text": piece.data.decode("utf-8", "replace"),
        "bytes": list(piece.data),
        "logprob": None if piece.score is None else piece.score.logprob,
    }


def _large(value: float) -> str:
    """A number that may be of any size."""
    return f"{value:,.2f}" if value < 1e9 else f"{value:.2e}"
