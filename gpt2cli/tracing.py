"""How one token came to be chosen: what each step of sampling left to draw from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sampling import Candidates, Floats, Sampler, token_logprob, top_k


@dataclass(frozen=True)
class Stage:
    """What may be drawn after one step.

    `step` is its name, ``model`` before any; `candidates` is how many tokens may still be drawn,
    `mass` what share of the probability before this step they hold, `entropy` that of their
    distribution in nats, and `likeliest` its first ids with their probabilities.
    """

    step: str
    candidates: int
    mass: float
    entropy: float
    likeliest: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Choice:
    """A token that was chosen, `probability` that with which it was drawn in the end.

    `logprob` is the natural log of the model's own probability, before any step.
    """

    id: int
    logprob: float
    probability: float
    stages: tuple[Stage, ...]


class Trace:
    """The steps between a row of logits [V] and a token; made before the token is chosen."""

    def __init__(self, sampler: Sampler, logits: NDArray[np.float32], most: int) -> None:
        """Stages name the `most` likeliest tokens."""
        self._logits = logits
        self._most = most
        self._rows = {step: _spread(each, len(logits)) for step, each in sampler.stages(logits)}

    def choice(self, token: int) -> Choice:
        """What there is to say of `token`, which was chosen."""
        rows = list(self._rows.values())
        stages = tuple(
            _stage(step, row, before, self._most)
            for (step, row), before in zip(self._rows.items(), [rows[0], *rows], strict=False)
        )
        logprob = token_logprob(self._logits, token, 0).logprob
        return Choice(token, logprob, float(rows[-1][token]), stages)


def _spread(candidates: Candidates, vocab_size: int) -> Floats:
    """The probability of every token [V], 0 for those that may not be drawn."""
    row = np.zeros(vocab_size)
    weights = candidates.weights()
    row[candidates.ids] = weights / weights.sum()
    return row


def _stage(step: str, row: Floats, before: Floats, most: int) -> Stage:
    left = np.flatnonzero(row)
    shares = row[left]
    likeliest = top_k(most)(Candidates(left, shares)) if most else Candidates(left[:0], shares[:0])
    order = np.lexsort((likeliest.ids, -likeliest.logits))
    return Stage(
        step,
        len(left),
        float(before[left].sum()),
        float(-(shares * np.log(shares)).sum()) + 0.0,
        tuple((int(likeliest.ids[i]), float(likeliest.logits[i])) for i in order),
    )
