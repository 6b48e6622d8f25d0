"""What programs use: the same texts and scores as on the command line."""

import doctest
import json
import subprocess
import sys

import pytest
from program import done

import gpt2cli
from gpt2cli import api

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def austen() -> gpt2cli.Model:
    return gpt2cli.load("austen")


def test_the_examples_are_true():
    ran = doctest.testmod(api)
    assert (ran.failed, ran.attempted > 5) == (0, True)


def test_a_text_is_that_of_the_command_line(austen):
    options = ("-n", "9", "-t", "0.7", "-k", "30", "-p", "0.9", "-s", "5", "--stop", "the")
    more = ("--logprobs", "2", "--samples", "2")
    ran = done("generate", "-m", "austen", *options, *more, "--json", "Emma was")
    texts = austen.generate_many(
        ["Emma was"],
        samples=2,
        max_new_tokens=9,
        temperature=0.7,
        top_k=30,
        top_p=0.9,
        seed=5,
        stop=["the"],
        logprobs=2,
    )
    for line, text in zip(ran.text.splitlines(), texts, strict=True):
        row = json.loads(line)
        for name in ("prompt", "text", "finish_reason", "seed", "sample"):
            assert getattr(text, name) == row[name]
        assert list(text.tokens) == row["tokens"]
        assert list(text.prompt_tokens) == row["prompt_tokens"]
        assert [each.logprob for each in text.logprobs] == [e["logprob"] for e in row["logprobs"]]


def test_texts_stand_in_the_order_of_prompts_whatever_the_batch(austen):
    prompts = ["Emma", "My dear", "It is a truth", "Emma"]
    alone = [austen.generate(prompt, max_new_tokens=6, seed=2) for prompt in prompts]
    for size in (1, 3, 8):
        assert austen.generate_many(prompts, batch_size=size, max_new_tokens=6, seed=2) == alone
    assert alone[0] == alone[3]


def test_a_stream_is_whole_characters_and_together_the_text(austen):
    # bytes that form no character until several tokens have come, and one that never does
    bias = dict.fromkeys(austen.tokenizer.encode("é"), 60.0)
    pieces = list(austen.stream("caf", max_new_tokens=7, logit_bias=bias, seed=1))
    assert "".join(pieces) == austen.generate("caf", max_new_tokens=7, logit_bias=bias, seed=1).text
    assert len(pieces) > 1


def test_no_prompt_starts_from_the_start_token(austen):
    text = austen.generate(max_new_tokens=3)
    assert text.prompt_tokens == (austen.config.bos_token_id,)


def test_a_score_is_that_of_the_command_line(austen):
    text = "She was a woman of mean understanding. " * 3
    options = ("--window", "8", "--stride", "3", "--bos", "--json")
    row = json.loads(done("score", "-m", "austen", *options, text).text)
    score = austen.score(text, bos=True, window=8, stride=3)
    for name in ("logprob", "perplexity", "bits_per_byte", "bytes"):
        assert getattr(score, name) == row[name]
    assert len(score.tokens) == len(score.logprobs) == row["tokens"]
    assert austen.score(text.encode()) == austen.score(text)
    assert austen.score(text).logprobs[0] is None


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"max_new_tokens": -1}, {"overflow": "wrap"}, {"keep": 400}],
    ids=str,
)
def test_a_wrong_option_is_a_value_error(austen, options):
    with pytest.raises(ValueError):
        austen.generate("Emma", **options)


def test_a_misspelt_option_is_a_type_error(austen):
    with pytest.raises(TypeError, match="temprature"):
        austen.generate("Emma", temprature=1)


def test_what_a_user_can_mend_is_a_gpt2_error(austen):
    with pytest.raises(gpt2cli.GPT2Error, match="512"):
        austen.generate("Emma", max_new_tokens=600)
    with pytest.raises(gpt2cli.GPT2Error, match="did you mean austen"):
        gpt2cli.load("austin")
    with pytest.raises(gpt2cli.GPT2Error, match="'x' is no dtype; it is float32"):
        gpt2cli.load("austen", dtype="x")
    with pytest.raises(gpt2cli.GPT2Error, match="'tpu' is no device"):
        gpt2cli.load("austen", device="tpu")
    with pytest.raises(ValueError, match="bos"):
        austen.score("E")


def test_importing_the_package_loads_nothing_until_it_is_used():
    code = "import gpt2cli, sys; assert not {'torch', 'numpy', 'click'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        gpt2cli.nothing  # noqa: B018
