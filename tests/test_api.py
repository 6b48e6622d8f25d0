"""What programs use: the same texts and scores as on the command line."""

import doctest
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from program import done

import gpt2cli
from gpt2cli import api, arguments, presets
from gpt2cli.cli import writing_options

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


SURROGATE = r"holds a lone surrogate, '\ud800' at 1"

WRONG_PROMPTS = [
    (b"Emma", TypeError, "prompt is a text (str), not b'Emma'"),
    (5, TypeError, "prompt is a text (str), not 5"),
    (["Emma"], TypeError, "prompt is a text (str), not ['Emma']"),
    (None, TypeError, "prompt is a text (str), not None"),
    ("a\ud800", ValueError, f"prompt {SURROGATE}"),
]

WRONG_OPTIONS = [
    ({"temprature": 1}, TypeError, "'temprature'; did you mean temperature?"),
    ({"foo": 1}, TypeError, "no option is called 'foo'; they are max_new_tokens, temperature, "),
    ({"stop": "the"}, TypeError, "stop is several texts, as stop=['the'], not 'the'"),
    ({"stop": b"the"}, TypeError, "stop is several texts, as stop=['…'], not b'the'"),
    ({"stop": 5}, TypeError, "stop is several texts, as stop=['…'], not 5"),
    ({"stop": ["a", 5]}, TypeError, "stop[1] is a text (str), not 5"),
    ({"stop": ["a\ud800"]}, ValueError, f"stop[0] {SURROGATE}"),
    ({"stop": [""]}, ValueError, "an empty stop"),
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens is a whole number, 0 or more, or None"),
    ({"max_new_tokens": 2.5}, TypeError, "max_new_tokens is a whole number, 0 or more, or None"),
    ({"max_new_tokens": "3"}, TypeError, "not '3'"),
    ({"max_new_tokens": True}, TypeError, "not True"),
    ({"seed": -1}, ValueError, "seed is a whole number from 0 to 9223372036854775807, not -1"),
    ({"seed": 2**63}, ValueError, "seed is a whole number from 0 to 9223372036854775807, not 92"),
    ({"seed": "x"}, TypeError, "seed is a whole number"),
    ({"seed": None}, TypeError, "seed is a whole number"),
    ({"keep": -1}, ValueError, "keep is a whole number, 0 or more, not -1"),
    ({"keep": 400}, ValueError, "keep is below half of n_positions, 512, not 400"),
    ({"logprobs": -1}, ValueError, "logprobs is a whole number"),
    ({"logprobs": 1.5}, TypeError, "logprobs is a whole number"),
    ({"temperature": -1}, ValueError, "temperature is a number, 0 or more, not -1"),
    ({"temperature": math.nan}, ValueError, "temperature is a number, 0 or more, not nan"),
    ({"temperature": 2**1024}, ValueError, "temperature is a number, 0 or more, not 1797"),
    ({"temperature": "1"}, TypeError, "temperature is a number, 0 or more, not '1'"),
    ({"top_k": 0}, ValueError, "top_k is a whole number, 1 or more, or None, not 0"),
    ({"top_k": 1.5}, TypeError, "top_k is a whole number, 1 or more, or None, not 1.5"),
    ({"top_p": 0}, ValueError, "top_p is a number above 0, 1 at most, or None, not 0"),
    ({"top_p": 2}, ValueError, "top_p is a number above 0, 1 at most, or None, not 2"),
    ({"min_p": -1}, ValueError, "min_p is a number from 0 to 1, or None, not -1"),
    ({"repetition_penalty": 0.5}, ValueError, "repetition_penalty is a number, 1 or more, or"),
    ({"logit_bias": [1]}, TypeError, "logit_bias maps token ids to numbers, as {11: -1.5}, and is"),
    ({"logit_bias": {"a": 1}}, TypeError, "logit_bias maps token ids to numbers"),
    ({"logit_bias": {3: "a"}}, TypeError, "logit_bias[3] is a number or -inf, not 'a'"),
    ({"logit_bias": {3: math.nan}}, ValueError, "logit_bias[3] is a number or -inf, not nan"),
    ({"logit_bias": {3: math.inf}}, ValueError, "logit_bias[3] is a number or -inf, not inf"),
    ({"logit_bias": {4096: 1}}, gpt2cli.GPT2Error, "token 4096, outside 0 to 4095"),
    ({"special": "no"}, TypeError, "special is True or False, not 'no'"),
    ({"ignore_eos": 1}, TypeError, "ignore_eos is True or False, not 1"),
    ({"overflow": "wrap"}, ValueError, "overflow is one of ('error', 'stop', 'slide'), not 'wrap'"),
]


@pytest.mark.parametrize(("prompt", "error", "said"), WRONG_PROMPTS, ids=repr)
def test_what_is_no_prompt_is_refused_when_it_is_given(austen, prompt, error, said):
    for call in (austen.generate, austen.stream):
        with pytest.raises(error, match=f"^{re.escape(said)}"):
            call(prompt)


@pytest.mark.parametrize(("options", "error", "said"), WRONG_OPTIONS, ids=repr)
def test_a_wrong_option_is_named_when_it_is_given(austen, options, error, said):
    for call in (austen.generate, austen.stream):
        with pytest.raises(error, match=re.escape(said)):
            call("Emma", **options)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"prompts": "Emma"}, TypeError, "prompts is several texts, as prompts=['Emma'], not 'Emm"),
        ({"prompts": 5}, TypeError, "prompts is several texts, as prompts=['…'], not 5"),
        ({"prompts": ["Emma", None]}, TypeError, "prompts[1] is a text (str), not None"),
        ({"prompts": ["a\ud800"]}, ValueError, f"prompts[0] {SURROGATE}"),
        ({"samples": 0}, ValueError, "samples is a whole number, 1 or more, not 0"),
        ({"samples": "2"}, TypeError, "samples is a whole number, 1 or more, not '2'"),
        ({"batch_size": -1}, ValueError, "batch_size is a whole number, 1 or more, not -1"),
        ({"batch_size": 2.0}, TypeError, "batch_size is a whole number, 1 or more, not 2.0"),
    ],
    ids=repr,
)
def test_wrong_prompts_and_counts_are_named(austen, given, error, said):
    with pytest.raises(error, match=f"^{re.escape(said)}"):
        austen.generate_many(**{"prompts": ["Emma"], **given})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"text": 5}, TypeError, "text is a text (str) or bytes, not 5"),
        ({"text": "a\ud800"}, ValueError, f"text {SURROGATE}"),
        ({"window": 1}, ValueError, "window is a whole number from 2 to 512, not 1"),
        ({"window": 513}, ValueError, "window is a whole number from 2 to 512, not 513"),
        ({"window": 8.0}, TypeError, "window is a whole number from 2 to 512, not 8.0"),
        ({"stride": 0}, ValueError, "stride is a whole number from 1 to 512, not 0"),
        ({"window": 8, "stride": 9}, ValueError, "stride is a whole number from 1 to 8, not 9"),
        ({"bos": "no"}, TypeError, "bos is True or False, not 'no'"),
    ],
    ids=repr,
)
def test_what_cannot_be_scored_is_named(austen, given, error, said):
    with pytest.raises(error, match=f"^{re.escape(said)}"):
        austen.score(**{"text": "a b", **given})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"model": 5}, TypeError, "model is a name (str) or a path (str or Path), not 5"),
        ({"model": b"x"}, TypeError, "model is a name (str) or a path (str or Path), not b'x'"),
        ({"n_head": 0}, ValueError, "n_head is a whole number, 1 or more, or None, not 0"),
        ({"n_head": "6"}, TypeError, "n_head is a whole number, 1 or more, or None, not '6'"),
        ({"progress": "no"}, TypeError, "progress is True or False, not 'no'"),
    ],
    ids=repr,
)
def test_what_can_be_no_model_is_named(given, error, said):
    with pytest.raises(error, match=f"^{re.escape(said)}"):
        gpt2cli.load(**{"model": "austen", **given})


def test_a_value_that_is_long_or_has_lines_is_shown_in_short(austen):
    for value in (["two\nlines"] * 99, np.zeros((9, 9))):
        with pytest.raises(TypeError) as caught:
            austen.generate(value)
        assert len(str(caught.value)) < 200
        assert str(caught.value).isprintable()


def test_a_path_object_is_a_path_whatever_else_has_its_name(austen, tmp_path, monkeypatch):
    folder = presets.weights_folder() / "austen"
    assert gpt2cli.load(folder).generate("Emma") == austen.generate("Emma")
    monkeypatch.chdir(folder.parent)
    assert gpt2cli.load(Path("austen")).generate("Emma") == austen.generate("Emma")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gpt2cli.GPT2Error, match=r"there is no file or folder .*/austen"):
        gpt2cli.load(Path("austen"))


def test_numbers_of_other_libraries_are_numbers(austen):
    options = {"max_new_tokens": np.uint8(9), "top_k": np.uint8(3), "temperature": np.float32(0.5)}
    text = austen.generate("Emma", seed=np.int64(7), **options)
    plain = {"max_new_tokens": 9, "top_k": 3, "temperature": 0.5}
    assert text == austen.generate("Emma", seed=7, **plain)
    assert type(text.seed) is int
    window = {"window": np.uint8(200), "stride": np.uint8(100)}
    assert austen.score("a b " * 300, **window) == austen.score("a b " * 300, window=200)


def test_the_largest_seed_is_that_of_the_command_line(austen):
    assert austen.generate("Emma", max_new_tokens=1, seed=2**63 - 1).seed == 2**63 - 1
    assert arguments.BIGGEST_SEED == writing_options.BIGGEST_SEED


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
