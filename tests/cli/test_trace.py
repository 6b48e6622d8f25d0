"""``gpt2 generate --trace``: how each token was chosen, in place of the text or in its JSON."""

import json
import math
import re

import pytest
from program import done, run

pytestmark = pytest.mark.usefixtures("one_thread")

AUSTEN = ("generate", "-m", "austen", "-s", "1", "-n", "4")


def traced(*options: str) -> dict:
    return json.loads(done(*AUSTEN, *options, "--trace", "--json", "My dear").text)


def test_a_trace_names_the_tokens_that_are_written_without_it():
    plain = json.loads(done(*AUSTEN, "-k", "9", "--json", "--logprobs", "0", "My dear").text)
    row = traced("-k", "9", "--logprobs", "0")
    assert [choice["id"] for choice in row["trace"]] == plain["tokens"] == row["tokens"]
    assert [choice["logprob"] for choice in row.pop("trace")] == [
        each["logprob"] for each in plain["logprobs"]
    ]
    assert row == plain


def test_drafts_are_traced_as_if_each_token_came_alone():
    drafted = traced("-t", "0", "--draft", "--logit-bias", "11=3")
    assert drafted == traced("-t", "0", "--no-draft", "--logit-bias", "11=3")


def test_each_step_names_what_it_leaves():
    for choice in traced("-k", "9", "-p", "0.9", "--min-p", "0.1")["trace"]:
        steps = choice["steps"]
        assert [step["step"] for step in steps] == [
            "model",
            "temperature 1",
            "top-k 9",
            "top-p 0.9",
            "min-p 0.1",
        ]
        counts = [step["candidates"] for step in steps]
        assert counts == sorted(counts, reverse=True)
        assert counts[2] == 9
        assert 0.9 <= steps[3]["mass"] <= 1
        assert steps[0]["entropy"] <= math.log(counts[0])
        assert sum(each["probability"] for each in steps[2]["top"]) < 1


def test_a_token_that_ends_the_text_is_traced_and_is_no_part_of_it():
    row = traced("--logit-bias", "4095=1000")
    assert (row["tokens"], row["finish_reason"]) == ([], "eos")
    (end,) = row["trace"]
    assert (end["id"], end["text"], end["probability"]) == (4095, "<|endoftext|>", 1)
    assert end["logprob"] < -1


def test_a_stop_ends_the_table_too():
    text = done(*AUSTEN, "-t", "0", "--trace", "--stop", "s", "My dear").text
    assert text.startswith("token 1: ' s' (id 264), logprob -")
    assert text.endswith("\nfinish_reason stop\n")


def test_the_table_fits_80_columns_and_stands_in_place_of_the_text():
    text = done(*AUSTEN, "-t", "0.8", "-k", "40", "--samples", "2", "--trace", "My dear").text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "=== sample 1 of 2 ==="
    assert "My dear" not in text
    assert len(re.findall(r"^token \d: ", text, re.MULTILINE)) == 8
    assert lines.count("finish_reason length") == 2


def test_a_trace_is_not_ended_by_nul():
    assert run(*AUSTEN, "--trace", "-0", "My dear").code == 2
