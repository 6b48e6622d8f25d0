"""Ids in, ids out: prefill, steps, batches, overflow. Knows no text."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .config import GPT2Config
from .errors import GPT2Error
from .model import GPT2, KVCache
from .sampling import Sampler, Sampling, TokenLogprob, generator, token_logprob

Overflow = Literal["error", "stop", "slide"]
FinishReason = Literal["stop", "eos", "length", "context"]
Logits = NDArray[np.float32]

MOST_ROWS = 32
MOST_CACHE_BYTES = 2**30


@dataclass(frozen=True)
class Request:
    """One text to write.

    `prompt` holds at least one id. `end_ids` end the text and are not part of it; `never` are ids
    that stand for nothing. `overflow` is what happens when prompt and continuation do not fit
    into n_positions: refuse, stop there, or drop the older half of the tokens after the first
    `keep` and go on. `logprobs` asks for each token's log-probability and that many top ones.
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


class Continuation:
    """What has been written for one request so far.

    `finish_reason` is None while the text goes on; `slid` counts how often its window slid.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprob] = []
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
    if not length or not 0 <= request.keep < n_positions / 2:
        raise ValueError("a prompt needs a token, and keep is below half of n_positions")
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
        _sampler(request, config.vocab_size)


def slid(tokens: Sequence[int], n_positions: int, keep: int) -> list[int]:
    """The window after a slide: the first `keep` tokens, then the newer half of the room left."""
    room = n_positions - keep
    return [*tokens[:keep], *tokens[-(room - room // 2) :]]


def generate(
    model: GPT2, requests: Sequence[Request], most_rows: int = MOST_ROWS
) -> Iterator[Step]:
    """Write all the requests' texts, up to `most_rows` at a time, a step a token.

    Texts start in the order of their requests and take the place of those that ended. The reader
    may end a text with `Continuation.stop` before it asks for the next step. Raises what `check`
    raises, before any work.
    """
    check(requests, model.config)
    waiting = deque(requests)
    batch = _Batch(model, requests, most_rows)
    while waiting or batch.rows:
        while waiting and len(batch.rows) < batch.most_rows:
            batch.add(_Row(model, waiting.popleft()))
        for row in batch.rows:
            yield Step(row.continuation, row.grow())
        batch.remove_finished()
        batch.step()


def _sampler(request: Request, vocab_size: int) -> Sampler:
    numbers = generator(request.seed, request.prompt, request.sample)
    return Sampler(request.sampling, vocab_size, numbers, request.prompt, request.never)


class _Row:
    """A text in the making: its sampler, and the tokens that its cached window will hold."""

    def __init__(self, model: GPT2, request: Request) -> None:
        self.continuation = Continuation(request)
        self.n_positions = model.config.n_positions
        self.window = list(request.prompt)
        self.slide_when_full()
        self.start = tuple(self.window)
        self.sampler = _sampler(request, model.config.vocab_size)
        self.start_logits = self.logits = np.empty(0, np.float32)

    def grow(self) -> int | None:
        """Choose the next token from `logits`, None where that ends the text."""
        text, request = self.continuation, self.continuation.request
        if not request.max_new_tokens:
            text.finish_reason = "length"
            return None
        token = self.sampler.choose(self.logits)
        if token in request.end_ids:
            text.finish_reason = "eos"
            return None
        if request.logprobs is not None:
            text.logprobs.append(token_logprob(self.logits, token, request.logprobs))
        text.tokens.append(token)
        self.window.append(token)
        if len(text.tokens) == request.max_new_tokens:
            text.finish_reason = "length"
        elif len(self.window) == self.n_positions and request.overflow != "slide":
            text.finish_reason = "context"
        return token

    def slide_when_full(self) -> bool:
        """Drop the older half of a full window; whether it did, so that it must be run again."""
        if len(self.window) < self.n_positions:
            return False
        keep, room = self.continuation.request.keep, self.n_positions
        self.window = slid(self.window, room, keep)
        self.continuation.slid += 1
        return True


class _Batch:
    """The rows that run together; row i of the cache belongs to row i of the list."""

    def __init__(self, model: GPT2, requests: Sequence[Request], most_rows: int) -> None:
        config = model.config
        longest = max((len(r.prompt) + r.max_new_tokens for r in requests), default=1)
        capacity = KVCache.rounded(min(longest, config.n_positions))
        row_bytes = 8 * config.n_layer * config.n_embd * capacity
        fitting = max(1, MOST_CACHE_BYTES // row_bytes)
        self.model = model
        self.device = model.wte.weight.device
        self.most_rows = max(1, min(most_rows, fitting, len(requests)))
        self.cache = KVCache.empty(config, self.most_rows, capacity, self.device)
        self.rows: list[_Row] = []

    def add(self, row: _Row) -> None:
        """Run a row's first window, or copy it from a row with the same one that still holds it."""
        place = len(self.rows)
        for source, other in enumerate(self.rows):
            if other.start == row.start and other.window[: len(row.start)] == list(row.start):
                self.cache.copy_row(source, place, len(row.start))
                row.start_logits = other.start_logits
                break
        else:
            row.start_logits = self._run(row.window, place)
        row.logits = row.start_logits
        self.rows.append(row)

    def remove_finished(self) -> None:
        """Close the gaps of ended rows with the last ones."""
        for place in reversed(range(len(self.rows))):
            if self.rows[place].continuation.finish_reason is None:
                continue
            last = self.rows.pop()
            if place < len(self.rows):
                self.rows[place] = last
                source = len(self.rows)
                self.cache.copy_row(source, place, int(self.cache.lengths[source]))

    def step(self) -> None:
        """One pass over the last token of every row, after the rest of those that slid."""
        for place, row in enumerate(self.rows):
            if row.slide_when_full():
                self.cache.lengths[place] = 0
                if row.window[:-1]:
                    self._run(row.window[:-1], place)
        if self.rows:
            last = torch.tensor([row.window[-1:] for row in self.rows], device=self.device)
            for row, logits in zip(self.rows, self._pass(last, 0), strict=True):
                row.logits = logits

    def _run(self, ids: Sequence[int], place: int) -> Logits:
        """Run ids from position 0 of a row; the logits after the last, [V]."""
        self.cache.lengths[place] = 0
        logits: Logits = self._pass(torch.tensor([ids], device=self.device), place)[0]
        return logits

    @torch.inference_mode()
    def _pass(self, ids: torch.Tensor, place: int) -> Logits:
        """Run [B, T] ids on the rows from `place`; the logits after the last of each, [B, V]."""
        cache = self.cache.rows(place, place + len(ids))
        hidden = self.model.hidden(ids, cache)[:, -1]
        logits: Logits = self.model.unembed(hidden).cpu().numpy()
        return logits
