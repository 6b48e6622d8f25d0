"""Logits → one token id: the filters in their stated order, and the draw.

Everything is float64 on the CPU, one row at a time, so a choice depends on nothing but the row's
own logits and its seed: not on threads, not on what is computed beside it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from .arguments import Number, check_bias, hold
from .errors import GPT2Error

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_NUMBERS = {
    "temperature": Number(Real, 0),
    "top_k": Number(Integral, 1, optional=True),
    "top_p": Number(Real, 0, 1, above=True, optional=True),
    "min_p": Number(Real, 0, 1, optional=True),
    "repetition_penalty": Number(Real, 1, optional=True),
}


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; None is off.

    The order is logit bias, repetition penalty, temperature, top-k, top-p, min-p; OpenAI's
    src/sample.py has the same order for the three it knows. `temperature` 0 takes the largest
    logit, the lowest id on ties, and the filters after it have no effect. `top_k` keeps exactly k
    (ties: lowest id). `top_p` keeps the token that crosses p (Holtzman et al. 2020, section 3.1),
    where OpenAI's sample.py drops it. `min_p` keeps what has at least that share of the largest
    probability. `repetition_penalty` divides positive and multiplies negative logits of tokens in
    the prompt and the continuation (CTRL, Keskar et al. 2019, section 4.1). `logit_bias` is added,
    and −inf forbids a token. Raises ValueError for a number that is out of its range, and
    TypeError for what is no number.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold each number to its range."""
        hold(self, _NUMBERS)
        check_bias("logit_bias", self.logit_bias)


@dataclass(frozen=True)
class Candidates:
    """Tokens that may still be drawn: ids in ascending order, and the logit of each."""

    ids: Ids
    logits: Floats

    def only(self, kept: NDArray[np.bool_] | Ids) -> "Candidates":
        """Those at the given places."""
        return Candidates(self.ids[kept], self.logits[kept])

    def weights(self) -> Floats:
        """Probabilities relative to the largest, which is 1."""
        weights: Floats = np.exp(self.logits - self.logits.max())
        return weights


Filter = Callable[[Candidates], Candidates]


def top_k(k: int) -> Filter:
    """Keep exactly the k largest, the lowest ids among equals."""

    def apply(candidates: Candidates) -> Candidates:
        if k >= len(candidates.ids):
            return candidates
        threshold = np.partition(candidates.logits, -k)[-k]
        above = np.flatnonzero(candidates.logits > threshold)
        level = np.flatnonzero(candidates.logits == threshold)[: k - len(above)]
        return candidates.only(np.sort(np.concatenate([above, level])))

    return apply


def top_p(p: float) -> Filter:
    """Keep the most probable tokens up to and including the one at which their sum reaches p."""

    def apply(candidates: Candidates) -> Candidates:
        weights = candidates.weights()
        goal = p * weights.sum()
        for most in (512, 8192, len(weights)):  # few are enough as a rule, and soon sorted
            order = _best_first(candidates.logits, most)
            mass = np.cumsum(weights[order])
            if mass[-1] >= goal:
                break
        crossing = int(np.searchsorted(mass, goal))
        return candidates.only(np.sort(order[: crossing + 1]))

    return apply


def _best_first(logits: Floats, most: int) -> Ids:
    """The places of the `most` largest and of the last one's equals: by size, then by place."""
    places = np.arange(len(logits))
    if most < len(logits):
        places = np.flatnonzero(logits >= np.partition(logits, -most)[-most])
    return places[np.argsort(-logits[places], kind="stable")]


def min_p(share: float) -> Filter:
    """Keep the tokens with at least `share` of the largest probability."""
    return lambda candidates: candidates.only(candidates.weights() >= share)


def filters(options: Sampling) -> dict[str, Filter]:
    """The filters after temperature, in their order, each under its name and number."""
    chosen: dict[str, Filter] = {}
    if options.top_k:
        chosen[f"top-k {options.top_k}"] = top_k(options.top_k)
    if options.top_p is not None and options.top_p < 1:
        chosen[f"top-p {options.top_p:g}"] = top_p(options.top_p)
    if options.min_p:
        chosen[f"min-p {options.min_p:g}"] = min_p(options.min_p)
    return chosen


def not_finite() -> GPT2Error:
    """The error for logits of which one is NaN or infinite."""
    return GPT2Error("the model computed a logit that is NaN or infinite; check its weights")


def generator(seed: int, prompt: Sequence[int], sample: int) -> np.random.Generator:
    """The numbers of one text: they follow from the seed, the prompt's ids and the sample's index.

    So a prompt has the same text in any batch, in any file and on any line of it.
    """
    key = f"{seed}/{sample}/{','.join(map(str, prompt))}".encode()
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(key).digest())))


class Sampler:
    """Chooses the tokens of one text, one after another."""

    def __init__(
        self,
        options: Sampling,
        vocab_size: int,
        numbers: np.random.Generator,
        seen: Iterable[int] = (),
        never: Iterable[int] = (),
    ) -> None:
        """`seen` are the prompt's ids; `never` are ids that stand for nothing.

        Raises GPT2Error when the bias forbids everything or names an id outside the vocabulary.
        """
        self.options = options
        self.numbers = numbers
        self.ids = np.arange(vocab_size)
        self.seen = np.zeros(vocab_size, dtype=np.bool_)
        self.seen[list(seen)] = True
        self.bias = _bias(options.logit_bias, vocab_size, never)
        self.filters = filters(options)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The next token id, from the model's logits [V]; GPT2Error when one is NaN or infinite."""
        if not np.isfinite(logits).all():
            raise not_finite()
        *_, (_, candidates) = self.stages(logits)
        chosen = self._draw(candidates)
        self.seen[chosen] = True
        return chosen

    def stages(self, logits: NDArray[np.float32]) -> Iterator[tuple[str, Candidates]]:
        """What may be drawn: as the model has it, then after each step that is on, by its name."""
        options, adjusted = self.options, logits.astype(np.float64)
        yield "model", Candidates(self.ids, adjusted)
        if self.bias is not None:
            adjusted = adjusted + self.bias
            yield "logit bias", Candidates(self.ids, adjusted)
        if options.repetition_penalty is not None and options.repetition_penalty != 1:
            adjusted = self._penalised(adjusted, options.repetition_penalty)
            name = f"repetition penalty {options.repetition_penalty:g}"
            yield name, Candidates(self.ids, adjusted)
        candidates = self._tempered(adjusted)
        yield f"temperature {options.temperature:g}", candidates
        if options.temperature:
            for name, apply in self.filters.items():
                candidates = apply(candidates)
                yield name, candidates

    def _penalised(self, logits: Floats, penalty: float) -> Floats:
        """Logits of which those of tokens that occurred are weakened."""
        with np.errstate(over="ignore"):  # a huge penalty forbids what occurred
            weakened = np.where(logits < 0, logits * penalty, logits / penalty)
        logits = np.where(self.seen, weakened, logits)
        if np.isneginf(logits).all():
            raise GPT2Error("bias and repetition penalty leave no token; lower the penalty")
        return logits

    def _tempered(self, logits: Floats) -> Candidates:
        """What the temperature leaves: with 0 the first of the largest."""
        if self.options.temperature == 0:
            return Candidates(self.ids, logits).only(np.array([logits.argmax()]))
        with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to -inf
            scaled = (logits - logits.max()) / self.options.temperature
        candidates, left = Candidates(self.ids, scaled), scaled > -np.inf
        return candidates if left.all() else candidates.only(left)

    def _draw(self, candidates: Candidates) -> int:
        if self.options.temperature == 0:  # which takes no number
            return int(candidates.ids[0])
        mass = np.cumsum(candidates.weights())
        place = np.searchsorted(mass, self.numbers.random() * mass[-1], side="right")
        last = np.searchsorted(mass, mass[-1])  # where rounding reaches the sum itself
        return int(candidates.ids[min(place, last)])


def _bias(bias: Mapping[int, float], vocab_size: int, never: Iterable[int]) -> Floats | None:
    """The bias as a row [V], None when there is none."""
    outside = [token for token in bias if not 0 <= token < vocab_size]
    if outside:
        raise GPT2Error(f"the logit bias names token {outside[0]}, outside 0 to {vocab_size - 1}")
    row = np.zeros(vocab_size)
    row[list(bias)] = list(bias.values())
    row[list(never)] = -np.inf
    if np.isneginf(row).all():
        raise GPT2Error("the logit bias forbids every token; allow at least one")
    return row if row.any() else None


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logs of the model's own probabilities: of the chosen id and the likeliest ones."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprob(logits: NDArray[np.float32], chosen: int, most: int) -> TokenLogprob:
    """The log-probability of `chosen` and of the `most` likeliest ids, largest first."""
    shifted = logits.astype(np.float64) - logits.max()
    logprobs = shifted - np.log(np.exp(shifted).sum())
    everything = Candidates(np.arange(len(logprobs)), logprobs)
    likeliest = top_k(most)(everything).ids.tolist() if most else []
    best = sorted(likeliest, key=lambda token: (-logprobs[token], token))
    top = tuple((token, float(logprobs[token])) for token in best)
    return TokenLogprob(chosen, float(logprobs[chosen]), top)
