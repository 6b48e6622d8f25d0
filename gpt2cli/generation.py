"""The engine: prefill, steps with drafts, rows that join and leave a batch between steps."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .config import GPT2Config
from .lookup import MOST_DRAFTED, Lookup
from .model import GPT2, KVCache, padded_keys
from .request import Continuation, Request, Step, check, sampler, slid
from .sampling import token_logprob
from .tracing import Trace

__all__ = ["Continuation", "Meter", "Request", "Step", "by_room", "check", "generate"]

Logits = NDArray[np.float32]

MOST_ROWS = 32
MOST_CACHE_BYTES = 2**30
PREFILL_TOKENS = 512  # of all rows in one pass over prompts

# A pass takes as long as reading the weights, and a tenth of that more for every token of a row.
_TOKENS_PER_READ = 10


@dataclass
class Meter:
    """What the engine has done: tokens, passes, and the seconds spent inside passes."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    passes: int = 0
    pass_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


def generate(
    model: GPT2,
    requests: Sequence[Request],
    most_rows: int = MOST_ROWS,
    *,
    drafts: bool = True,
    meter: Meter | None = None,
) -> Iterator[Step]:
    """Write all the requests' texts, up to `most_rows` at a time, a step a token.

    Texts start in the order of their requests and take the place of those that ended. The reader
    may end a text with `Continuation.stop` before it asks for the next step. With `drafts`,
    tokens that the text itself suggests are checked in one pass; what is written is the same.
    Raises what `check` raises, before any work.
    """
    check(requests, model.config)
    waiting = deque(requests)
    batch = _Batch(model, requests, most_rows, drafts, meter or Meter())
    while waiting or batch.rows:
        room = batch.most_rows - len(batch.rows)
        if waiting and room:
            batch.add([_Row(model, waiting.popleft()) for _ in range(min(room, len(waiting)))])
        for row in batch.rows:
            yield from row.grow(batch.meter)
        batch.settle()
        batch.step()


def by_room(
    config: GPT2Config, requests: Iterable[Request], most_rows: int = MOST_ROWS
) -> list[list[Request]]:
    """The requests in groups to generate one after another, the longest prompts first.

    A batch has as many rows as its longest text leaves room for; a group holds no text that
    would more than halve the rows of another.
    """

    def rows(request: Request) -> int:
        fitting = _fitting_rows(config, _capacity(config, request))
        return min(fitting, most_rows).bit_length()

    ordered = sorted(requests, key=lambda request: (rows(request), -len(request.prompt)))
    return [list(group) for _, group in groupby(ordered, rows)]


def _capacity(config: GPT2Config, request: Request) -> int:
    """Tokens that a row's cache holds for a text."""
    longest = min(len(request.prompt) + request.max_new_tokens, config.n_positions)
    return padded_keys(longest + MOST_DRAFTED)  # its padding beside another's draft, at its end


def _fitting_rows(config: GPT2Config, capacity: int) -> int:
    return max(1, MOST_CACHE_BYTES // (8 * config.n_layer * config.n_embd * capacity))


class _Row:
    """A text in the making: its sampler, and the tokens that its cached window holds or will."""

    def __init__(self, model: GPT2, request: Request) -> None:
        self.continuation = Continuation(request)
        self.n_positions = model.config.n_positions
        self.window = list(request.prompt)
        self.slide_when_full()
        self.start = tuple(self.window)
        self.holds_start = True  # until the cache's window is another
        self.sampler = sampler(request, model.config.vocab_size)
        self.lookup: Lookup | None = None
        self.draft: list[int] = []
        self.start_logits = self.logits = np.empty((0, 0), np.float32)

    def grow(self, meter: Meter) -> Iterator[Step]:
        """Choose tokens from `logits` for as long as they are the ones that were drafted."""
        text = self.continuation
        meter.drafted += len(self.draft)
        for logits, guess in zip(self.logits, [*self.draft, None], strict=True):
            token = self._choose(logits)
            meter.accepted += token is not None and token == guess
            yield Step(text, token)
            if text.finish_reason is not None or token != guess:
                return

    def next_draft(self, price: float) -> list[int]:
        """What may follow the window's last token and can still be used."""
        request = self.continuation.request
        if self.lookup is None:
            self.lookup = Lookup(self.window)
        wanted = request.max_new_tokens - len(self.continuation.tokens)
        most = min(wanted, self.n_positions - len(self.window)) - 1
        return self.lookup.draft(most, price)

    def slide_when_full(self) -> bool:
        """Drop the older half of a full window; whether it did, so that it must be run again."""
        if len(self.window) < self.n_positions:
            return False
        self.window = slid(self.window, self.n_positions, self.continuation.request.keep)
        self.continuation.slid += 1
        self.holds_start = False
        return True

    def _choose(self, logits: Logits) -> int | None:
        """The next token, None where the text ends without one."""
        text, request = self.continuation, self.continuation.request
        if not request.max_new_tokens:
            text.finish_reason = "length"
            return None
        token = self._sample(logits)
        if token in request.end_ids:
            text.finish_reason = "eos"
            return None
        if request.logprobs is not None:
            text.logprobs.append(token_logprob(logits, token, request.logprobs))
        self._append(token)
        return token

    def _sample(self, logits: Logits) -> int:
        text = self.continuation
        if text.request.trace is None:
            return self.sampler.choose(logits)
        trace = Trace(self.sampler, logits, text.request.trace)
        token = self.sampler.choose(logits)
        text.choices.append(trace.choice(token))
        return token

    def _append(self, token: int) -> None:
        text, request = self.continuation, self.continuation.request
        text.tokens.append(token)
        self.window.append(token)
        if self.lookup is not None:
            self.lookup.append(token)
        if len(text.tokens) == request.max_new_tokens:
            text.finish_reason = "length"
        elif len(self.window) == self.n_positions and request.overflow != "slide":
            text.finish_reason = "context"


class _Batch:
    """The rows that run together; row i of the cache belongs to row i of the list."""

    def __init__(
        self, model: GPT2, requests: Sequence[Request], most_rows: int, drafts: bool, meter: Meter
    ) -> None:
        capacity = max((_capacity(model.config, request) for request in requests), default=1)
        fitting = _fitting_rows(model.config, capacity)
        self.model = model
        self.device = model.wpe.weight.device
        self.most_rows = max(1, min(most_rows, fitting, len(requests)))
        self.cache = KVCache.empty(model.config, self.most_rows, capacity, self.device)
        self.rows: list[_Row] = []
        self.drafts = drafts
        self.meter = meter

    def add(self, rows: Sequence[_Row]) -> None:
        """Run the first windows of new rows; equal ones once, the others are copies."""
        sources: dict[tuple[int, ...], int] = {}
        for place, row in enumerate(self.rows):
            if row.holds_start:
                sources[row.start] = place
        first = len(self.rows)
        new = {row.start: row for row in rows if row.start not in sources}
        self.rows += new.values()
        sources |= {start: place for place, start in enumerate(new, first)}
        if new:
            for row, logits in zip(new.values(), self._prefill([*new], first), strict=True):
                row.start_logits = logits
        for row in rows:
            source = sources[row.start]
            row.holds_start = True
            if self.rows[source] is not row:
                self.cache.copy_row(source, len(self.rows), len(row.start))
                row.start_logits = self.rows[source].start_logits
                self.rows.append(row)
            row.logits = row.start_logits

    def settle(self) -> None:
        """Close the gaps of ended rows with the last ones; forget what was run in vain."""
        for place in reversed(range(len(self.rows))):
            if self.rows[place].continuation.finish_reason is None:
                # the newest token is not in the cache yet, nor is any draft that was not taken
                self.cache.lengths[place] = len(self.rows[place].window) - 1
                continue
            last = self.rows.pop()
            if place < len(self.rows):
                self.rows[place] = last
                source = len(self.rows)
                self.cache.copy_row(source, place, int(self.cache.lengths[source]))

    def step(self) -> None:
        """One pass over the last token of every row and its draft, after rows that slid."""
        if not self.rows:
            return
        for place, row in enumerate(self.rows):
            if row.slide_when_full():
                self._run([row.window[:-1]], place)
        price = len(self.rows) / (len(self.rows) + _TOKENS_PER_READ)
        for row in self.rows:
            row.draft = row.next_draft(price) if self.drafts else []
        ids = [[row.window[-1], *row.draft] for row in self.rows]
        began = perf_counter()
        logits = self._logits(self._pass(ids, 0), [len(each) for each in ids])
        self.meter.passes += 1
        self.meter.pass_seconds += perf_counter() - began
        for row, own in zip(self.rows, logits, strict=True):
            row.logits = own

    def _prefill(self, prompts: Sequence[Sequence[int]], place: int) -> list[Logits]:
        """Run prompts from position 0 of the rows from `place`; the logits after each, [1, V]."""
        began = perf_counter()
        logits = self._logits(self._run(prompts, place)[:, None], [1] * len(prompts))
        self.meter.prompt_tokens += sum(map(len, prompts))
        self.meter.prompt_seconds += perf_counter() - began
        return logits

    def _run(self, prompts: Sequence[Sequence[int]], place: int) -> Tensor:
        """Run prompts in chunks from position 0; the hidden state after each, [B, C]."""
        self.cache.lengths[place : place + len(prompts)] = 0
        size = max(1, PREFILL_TOKENS // len(prompts))
        last = torch.empty(len(prompts), self.model.config.n_embd, device=self.device)
        for start in range(0, max(map(len, prompts)), size):
            parts = [prompt[start : start + size] for prompt in prompts]
            hidden = self._pass(parts, place)
            for row, part in enumerate(parts):
                if part:
                    last[row] = hidden[row, len(part) - 1]
        return last

    @torch.inference_mode()
    def _pass(self, ids: Sequence[Sequence[int]], place: int) -> Tensor:
        """Run the next ids of the rows from `place`; their hidden states, [B, T, C]."""
        counts = [len(each) for each in ids]
        longest = max(counts)
        padded = [[*each, *[0] * (longest - len(each))] for each in ids]
        cache = self.cache.rows(place, place + len(ids))
        return self.model.hidden(torch.tensor(padded, device=self.device), cache, counts)

    @torch.inference_mode()
    def _logits(self, hidden: Tensor, counts: Sequence[int]) -> list[Logits]:
        """Hidden states [B, T, C] → the logits of each row's first `counts` places, [n, V]."""
        used = torch.cat([row[:count] for row, count in zip(hidden, counts, strict=True)])
        logits: Logits = self.model.unembed(used).cpu().numpy()
        return np.split(logits, np.cumsum(counts)[:-1])
