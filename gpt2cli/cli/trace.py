"""How tokens were chosen, for ``--trace``: tables for people, objects for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .output import literal

if TYPE_CHECKING:
    from ..generation import Step
    from ..tokenizer import Tokenizer
    from ..tracing import Choice, Stage

MOST_NAMED = 5  # likeliest tokens of a step
_COLUMNS = 80  # the table's lines name as many of them as fit

_HEADING = f"  {'step':<22} {'tokens':>7} {'mass':>7} {'nats':>6}  likeliest"


def table(step: Step, vocabulary: Tokenizer) -> bytes:
    """The lines of a token, and of the end of a text."""
    text = step.continuation
    lines: list[str] = []
    if text.choices:
        lines += _lines(len(text.choices), text.choices[-1], vocabulary)
    if text.finish_reason is not None:
        lines.append(f"finish_reason {text.finish_reason}")
    return "".join(f"{line}\n" for line in lines).encode()


def as_json(choice: Choice, vocabulary: Tokenizer) -> dict[str, Any]:
    """A token's choice as an object; probabilities as they are, logs and entropies in nats."""
    return {
        "id": choice.id,
        "text": token_text(choice.id, vocabulary),
        "logprob": choice.logprob,
        "probability": choice.probability,
        "steps": [_stage_json(stage, vocabulary) for stage in choice.stages],
    }


def token_text(token: int, vocabulary: Tokenizer) -> str:
    """A token's text: none for a row of padding, which the model may think likely."""
    return vocabulary.decode([token]) if vocabulary.known(token) else ""


def _lines(number: int, choice: Choice, vocabulary: Tokenizer) -> Iterator[str]:
    yield (
        f"token {number}: {_piece(choice.id, vocabulary)} (id {choice.id}), "
        f"logprob {choice.logprob:.4f}, drawn with probability {choice.probability:.4f}"
    )
    yield _HEADING
    for stage in choice.stages:
        yield _line(stage, vocabulary)


def _line(stage: Stage, vocabulary: Tokenizer) -> str:
    line = f"  {stage.step:<22} {stage.candidates:>7,} {stage.mass:>7.4f} {stage.entropy:>6.3f}"
    for token, share in stage.likeliest:
        named = f"  {_piece(token, vocabulary)} {share:.3f}"
        if len(line + named) > _COLUMNS:
            break
        line += named
    return line


def _stage_json(stage: Stage, vocabulary: Tokenizer) -> dict[str, Any]:
    return {
        "step": stage.step,
        "candidates": stage.candidates,
        "mass": stage.mass,
        "entropy": stage.entropy,
        "top": [
            {"id": token, "text": token_text(token, vocabulary), "probability": share}
            for token, share in stage.likeliest
        ],
    }


def _piece(token: int, vocabulary: Tokenizer) -> str:
    return literal(vocabulary.token_bytes(token)) if vocabulary.known(token) else "nothing"
