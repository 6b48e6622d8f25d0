"""What is worth knowing of a prompt before its text is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..prompting import Prompter
    from ..request import Request

_NEARLY_FULL = 0.1  # of a model's positions are left


def prompt_notes(prompt: str, request: Request, prompter: Prompter) -> Iterator[str]:
    """Of a prompt that ends in the next word's space, that has CR LF, or that leaves no room."""
    if _ends_in_a_words_space(prompt, request, prompter):
        yield "the prompt ends in a blank, which is part of the next word's token; better without"
    if "\r\n" in prompt:
        yield "lines of the prompt end in CR LF, and models learn from lines that end in LF"
    room = prompter.config.n_positions - len(request.prompt)
    ends_early = request.overflow == "stop" and 0 < room < request.max_new_tokens
    if ends_early and room < _NEARLY_FULL * prompter.config.n_positions:
        yield f"{room} new tokens fit beside the prompt's {len(request.prompt)}"


def _ends_in_a_words_space(prompt: str, request: Request, prompter: Prompter) -> bool:
    """Whether the blank at the end would be of another token if the prompt went on.

    It is made to go on with the last character before the blank, which the vocabulary has; one of
    single characters has no other token for the blank.
    """
    before = prompt.rstrip(" \t")
    if not before or before == prompt:
        return False
    longer = prompter.request(prompt + before[-1]).prompt
    return longer[: len(request.prompt)] != request.prompt
