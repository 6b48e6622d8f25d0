"""Log-probabilities of given ids, read through windows that overlap."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .generation import PREFILL_TOKENS
from .model import GPT2, KVCache
from .sampling import TokenLogprob, not_finite

UNEMBED_ROWS = 64  # positions whose logits are held at a time: 25 MB in float64 at GPT-2's size


@dataclass(frozen=True)
class Window:
    """Tokens `start` to before `stop`, read together; those before `new` are context alone."""

    start: int
    new: int
    stop: int

    @property
    def scored(self) -> range:
        """The new tokens that follow another one of the window."""
        return range(max(self.new, self.start + 1), self.stop)


def windows(n_tokens: int, size: int, stride: int) -> list[Window]:
    """The windows that a text of `n_tokens` is read through, `size` tokens each.

    They begin at 0, stride, 2·stride, … and the first that reaches the end of the text is the
    last; a token is new to the first window that holds it. So the first window scores all its
    tokens but one, and each later one its last `stride`, which see at least size − stride tokens
    before them. With a stride of `size` no two windows overlap, and the first token of each is
    not scored. These are the windows of "Perplexity of fixed-length models" in the documentation
    of transformers (https://huggingface.co/docs/transformers/perplexity).

    Raises ValueError unless `size` is at least 2, and `stride` from 1 to `size`.
    """
    if size < 2 or not 1 <= stride <= size:
        raise ValueError(f"no windows of {size} tokens, {stride} apart, score every text")
    found: list[Window] = []
    new = 0
    for start in range(0, n_tokens, stride):
        found.append(Window(start, new, min(start + size, n_tokens)))
        new = found[-1].stop
        if new == n_tokens:
            break
    return found


def score(
    model: GPT2, ids: Sequence[int], size: int, stride: int, most: int = 0
) -> Iterator[TokenLogprob | None]:
    """The log-probability of each of `ids`, in order, after the tokens before it in its window.

    None stands for a token that is not scored, as it begins its window: the first of all, and with
    a `stride` of `size` (see `windows`) the first of each. `most` asks for that many of the
    likeliest ids in each place. Natural logs, in float64 from the model's logits. Raises
    ValueError for what `windows` refuses, a `size` past n_positions and ids outside the
    vocabulary, and GPT2Error when a logit is NaN or infinite.
    """
    config = model.config
    if size > config.n_positions or not all(0 <= token < config.vocab_size for token in ids):
        raise ValueError(f"the model has {config.n_positions} positions, {config.vocab_size} ids")
    every = windows(len(ids), size, stride)
    rows = max(1, PREFILL_TOKENS // size)
    shape = min(rows, len(every)), min(size, len(ids))
    cache = KVCache.empty(config, *shape, model.wpe.weight.device)
    for first in range(0, len(every), rows):
        yield from _score(model, ids, every[first : first + rows], cache, most)


def _score(
    model: GPT2, ids: Sequence[int], group: Sequence[Window], cache: KVCache, most: int
) -> Iterator[TokenLogprob | None]:
    """The new tokens of windows that are read side by side."""
    hidden = _hidden(model, [ids[window.start : window.stop] for window in group], cache)
    states = torch.cat([_before(window, row) for window, row in zip(group, hidden, strict=True)])
    targets = [ids[token] for window in group for token in window.scored]
    scores = _logprobs(model, states, targets, most)
    for window in group:
        for token in range(window.new, window.stop):
            yield None if token == window.start else next(scores)


def _before(window: Window, hidden: Tensor) -> Tensor:
    """The states [n, C] that say what each scored token will be: those of the tokens before."""
    return hidden[window.scored.start - 1 - window.start : window.stop - 1 - window.start]


@torch.inference_mode()
def _hidden(model: GPT2, rows: Sequence[Sequence[int]], cache: KVCache) -> Tensor:
    """The hidden states of texts that begin at position 0, [B, T, C]; the shorter are padded."""
    longest = max(map(len, rows))
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    ids = torch.tensor(padded, device=model.wpe.weight.device)
    cache = cache.rows(0, len(rows))
    cache.lengths[:] = 0
    parts = torch.split(ids, max(1, PREFILL_TOKENS // len(rows)), dim=1)
    return torch.cat([model.hidden(part, cache) for part in parts], dim=1)


def _logprobs(
    model: GPT2, states: Tensor, targets: Sequence[int], most: int
) -> Iterator[TokenLogprob]:
    """What the model says after states [N, C], of the targets [N] and of the likeliest ids."""
    for start in range(0, len(targets), UNEMBED_ROWS):
        part = slice(start, start + UNEMBED_ROWS)
        yield from _chunk(model, states[part], targets[part], most)


@torch.inference_mode()
def _chunk(model: GPT2, states: Tensor, targets: Sequence[int], most: int) -> list[TokenLogprob]:
    logits = model.unembed(states)
    low, high = torch.aminmax(logits)
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise not_finite()
    logits = (logits.cpu() if logits.device.type == "mps" else logits).double()  # mps has none
    totals = logits.logsumexp(1, keepdim=True)
    chosen = logits.gather(1, torch.tensor(targets, device=logits.device)[:, None]) - totals
    values, ids = logits.topk(min(most, logits.shape[1]))
    tops = zip(ids.tolist(), (values - totals).tolist(), strict=True)
    return [
        TokenLogprob(target, logprob, tuple(zip(*top, strict=True)))
        for target, logprob, top in zip(targets, chosen[:, 0].tolist(), tops, strict=True)
    ]


@dataclass(frozen=True)
class Total:
    """The log-probability of a text's scored tokens together, in nats, and how many they are."""

    logprob: float
    scored: int

    @classmethod
    def of(cls, scores: Iterable[TokenLogprob | None]) -> "Total":
        """The sum over the tokens that have a score."""
        logprobs = [each.logprob for each in scores if each is not None]
        return cls(math.fsum(logprobs), len(logprobs))

    def nats(self, units: int) -> float:
        """The surprisal, −log-probability, that falls to each of so many units."""
        return -self.logprob / units

    def bits(self, units: int) -> float:
        """The same in bits."""
        return self.nats(units) / math.log(2)

    @property
    def perplexity(self) -> float:
        """E to the mean surprisal of a scored token; infinite past the largest float."""
        try:
            return math.exp(self.nats(self.scored))
        except OverflowError:
            return math.inf
