"""The filters and the draw, against a plain reimplementation and by hand."""

import math
import random

import numpy as np
import pytest
import torch

from gpt2cli.errors import GPT2Error
from gpt2cli.sampling import Candidates, Sampler, Sampling, filters, generator, token_logprob


class Fixed:
    """A generator of one number."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.asked = 0

    def random(self) -> float:
        self.asked += 1
        return self.number


LOWEST, HIGHEST = Fixed(0.0), Fixed(1 - 2**-53)


def row(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


def kept(options: Sampling, probabilities: list[float]) -> list[int]:
    """The ids that the filters leave of a distribution."""
    logits = np.log(np.array(probabilities))
    candidates = Candidates(np.arange(len(logits)), logits)
    for apply in filters(options).values():
        candidates = apply(candidates)
    return candidates.ids.tolist()


def choice(options: Sampling, logits: np.ndarray, numbers=LOWEST, **more) -> int:
    return Sampler(options, len(logits), numbers, **more).choose(logits)


# A plain reimplementation: a table of tokens, and a walk through it


def weights(values: dict[int, float]) -> dict[int, float]:
    largest = max(values.values())
    return {token: math.exp(value - largest) for token, value in values.items()}


def by_hand(options: Sampling, logits: list[float], seen: set[int], number: float) -> int:
    values = {token: value + options.logit_bias.get(token, 0) for token, value in enumerate(logits)}
    for token in seen:
        penalty = options.repetition_penalty or 1
        values[token] *= penalty if values[token] < 0 else 1 / penalty
    values = {t: v / options.temperature for t, v in values.items() if v > -math.inf}
    best_first = sorted(values, key=lambda token: (-values[token], token))
    best_first = best_first[: options.top_k or len(best_first)]
    shares = weights({token: values[token] for token in best_first})
    most, sum_so_far = (options.top_p or 1) * sum(shares.values()), 0.0
    nucleus = []
    for token in best_first:
        if sum_so_far < most or not nucleus:
            nucleus.append(token)
        sum_so_far += shares[token]
    left = sorted(token for token in nucleus if shares[token] >= (options.min_p or 0))
    aim = number * sum(shares[token] for token in left)
    for token in left:
        aim -= shares[token]
        if aim < 0:
            break
    return token


def test_every_choice_is_the_one_of_a_plain_reimplementation():
    chance = random.Random(0)
    for _ in range(600):
        size = chance.randrange(2, 40)
        options = Sampling(
            temperature=chance.choice([0.3, 1.0, 1.7]),
            top_k=chance.choice([None, 1, 3, 10, 99]),
            top_p=chance.choice([None, 0.2, 0.7, 0.95, 1.0]),
            min_p=chance.choice([None, 0.0, 0.05, 0.4]),
            repetition_penalty=chance.choice([None, 1.0, 1.4, 3.0]),
            logit_bias={
                chance.randrange(1, size): chance.choice([-math.inf, -2.0, 2.5]) for _ in range(4)
            },
        )
        seen = set(chance.choices(range(size), k=3))
        numbers, same = generator(1, [2], 3), generator(1, [2], 3)
        sampler = Sampler(options, size, numbers, seen)
        for _ in range(4):
            logits = [chance.gauss(0, 3) for _ in range(size)]
            logits = np.array(logits, dtype=np.float32)
            expected = by_hand(options, logits.astype(float).tolist(), seen, same.random())
            assert sampler.choose(logits) == expected, options
            seen.add(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 2},
        {"repetition_penalty": 0.9},
        {"logit_bias": {0: math.inf}},
        {"logit_bias": {0: math.nan}},
    ],
    ids=str,
)
def test_a_number_out_of_its_range_is_a_callers_mistake(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        Sampling(**wrong)


# The filters, one by one


@pytest.mark.parametrize(
    ("k", "left"),
    [(1, [1]), (2, [0, 1]), (3, [0, 1, 3]), (4, [0, 1, 3, 4]), (9, [0, 1, 2, 3, 4])],
)
def test_top_k_keeps_exactly_k_and_the_lowest_ids_of_equals(k, left):
    probabilities = [0.2, 0.3, 0.1, 0.2, 0.2]
    assert kept(Sampling(top_k=k), probabilities) == left


@pytest.mark.parametrize(
    ("p", "probabilities", "left"),
    [
        (0.8, [0.4, 0.3, 0.2, 0.1], 3),  # 0.4 + 0.3 is short of it
        (0.9, [0.5, 0.41, 0.09], 2),  # crossed by the second
        (0.5, [0.5, 0.25, 0.25], 1),  # reached exactly
        (0.75, [0.5, 0.25, 0.25], 2),  # among equals the lowest id
        (1e-9, [0.5, 0.3, 0.2], 1),  # never none
        (1.0, [0.5, 0.5 - 1e-12, 1e-12], 3),
        (None, [0.5, 0.5 - 1e-12, 1e-12], 3),
    ],
)
def test_top_p_keeps_the_token_that_crosses_p(p, probabilities, left):
    assert kept(Sampling(top_p=p), probabilities) == list(range(left))


@pytest.mark.parametrize(
    ("share", "left"), [(0.5, [0, 1]), (0.51, [0]), (0.26, [0, 1]), (1.0, [0]), (0.0, [0, 1, 2])]
)
def test_min_p_is_a_share_of_the_largest_probability(share, left):
    assert kept(Sampling(min_p=share), [0.5, 0.25, 0.125]) == left


def test_top_p_measures_what_top_k_left_and_min_p_the_temperature():
    # of 0.4 and 0.3 the first is 0.57, of all three it is short of 0.5
    assert kept(Sampling(top_k=2, top_p=0.5), [0.4, 0.3, 0.3]) == [0]
    assert kept(Sampling(top_p=0.5), [0.4, 0.3, 0.3]) == [0, 1]
    logits = row(0, math.log(0.5))  # at half the temperature the second has a quarter
    assert choice(Sampling(temperature=0.5, min_p=0.3), logits, HIGHEST) == 0
    assert choice(Sampling(temperature=0.5, min_p=0.2), logits, HIGHEST) == 1


def test_the_penalty_multiplies_negative_logits_and_divides_positive_ones():
    penalty = Sampling(temperature=0, repetition_penalty=2.0)
    assert choice(penalty, row(3, 2), seen=[0]) == 1  # 1.5 against 2
    assert choice(penalty, row(-1, -1.5), seen=[0]) == 1  # -2 against -1.5
    assert choice(penalty, row(-1, -3), seen=[0]) == 0
    assert choice(Sampling(temperature=0, repetition_penalty=1.0), row(3, 2.9), seen=[0]) == 0


def test_the_penalty_counts_the_prompt_and_what_was_chosen():
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=2.0), 3, LOWEST, seen=[2])
    assert [sampler.choose(row(4, 3, 5)) for _ in range(3)] == [0, 1, 2]


def test_the_bias_comes_before_the_penalty():
    options = Sampling(temperature=0, repetition_penalty=2.0, logit_bias={0: 3.0})
    # (1 + 3) / 2 is less than 2.5, 1 / 2 + 3 would be more
    assert choice(options, row(1, 2.5), seen=[0]) == 1


def test_a_bias_of_minus_infinity_forbids_a_token_at_any_temperature():
    for temperature in (0.0, 1.0):
        options = Sampling(temperature=temperature, logit_bias={0: -math.inf})
        assert choice(options, row(50, 0, -9)) == 1


@pytest.mark.parametrize("never", [(), (1, 2)])
def test_forbidding_everything_is_refused(never):
    ids = {0, 1, 2} - {*never}
    with pytest.raises(GPT2Error, match="forbids every token"):
        Sampler(Sampling(logit_bias=dict.fromkeys(ids, -math.inf)), 3, LOWEST, never=never)


@pytest.mark.parametrize("token", [-1, 3])
def test_a_bias_on_no_token_is_refused(token):
    with pytest.raises(GPT2Error, match=f"token {token}, outside 0 to 2"):
        Sampler(Sampling(logit_bias={token: 1.0}), 3, LOWEST)


def test_a_penalty_that_leaves_nothing_is_refused():
    options = Sampling(repetition_penalty=1e308, logit_bias={0: -math.inf})
    with pytest.raises(GPT2Error, match="leave no token"):
        choice(options, row(0, -5, -6), seen=[1, 2])


# Greedy


def test_temperature_0_takes_the_lowest_of_the_largest_whatever_the_filters():
    options = Sampling(temperature=0, top_k=1, top_p=0.01, min_p=1.0)
    for chosen in (options, Sampling(temperature=0)):
        numbers = Fixed(0.99)
        assert choice(chosen, row(1, 7, 7, 2), numbers) == 1
        assert numbers.asked == 0
    assert choice(Sampling(top_k=1), row(*[2.0] * 9), HIGHEST) == 0


def test_a_tiny_temperature_is_greedy_too():
    assert choice(Sampling(temperature=5e-324), row(1, 7, 2), HIGHEST) == 1


# The draw


def test_a_token_takes_one_number():
    numbers = Fixed(0.5)
    sampler = Sampler(Sampling(top_k=3, top_p=0.9), 5, numbers)
    for _ in range(7):
        sampler.choose(row(1, 2, 3, 4, 5))
    assert numbers.asked == 7


@pytest.mark.parametrize(
    ("number", "chosen"), [(0.0, 1), (0.24, 1), (0.26, 2), (0.74, 2), (0.76, 4), (1 - 2**-53, 4)]
)
def test_the_number_falls_into_the_running_sum_in_the_order_of_ids(number, chosen):
    logits = row(-1e9, math.log(0.25), math.log(0.5), -1e9, math.log(0.25), -1e9)
    assert choice(Sampling(), logits, Fixed(number)) == chosen


def test_frequencies_are_the_probabilities():
    probabilities = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])
    sampler = Sampler(Sampling(), 5, generator(0, [1, 2, 3], 0))
    draws = 8000
    logits = np.log(probabilities).astype(np.float32)
    counts = np.bincount([sampler.choose(logits) for _ in range(draws)], minlength=5)
    expected = draws * probabilities
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 18.47  # 4 degrees of freedom: exceeded once in a thousand seeds


def test_the_numbers_follow_from_seed_prompt_and_sample_and_nothing_else():
    texts = [
        (0, (1, 2), 0),
        (1, (1, 2), 0),
        (0, (1, 2), 1),
        (0, (12,), 0),
        (0, (2, 1), 0),
        (2**63 - 1, (1, 2), 0),
        (1, (11,), 1),
        (11, (1,), 1),
        (1, (1,), 11),
    ]
    first = [generator(*text).random(4).tolist() for text in texts]
    np.random.seed(5)
    assert first == [generator(seed, list(ids), i).random(4).tolist() for seed, ids, i in texts]
    assert len({number for numbers in first for number in numbers}) == 4 * len(texts)


# What must never be drawn


@pytest.mark.parametrize(
    ("vocabulary", "rows"), [pytest.param(50257, 50304, id="padded GPT-2"), (5, 8)]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0, 9.0])
def test_ids_past_the_vocabulary_are_never_sampled(vocabulary, rows, temperature):
    logits = np.zeros(rows, np.float32)
    logits[vocabulary:] = 1e30
    options = Sampling(temperature=temperature, logit_bias={vocabulary: 1e300})
    for number in (0.0, 0.5, 1 - 2**-53):
        never = range(vocabulary, rows)
        assert choice(options, logits, Fixed(number), never=never) < vocabulary


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_logit_that_is_no_number_is_an_error(bad, temperature):
    with pytest.raises(GPT2Error, match="NaN or infinite"):
        choice(Sampling(temperature=temperature, top_k=1), row(0, bad, 9))


# Log-probabilities


def test_logprobs_are_the_log_softmax_and_the_best_come_first():
    logits = np.random.default_rng(0).normal(0, 9, 50).astype(np.float32)
    logits[[7, 30]] = logits.max() + 1
    expected = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    found = token_logprob(logits, 3, 4)
    assert found.id == 3
    assert found.logprob == pytest.approx(expected[3].item(), abs=1e-12)
    assert [token for token, _ in found.top[:2]] == [7, 30]
    assert [logprob for _, logprob in found.top] == pytest.approx(
        expected.sort(descending=True).values[:4].tolist(), abs=1e-12
    )
    assert token_logprob(logits, 3, 0).top == ()
    assert len(token_logprob(logits, 3, 99).top) == 50
