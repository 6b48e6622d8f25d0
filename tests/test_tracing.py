"""What a trace says of each step, by hand and against the sampler's own draw."""

import math

import numpy as np
import pytest

from gpt2cli.sampling import Sampler, Sampling, generator
from gpt2cli.tracing import Choice, Trace

# Of eight tokens with probability ½, ¼, ⅛, … each step keeps some; the rest follows by hand.
LOGITS = np.log(np.array([2.0**-n for n in range(1, 8)] + [2.0**-7])).astype(np.float32)


def traced(options: Sampling, most: int = 2, seen: tuple[int, ...] = ()) -> Choice:
    sampler = Sampler(options, len(LOGITS), generator(0, [1], 0), seen)
    trace = Trace(sampler, LOGITS, most)
    return trace.choice(sampler.choose(LOGITS))


def test_each_step_that_is_on_is_named_in_its_order():
    options = Sampling(0.5, 4, 0.9, 0.1, 1.2, {3: 1.0})
    assert [stage.step for stage in traced(options).stages] == [
        "model",
        "logit bias",
        "repetition penalty 1.2",
        "temperature 0.5",
        "top-k 4",
        "top-p 0.9",
        "min-p 0.1",
    ]
    assert [stage.step for stage in traced(Sampling()).stages] == ["model", "temperature 1"]


def test_candidates_mass_entropy_and_likeliest_are_those_of_the_distribution():
    model, _, kept, nucleus = traced(Sampling(top_k=3, top_p=0.8)).stages
    assert (model.candidates, kept.candidates, nucleus.candidates) == (8, 3, 2)
    assert (model.mass, kept.mass) == (1, pytest.approx(7 / 8))
    assert nucleus.mass == pytest.approx(6 / 7)  # of what top-k left
    assert model.likeliest == ((0, pytest.approx(1 / 2)), (1, pytest.approx(1 / 4)))
    assert nucleus.likeliest == ((0, pytest.approx(2 / 3)), (1, pytest.approx(1 / 3)))
    halves = sum(n * 2.0**-n for n in range(1, 8)) + 7 * 2.0**-7
    assert model.entropy == pytest.approx(halves * math.log(2))
    assert nucleus.entropy == pytest.approx(math.log(3) - 2 / 3 * math.log(2))


def test_a_forbidden_token_is_gone_and_its_mass_with_it():
    _, biased, _ = traced(Sampling(logit_bias={0: -math.inf})).stages
    assert (biased.candidates, biased.mass) == (7, pytest.approx(1 / 2))
    assert biased.likeliest[0] == (1, pytest.approx(1 / 2))


def test_what_occurred_weighs_less_after_the_penalty():
    _, penalised, _ = traced(Sampling(repetition_penalty=2), seen=(0,)).stages
    # the logit ln ½ becomes ln ¼
    assert penalised.likeliest == ((0, pytest.approx(1 / 3)), (1, pytest.approx(1 / 3)))


def test_the_choice_carries_both_probabilities():
    choice = traced(Sampling(temperature=0))
    assert (choice.id, choice.probability) == (0, 1)
    assert choice.logprob == pytest.approx(math.log(1 / 2))
    assert choice.stages[-1].entropy == 0
    assert choice.stages[-1].candidates == 1


def test_a_trace_changes_nothing_of_what_is_chosen():
    options = Sampling(0.8, 5, 0.95, repetition_penalty=1.3)
    plain = Sampler(options, len(LOGITS), generator(7, [1], 0))
    watched = Sampler(options, len(LOGITS), generator(7, [1], 0))
    for _ in range(50):
        trace = Trace(watched, LOGITS, 1)
        chosen = watched.choose(LOGITS)
        assert chosen == plain.choose(LOGITS)
        assert trace.choice(chosen).probability > 0


def test_no_likeliest_are_named_where_none_are_asked_for():
    assert [stage.likeliest for stage in traced(Sampling(), most=0).stages] == [(), ()]
