"""A scored text as people see it: every token with its surprisal, as a table or in colour."""

from __future__ import annotations

import bisect
import codecs
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from .output import literal

if TYPE_CHECKING:
    from ..sampling import TokenLogprob

BOUNDS = (1, 3, 6, 10)  # bits; a coin's toss, one of 8, one of 64, one of 1024
STEPS = ("under 1 bit", "1 to 3", "3 to 6", "6 to 10", "10 and more")
NOT_SCORED = "not scored"

_BACKGROUNDS = (None, 229, 222, 215, 209)  # of the 256 colours: ever deeper, under black letters
_BLACK = 16
_WIDEST = 20  # bits that a bar shows

# What a terminal or a browser would act on, or not show: pictures of it, and U+FFFD for the rest.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


@dataclass(frozen=True)
class Piece:
    """A token of a text: its bytes, and its score where it has one."""

    id: int
    data: bytes
    score: TokenLogprob | None

    @property
    def bits(self) -> float | None:
        """The surprisal, −log2 of the probability."""
        return None if self.score is None else max(0.0, -self.score.logprob / math.log(2))


@dataclass(frozen=True)
class Stretch:
    """The fewest tokens that are whole characters together: one, or those that share them."""

    text: str
    pieces: Sequence[Piece]

    @property
    def step(self) -> int | None:
        """The place of the surprisal, that of its scored tokens together, in STEPS."""
        bits = [piece.bits for piece in self.pieces if piece.bits is not None]
        return bisect.bisect(BOUNDS, sum(bits)) if bits else None


def stretches(pieces: Iterable[Piece]) -> Iterator[Stretch]:
    """All tokens in order; bytes that are no UTF-8 are U+FFFD, control characters are pictures."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, held = "", []
    for piece in pieces:
        text += decoder.decode(piece.data)
        held.append(piece)
        if not decoder.getstate()[0]:
            yield Stretch(text.translate(_PICTURES), held)
            text, held = "", []
    if held:
        yield Stretch((text + decoder.decode(b"", final=True)).translate(_PICTURES), held)


def table(pieces: Iterable[Piece]) -> Iterator[str]:
    """A line a token: its surprisal in bits, a bar of as many blocks, and the token's text."""
    yield f"{'bits':>7}  {'a block a bit':<{_WIDEST}}  token"
    for piece in pieces:
        bits = piece.bits
        number = "–" if bits is None else f"{bits:.2f}"
        bar = "" if bits is None else _bar(bits)
        yield f"{number:>7}  {bar:<{_WIDEST}}  {literal(piece.data)}"


def _bar(bits: float) -> str:
    """As many blocks as bits; an arrow ends one that is cut off."""
    return "█" * round(bits) if bits < _WIDEST + 0.5 else "█" * (_WIDEST - 1) + "▶"


def coloured(pieces: Iterable[Piece]) -> Iterator[str]:
    """The legend, and the text on backgrounds that tell the surprisal of each part."""
    steps = (_on(f" {name} ", step) for step, name in enumerate(STEPS))
    yield "".join(["surprisal: ", *steps, " ", _on(NOT_SCORED, None)])
    yield ""
    yield from "".join(map(_painted, stretches(pieces))).removesuffix("\n").split("\n")


def _painted(stretch: Stretch) -> str:
    """The text in its colour; a newline is shown before it acts, which it does without colour."""
    lines = stretch.text.split("\n")
    shown = [*(f"{line}↵" for line in lines[:-1]), lines[-1]]
    return "\n".join(_on(line, stretch.step) for line in shown)


def _on(text: str, step: int | None) -> str:
    """`text` in the colours of a step; dim where nothing is scored."""
    if not text or step == 0:
        return text
    if step is None:
        return click.style(text, dim=True)
    return click.style(text, fg=_BLACK, bg=_BACKGROUNDS[step])
