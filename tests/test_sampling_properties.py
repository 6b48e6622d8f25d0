"""What the filters keep, by their definitions, and how often a token is drawn from what is left."""

import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt2cli.sampling import Candidates, Sampler, Sampling, generator, min_p, top_k, top_p

ROUNDING = 1e-12

# Few values, so that many are equal; some far below the others, so that their share is nothing.
LOGITS = st.lists(
    st.one_of(st.sampled_from([-900.0, -1.5, 0.0, 0.5, 2.0]), st.floats(-30, 30, width=32)),
    min_size=1,
    max_size=30,
)
SHARES = st.floats(0.001, 1)

many = settings(
    max_examples=int(os.environ.get("FUZZ", "0")) or 200,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def candidates(logits: list[float]) -> Candidates:
    return Candidates(np.arange(len(logits)), np.array(logits, dtype=np.float64))


def probabilities(logits: list[float]) -> list[float]:
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / math.fsum(weights) for weight in weights]


def best_first(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


@many
@given(LOGITS, st.integers(1, 40))
def test_top_k_keeps_the_k_best_in_the_order_of_ids(logits: list[float], k: int) -> None:
    kept = top_k(k)(candidates(logits))
    assert kept.ids.tolist() == sorted(best_first(logits)[:k])
    assert kept.logits.tolist() == [logits[token] for token in kept.ids]


@many
@given(LOGITS, SHARES)
def test_top_p_keeps_the_shortest_beginning_that_reaches_p(logits: list[float], p: float) -> None:
    kept = top_p(p)(candidates(logits)).ids.tolist()
    shares, order = probabilities(logits), best_first(logits)[: len(kept)]
    assert kept == sorted(order)
    assert math.fsum(shares[token] for token in order) >= p - ROUNDING
    assert math.fsum(shares[token] for token in order[:-1]) < p + ROUNDING


@many
@given(LOGITS, SHARES)
def test_min_p_keeps_what_has_that_share_of_the_largest(logits: list[float], share: float) -> None:
    kept = {*min_p(share)(candidates(logits)).ids.tolist()}
    shares = probabilities(logits)
    for token, probability in enumerate(shares):
        relative = probability / max(shares)
        assert token in kept or relative < share + ROUNDING
        assert token not in kept or relative > share - ROUNDING


OPTIONS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 3.0]),
    top_k=st.none() | st.integers(1, 40),
    top_p=st.none() | SHARES,
    min_p=st.none() | st.floats(0, 1),
    repetition_penalty=st.none() | st.floats(1, 5),
)


@many
@given(LOGITS, OPTIONS)
def test_something_is_always_left_and_its_probabilities_sum_to_1(
    logits: list[float], options: Sampling
) -> None:
    row = np.array(logits, dtype=np.float32)
    sampler = Sampler(options, len(row), generator(0, [], 0), seen=[0])
    before = {*range(len(row))}
    for _, left in sampler.stages(row):
        weights = left.weights()
        assert (weights / weights.sum()).sum() == pytest.approx(1, abs=ROUNDING)
        assert {*left.ids.tolist()} <= before
        before = {*left.ids.tolist()}
    assert sampler.choose(row) in before


@pytest.mark.parametrize(
    "options",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(top_k=5),
        Sampling(top_p=0.8),
        Sampling(min_p=0.1),
        Sampling(repetition_penalty=1.7),
        Sampling(logit_bias={1: 2.0, 3: -math.inf}),
        Sampling(temperature=1.4, top_k=7, top_p=0.9, min_p=0.05),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_their_probabilities_say(options: Sampling) -> None:
    logits = np.array([1.2, 0.3, 2.0, 1.9, -0.5, 0.0, 0.9, -1.1, 1.5, 0.2], dtype=np.float32)
    draws = 200_000 if os.environ.get("FUZZ") else 20_000
    numbers = generator(5, [1, 2, 3], 0)
    chosen = [Sampler(options, 10, numbers, seen=[2]).choose(logits) for _ in range(draws)]
    expected = by_definition(options, logits.astype(float).tolist(), seen=2)
    counts = np.bincount(chosen, minlength=10)
    assert counts[expected == 0].sum() == 0
    left = expected > 0
    found, due = counts[left], draws * expected[left]
    freedom = left.sum() - 1
    # Wilson and Hilferty 1931: the cube root of chi-square over its freedom is nearly normal.
    cube_root = (((found - due) ** 2 / due).sum() / freedom) ** (1 / 3)
    deviate = (cube_root - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert deviate < 3.09  # exceeded once in a thousand seeds


def by_definition(options: Sampling, logits: list[float], seen: int) -> np.ndarray:
    """The probability of each token, 0 where a filter leaves it out."""
    values = [logit + options.logit_bias.get(token, 0.0) for token, logit in enumerate(logits)]
    values[seen] /= options.repetition_penalty or 1  # it is positive
    values = [value / options.temperature for value in values]
    left = best_first(values)[: options.top_k]
    if options.top_p is not None:
        shares = probabilities([values[token] for token in left])
        sums = [math.fsum(shares[:n]) for n in range(len(left))]
        left = [token for token, before in zip(left, sums, strict=True) if before < options.top_p]
    largest = max(values[token] for token in left)
    floor = options.min_p or 0
    left = [token for token in left if math.exp(values[token] - largest) >= floor]
    result = np.zeros(len(values))
    result[left] = probabilities([values[token] for token in left])
    return result
