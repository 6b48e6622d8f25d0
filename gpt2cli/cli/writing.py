"""Generated texts on stdout: as text while it is written, or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import trace
from .options import note
from .output import emit, json_line
from .trace import token_text

if TYPE_CHECKING:
    from ..generation import Continuation, Step
    from ..sampling import TokenLogprob
    from ..tokenizer import TextStream, Tokenizer


@dataclass(frozen=True)
class Style:
    """How texts are set off: how many there are, what stands before each, NUL or separators."""

    samples: int
    prompt: str
    null: bool

    def opening(self, sample: int) -> bytes:
        """What comes before the continuation of sample `sample`."""
        several = self.samples > 1 and not self.null
        header = f"=== sample {sample + 1} of {self.samples} ===\n" if several else ""
        return (header + self.prompt).encode()

    def closing(self, last: bytes) -> bytes:
        """What comes after a text whose last byte is `last`."""
        if self.null:
            return b"\0"
        return b"" if last == b"\n" else b"\n"


class _InOrder:
    """Samples arrive interleaved and leave one after another, the first of them at once."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.current = 0
        self.held: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.last = b""

    def write(self, sample: int, piece: bytes) -> None:
        if sample == self.current:
            self._emit(piece)
        else:
            self.held[sample] = self.held.get(sample, b"") + piece

    def end(self, sample: int) -> None:
        self.ended.add(sample)
        while self.current in self.ended:
            emit(self.style.closing(self.last))
            self.current += 1
            self.open()

    def open(self) -> None:
        """Start the current sample with what has come of it so far."""
        if self.current < self.style.samples:
            self.last = b""
            self._emit(self.style.opening(self.current) + self.held.pop(self.current, b""))

    def _emit(self, data: bytes) -> None:
        if data:
            emit(data)
            self.last = data[-1:]


def write_text(
    steps: Iterator[Step],
    streams: Sequence[TextStream],
    style: Style,
    traced: Tokenizer | None = None,
) -> None:
    """Print each text as soon as its bytes form whole characters.

    With the vocabulary of `traced` texts, print how each token was chosen, in place of the text.
    """
    from ..prompting import feed

    order = _InOrder(style)
    order.open()
    for step in steps:
        sample = step.continuation.request.sample
        piece = feed(step, streams[sample])
        order.write(sample, piece if traced is None else trace.table(step, traced))
        if step.continuation.finish_reason is not None:
            order.end(sample)


def write_json(
    steps: Iterator[Step],
    streams: Sequence[TextStream],
    vocabulary: Tokenizer,
    prompt: str,
    model: str,
    *,
    exact: bool,
) -> None:
    """Print an object a sample, a line each, in the samples' order, as soon as it is whole.

    `exact` says whether each text is the one that its prompt would have alone.
    """
    from ..prompting import feed

    done: dict[int, bytes] = {}
    current = 0
    for step in steps:
        text = step.continuation
        sample = text.request.sample
        feed(step, streams[sample])
        if text.finish_reason is None:
            continue
        row = facts(text, streams[sample], vocabulary)
        done[sample] = json_line({"prompt": prompt, **row, "model": model, "exact": exact})
        while current in done:
            emit(done.pop(current))
            current += 1


def note_slide(steps: Iterator[Step], quiet: bool) -> Iterator[Step]:
    """The same steps; the first slide is said on stderr."""
    said = False
    for step in steps:
        if step.continuation.slid and not said:
            said = True
            note("the text outgrew the model: its older half is dropped as it goes on", quiet)
        yield step


def facts(text: Continuation, stream: TextStream, vocabulary: Tokenizer) -> dict[str, Any]:
    """What JSON says of a finished text."""
    request = text.request
    row: dict[str, Any] = {
        "text": stream.text,
        "prompt_tokens": list(request.prompt),
        "tokens": text.tokens,
        "finish_reason": text.finish_reason,
        "seed": request.seed,
        "sample": request.sample,
    }
    if request.logprobs is not None:
        row["logprobs"] = [_logprob(each, vocabulary) for each in text.logprobs]
    if request.trace is not None:
        row["trace"] = [trace.as_json(choice, vocabulary) for choice in text.choices]
    return row


def _logprob(each: TokenLogprob, vocabulary: Tokenizer) -> dict[str, Any]:
    return {
        "id": each.id,
        "text": token_text(each.id, vocabulary),
        "bytes": list(vocabulary.token_bytes(each.id)),
        "logprob": each.logprob,
        "top": [
            {"id": token, "text": token_text(token, vocabulary), "logprob": logprob}
            for token, logprob in each.top
        ],
    }
