"""Drafts from the text itself: the right ones, few where they fail, many where they hold."""

import random

import pytest

from gpt2cli.lookup import MOST_DRAFTED, Lookup

PRICE = 0.1


def guess(tokens: list[int]) -> int | None:
    """What followed the last tokens the last time: three of them, else two; counted naively."""
    for length in (3, 2):
        run = tokens[-length:]
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == run:
                return tokens[start + length]
    return None


def test_a_first_guess_is_what_followed_the_same_tokens_the_last_time():
    numbers = random.Random(1)
    for _ in range(300):
        tokens = [numbers.randrange(6) for _ in range(numbers.randrange(3, 30))]
        lookup = Lookup(tokens)
        if lookup.matched <= 3:  # a longer run that still holds is followed instead
            assert lookup.draft(1, 0.0) == ([] if guess(tokens) is None else [guess(tokens)])


def test_a_run_that_holds_is_followed_past_its_length():
    text = [*range(100, 130), 7, 8, *range(100, 115)]
    assert Lookup(text).draft(4, 0.0) == [115, 116, 117, 118]


@pytest.mark.parametrize("period", [1, 2, 3, 10, 40])
def test_a_loop_is_soon_drafted_as_far_as_allowed(period):
    loop = list(range(period)) * (200 // period + 2)
    lookup = Lookup(loop)
    drafted = lookup.draft(MOST_DRAFTED, PRICE)
    assert drafted == [(len(loop) + i) % period for i in range(len(drafted))]
    assert len(drafted) == MOST_DRAFTED
    assert len(lookup.draft(3, PRICE)) <= 3
    assert lookup.draft(0, PRICE) == []


@pytest.mark.parametrize("kinds", [2, 5, 12, 40, 4096])
def test_drafts_of_random_tokens_cost_little_more_than_they_gain(kinds):
    numbers = random.Random(2)
    text = [numbers.randrange(kinds) for _ in range(4000)]
    lookup, place, passes, cost = Lookup(), 0, 0, 0.0
    while place < len(text):
        drafted = lookup.draft(MOST_DRAFTED, PRICE)
        passes, cost = passes + 1, cost + 1 + PRICE * len(drafted)
        right = [*drafted, None]
        while place < len(text):
            token, guessed = text[place], right.pop(0)
            lookup.append(token)
            place += 1
            if token != guessed:
                break
    assert cost < 1.05 * len(text)


def test_text_that_never_repeats_has_no_drafts():
    lookup = Lookup(range(500))
    assert lookup.draft(MOST_DRAFTED, PRICE) == []


def test_what_is_kept_grows_by_two_runs_a_token():
    lookup = Lookup([random.Random(3).randrange(1000) for _ in range(400)])
    assert len(lookup.followed) <= 2 * 400
