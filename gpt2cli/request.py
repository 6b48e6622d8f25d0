"""What is asked for and what has come of it: ids in, ids out. Knows no text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .config import GPT2Config
from .errors import GPT2Error
from .sampling import Sampler, Sampling, TokenLogprob, generator
from .tracing import Choice

Overflow = Literal["error", "stop", "slide"]
FinishReason = Literal["stop", "eos", "length", "context"]


@dataclass(frozen=True)
class Request:
    """One text to write.

    `prompt` holds at least one id. `end_ids` end the text and are not part of it; `never` are ids
    that stand for nothing. `overflow` is what happens when prompt and continuation do not fit
    into n_positions: refuse, stop there, or drop the older half of the tokens after the first
    `keep` and go on. `logprobs` asks for each token's log-probability and that many top ones,
    `trace` for how each was chosen, with that many of the likeliest at each step.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    sample: int = 0
    end_ids: frozenset[int] = frozenset()
    never: tuple[int, ...] = ()
    overflow: Overflow = "error"
    keep: int = 0
    logprobs: int | None = None
    trace: int | None = None


class Continuation:
    """What has been written for one request so far.

    `finish_reason` is None while the text goes on; `slid` counts how often its window slid.
    `choices`, where they are asked for, are one more than the tokens if a token ended the text.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.choices: list[Choice] = []
        self.finish_reason: FinishReason | None = None
        self.slid = 0

    def stop(self) -> None:
        """End the text here: the reader has seen what it waited for."""
        self.finish_reason = "stop"


@dataclass(frozen=True)
class Step:
    """A text grew by `token`, or ended without one (None)."""

    continuation: Continuation
    token: int | None


def check_length(request: Request, n_positions: int) -> None:
    """Raise GPT2Error when a request cannot be met within `n_positions` tokens.

    A mistake in the request itself (an empty prompt, a `keep` of half the positions or more) is
    a ValueError.
    """
    length, wanted = len(request.prompt), request.max_new_tokens
    if not length:
        raise ValueError("a prompt needs a token, and has none")
    if not 0 <= request.keep < n_positions / 2:
        raise ValueError(f"keep is below half of n_positions, {n_positions}, not {request.keep}")
    if request.overflow == "slide":
        return
    if length >= n_positions:
        raise GPT2Error(
            f"the prompt is {length} tokens, and the model holds {n_positions}, prompt and "
            "continuation together; shorten it or use --overflow slide"
        )
    if request.overflow == "error" and length + wanted > n_positions:
        raise GPT2Error(
            f"{length} prompt tokens and {wanted} new ones are more than the {n_positions} the "
            f"model holds; ask for at most {n_positions - length}, or use --overflow stop or slide"
        )


def check(requests: Sequence[Request], config: GPT2Config) -> None:
    """Raise what `check_length` and `Sampler` raise for requests to a model with this config."""
    for request in requests:
        check_length(request, config.n_positions)
    for request in {id(request.sampling): request for request in requests}.values():
        sampler(request, config.vocab_size)


def slid(tokens: Sequence[int], n_positions: int, keep: int) -> list[int]:
    """The window after a slide: the first `keep` tokens, then the newer half of the room left."""
    room = n_positions - keep
    return [*tokens[:keep], *tokens[-(room - room // 2) :]]


def sampler(request: Request, vocab_size: int) -> Sampler:
    """What chooses a request's tokens; raises what `Sampler` raises."""
    numbers = generator(request.seed, request.prompt, request.sample)
    return Sampler(request.sampling, vocab_size, numbers, request.prompt, request.never)
