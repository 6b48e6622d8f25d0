"""Figures of a comparison, against the same computed by hand and in numpy."""

import math

import numpy as np
import pytest
import torch

from gpt2cli.verification.comparison import Comparison, Report, Tolerance, compare

LN3 = math.log(3)
DEFAULT = Tolerance()


def logits(*positions: list[float]) -> torch.Tensor:
    """One row of logits [1, T, V]."""
    return torch.tensor([positions], dtype=torch.float64)


def test_figures_of_two_positions_computed_by_hand() -> None:
    # probabilities 1/4 and 3/4 that change places, and a position that agrees
    found = compare(logits([LN3, 0], [0, 1]), logits([0, LN3], [0, 1]), Tolerance(0.5, 1))
    assert found.positions == 2
    assert found.max_abs_diff == pytest.approx(LN3)
    assert found.max_abs_logprob_diff == pytest.approx(LN3)
    # (1/4 · -ln 3 + 3/4 · ln 3) and 0
    assert found.mean_kl == pytest.approx(LN3 / 2 / 2)
    assert found.argmax_agreement == 0.5
    # the bound of the reference 0 is 0.5 + 1 · 0
    assert found.tolerance_used == pytest.approx(LN3 / 0.5)


def test_figures_are_those_of_numpy() -> None:
    numbers = np.random.default_rng(0)
    reference = numbers.normal(0, 3, (2, 5, 7))
    ours = reference + numbers.normal(0, 1, reference.shape)
    logs = [x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (ours, reference)]
    logit, logprob = np.abs(ours - reference), np.abs(logs[0] - logs[1])
    bound = 0.1 + 0.2 * np.abs(reference)
    found = compare(torch.tensor(ours), torch.tensor(reference), Tolerance(0.1, 0.2))
    expected = Comparison(
        positions=10,
        max_abs_diff=logit.max(),
        max_abs_logprob_diff=logprob.max(),
        mean_kl=(np.exp(logs[1]) * (logs[1] - logs[0])).sum(-1).mean(),
        argmax_agreement=(ours.argmax(-1) == reference.argmax(-1)).mean(),
        tolerance_used=max((logit / bound).max(), (logprob / bound).max()),
    )
    assert vars(found) == pytest.approx(vars(expected))


@pytest.mark.parametrize(
    ("ours", "reference", "passed"),
    [
        ([0.5, 0.0], [0.0, 0.0], True),  # exactly the absolute part
        ([0.5625, 0.0], [0.0, 0.0], False),
        ([0.0, -6.5], [0.0, -4.0], True),  # the absolute part, and half of 4
        ([0.0, -6.5625], [0.0, -4.0], False),
    ],
)
def test_a_difference_passes_up_to_its_bound(
    ours: list[float], reference: list[float], passed: bool
) -> None:
    assert compare(logits(ours), logits(reference), Tolerance(0.5, 0.5)).passed is passed


def test_a_constant_on_a_positions_logits_moves_no_probability_and_fails() -> None:
    reference = logits([1, 2, 3], [4, 5, 7])
    found = compare(reference + torch.tensor([[[0.25], [0.0]]]), reference, DEFAULT)
    assert found.max_abs_diff == 0.25
    assert found.max_abs_logprob_diff == pytest.approx(0, abs=1e-12)
    assert found.mean_kl == pytest.approx(0, abs=1e-12)
    assert not found.passed


def test_a_log_probability_out_of_bounds_fails_where_every_logit_is_within() -> None:
    # a step of 1 of the large logit is within its own bound and beyond that of the small one
    found = compare(logits([101, 0]), logits([100, 0]), Tolerance(0.1, 0.01))
    assert found.max_abs_diff == 1
    assert found.max_abs_logprob_diff == pytest.approx(1)
    assert not found.passed


@pytest.mark.parametrize("side", ["ours", "reference"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("tolerance", [DEFAULT, Tolerance(1e30, 1e30)])
def test_nan_and_infinity_never_pass(side: str, value: float, tolerance: Tolerance) -> None:
    sides = {"ours": logits([0, 1], [2, 3]), "reference": logits([0, 1], [2, 3])}
    sides[side][0, 1, 1] = value
    assert not compare(**sides, tolerance=tolerance).passed


def test_nothing_compared_is_no_pass() -> None:
    assert not compare(torch.zeros(1, 0, 5), torch.zeros(1, 0, 5), DEFAULT).passed
    nothing = compare(torch.zeros(0, 3, 5), torch.zeros(0, 3, 5), DEFAULT)
    assert not Report("reference", "a", "b", nothing, (), DEFAULT).passed


def test_equal_logits_pass_where_no_difference_is_tolerated() -> None:
    same, exact = logits([0, 1, 2]), Tolerance(0, 0)
    assert compare(same, same.clone(), exact).tolerance_used == 0
    assert compare(same, same.clone(), exact).passed
    assert not compare(same, same.nextafter(same + 1), exact).passed
