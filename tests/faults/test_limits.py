"""The least and the most: of sizes, samples, prompts and numbers, and of what filters leave."""

import json
from pathlib import Path

import checkpoints
import numpy as np
import pytest
from program import done, refusal, run

from gpt2cli.tokenizer.merges import spelled

pytestmark = pytest.mark.usefixtures("one_thread")

BYTES = {"vocab_size": 256, "n_positions": 32}


def model(folder: Path, **config: object) -> str:
    """A random model, each token a byte, those from 0 on."""
    written = checkpoints.TINY | BYTES | config
    checkpoints.write(folder, written)
    table = {spelled(bytes([97 + byte & 255])): byte for byte in range(written["vocab_size"])}
    (folder / "vocab.json").write_text(json.dumps(table))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return str(folder)


def tokens(*args: str) -> list[int]:
    (line,) = done("generate", "--json", "-s", "1", *args).out.splitlines()
    return json.loads(line)["tokens"]


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return model(tmp_path / "tiny")


# Sizes


@pytest.mark.parametrize(
    "config",
    [
        {"vocab_size": 1},
        {"n_layer": 1, "n_head": 1},
        {"n_embd": 1, "n_head": 1, "n_layer": 1, "n_inner": 1},
        {"n_embd": 24, "n_head": 24},
        {"n_positions": 2},
    ],
    ids=str,
)
def test_the_smallest_models_compute_what_float64_does_and_write(tmp_path, config) -> None:
    folder = model(tmp_path / "model", **config)
    done("verify", folder, "--threads", "1")
    args = ("-m", folder, "-n", "5", "--overflow", "slide", "--logprobs", "3", "a")
    (line,) = done("generate", "--json", *args).out.splitlines()
    assert len(json.loads(line)["tokens"]) == 5


def test_in_a_vocabulary_of_one_that_token_is_certain(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", vocab_size=1)
    args = ("--json", "-m", folder, "-n", "3", "--logprobs", "1", "a")
    row = json.loads(done("generate", *args).text)
    assert row["tokens"] == [0, 0, 0]
    assert [each["logprob"] for each in row["logprobs"]] == [0, 0, 0]


# Samples and prompts


def test_ten_thousand_samples_are_each_the_one_that_they_are_among_fewer(tiny: str) -> None:
    args = ("generate", "-m", tiny, "-s", "1", "-n", "1", "--json", "a", "--samples")
    many = done(*args, "10000").out.splitlines()
    assert [json.loads(line)["sample"] for line in many] == list(range(10_000))
    assert many[:33] == done(*args, "33").out.splitlines()


@pytest.mark.parametrize("samples", ["0", "-1"])
def test_no_sample_is_wrong_usage(tiny: str, samples: str) -> None:
    assert run("generate", "-m", tiny, "--samples", samples, "a").code == 2


@pytest.mark.parametrize("policy", ["error", "stop", "slide"])
def test_an_empty_prompt_names_the_way_without_one(tiny: str, policy: str) -> None:
    assert "--unconditional" in refusal("generate", "-m", tiny, "--overflow", policy, "")


@pytest.mark.parametrize("text", ["a", " "])
def test_a_prompt_of_ten_megabytes_is_refused_by_its_length(tmp_path: Path, text: str) -> None:
    prompt = tmp_path / "prompt"
    prompt.write_bytes(text.encode() * (10_000_000 // len(text.encode())))
    args = ("generate", "-q", "-m", "austen", "-n", "1", "-f", str(prompt))
    assert "the model holds 512" in refusal(*args)


# Sampling


@pytest.mark.parametrize(
    "options",
    [("-t", "1e-30"), ("-k", "1"), ("-p", "1e-30"), ("--min-p", "1"), ("-t", "1e-30", "-k", "9")],
    ids=" ".join,
)
def test_what_leaves_the_likeliest_token_alone_is_greedy(tiny: str, options) -> None:
    same = ("-q", "-m", tiny, "-n", "20", "a")
    assert tokens(*options, *same) == tokens("-t", "0", *same)


def test_at_an_immense_temperature_all_tokens_are_as_likely(tiny: str) -> None:
    args = ("generate", "-q", "-m", tiny, "-n", "8", "-s", "1", "--samples", "500", "--json", "a")
    rows = map(json.loads, done(*args, "-t", "1e30").out.splitlines())
    counts = np.bincount([token for row in rows for token in row["tokens"]], minlength=256)
    expected = counts.sum() / 256
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)  # mean and deviation of the chi-squared law


@pytest.mark.parametrize("k", ["256", "257", "999999999999"])
def test_a_top_k_of_the_vocabulary_or_more_changes_nothing(tiny: str, k: str) -> None:
    same = ("-m", tiny, "-n", "20", "a")
    assert tokens("-k", k, *same) == tokens(*same)


def test_of_equal_logits_the_lowest_ids_are_kept(tmp_path: Path) -> None:
    config = checkpoints.TINY | BYTES
    arrays = checkpoints.random_arrays(config)
    arrays["wte.weight"][:] = 0
    folder = model(tmp_path / "model")
    checkpoints.write(Path(folder), config, arrays=arrays)
    same = ("-m", folder, "-n", "30", "--overflow", "slide", "a")
    assert set(tokens("-t", "0", *same)) == set(tokens("-k", "1", *same)) == {0}
    assert set(tokens("-k", "3", *same)) == {0, 1, 2}
    assert len(set(tokens(*same))) > 9


def test_where_all_tokens_but_one_are_banned_that_one_comes_and_where_all_are_it_is_refused(
    tmp_path: Path,
) -> None:
    folder = model(tmp_path / "model", vocab_size=9)
    bans = [("--logit-bias", f"{token}=-inf") for token in range(9)]
    same = ("-m", folder, "-n", "5", "a")
    for spared in (0, 4, 8):
        given = [word for ban in bans if ban != bans[spared] for word in ban]
        for how in (("-t", "0"), ("-t", "2", "-k", "5", "-p", "0.5"), ("-t", "1e-30")):
            assert tokens(*given, *how, *same) == [spared] * 5
    assert "logit" in refusal("generate", *[word for ban in bans for word in ban], *same)


def test_the_smallest_and_largest_numbers_are_taken_or_wrong_usage(tiny: str) -> None:
    for option, least, most in (
        ("-t", "5e-324", "1.7e308"),
        ("-p", "5e-324", "1"),
        ("--min-p", "0", "1"),
        ("--repetition-penalty", "1", "1.7e308"),
        ("--logit-bias", "0=-1.7e308", "0=1.7e308"),
        ("-s", "0", str(2**63 - 1)),
    ):
        for value in (least, most):
            ran = run("generate", "-q", "-m", tiny, "-n", "3", option, value, "a")
            assert ran.code in (0, 1), (option, value, ran.err)
            assert ran.code == 0 or ran.err.startswith("Error: ")
    for option, values in {
        "-t": ("-1", "nan", "inf", "1e999"),
        "-p": ("0", "1.1", "nan"),
        "--min-p": ("-0.1", "1.1", "nan"),
        "--repetition-penalty": ("0.9", "nan", "inf"),
        "-s": ("-1", str(2**63)),
        "-n": ("-1", "1.5"),
        "-k": ("-1", "nan"),
    }.items():
        for value in values:
            assert run("generate", "-m", tiny, option, value, "a").code == 2, (option, value)
