"""``gpt2 generate``: what it takes, what it prints, and what it refuses.

Most models here are scripted: position p of their text is byte p of a script, whatever came
before, and token i is byte i.
"""

import json
import math
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import torch
from program import done, refusal, run

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.cli import writing
from gpt2cli.generation import Request, generate
from gpt2cli.loader import load
from gpt2cli.presets import weights_folder
from gpt2cli.sampling import Sampling
from gpt2cli.tokenizer import load_tokenizer
from gpt2cli.tokenizer.merges import spelled

pytestmark = pytest.mark.usefixtures("one_thread")

END = 256  # <|endoftext|>, where the vocabulary has it
N = 64  # positions
GREEDY = ("-t", "0", "-n")


def script(folder: Path, text: bytes | list[int], rows: int = 257, **fields) -> str:
    """A model that writes `text`, and then zeros."""
    config = {"vocab_size": rows, "n_positions": N, "n_embd": N, "n_layer": 1, "n_head": 1}
    config |= {"model_type": "gpt2", "tie_word_embeddings": False, **fields}
    arrays = {n: np.zeros_like(a) for n, a in checkpoints.random_arrays(config).items()}
    arrays["wpe.weight"] = np.eye(N, dtype=np.float32)
    arrays["ln_f.weight"] += 1
    for place, token in enumerate([*text, *[0] * N][1 : N + 1]):
        arrays["lm_head.weight"][token, place] = 10
    checkpoints.write(folder, config, arrays=arrays)
    return str(folder)


def with_bytes(folder: Path, end: bool = True) -> Path:
    """The folder, with a vocabulary of single bytes in it."""
    folder.mkdir(exist_ok=True)
    table = {spelled(bytes([byte])): byte for byte in range(256)}
    table |= {"<|endoftext|>": END} if end else {}
    (folder / "vocab.json").write_text(json.dumps(table))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return with_bytes(tmp_path / "model")


@pytest.fixture
def abc(folder) -> str:
    return script(folder, b"abcdefghijklmnopqrstuvwxyz" * 3)


def rows(*args: str, stdin: bytes | None = None) -> list[dict]:
    ran = done("generate", *args, "--json", stdin=stdin)
    assert ran.out.endswith(b"\n")
    return [
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
        for line in ran.text.splitlines()
    ]


def row(*args: str, stdin: bytes | None = None) -> dict:
    (only,) = rows(*args, stdin=stdin)
    return only


# The prompt


def test_a_prompt_is_taken_and_standard_input_is_left_alone(abc):
    assert done("generate", "-m", abc, *GREEDY, "3", "ab").out == b"abcde\n"


def test_a_file_a_pipe_and_a_dash_are_the_same_and_lose_one_final_newline(abc, tmp_path):
    (tmp_path / "prompt").write_bytes(b"a\n\n")
    options = ("-m", abc, *GREEDY, "1")
    for args, stdin in (
        (("-f", str(tmp_path / "prompt")), None),
        (("-f", "-"), b"a\n\n"),
        (("-",), b"a\n\n"),
        ((), b"a\n\n"),
    ):
        assert row(*options, *args, stdin=stdin)["prompt"] == "a\n"
        assert row(*options, *args, "--keep-newline", stdin=stdin)["prompt"] == "a\n\n"
    assert row(*options, "a\n")["prompt"] == "a\n"


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_file_or_pipe_names_the_way_without_a_prompt(abc, tmp_path, data):
    (tmp_path / "empty").write_bytes(data)
    assert "--unconditional" in refusal("generate", "-m", abc, stdin=data)
    assert "--unconditional" in refusal("generate", "-m", abc, "-f", str(tmp_path / "empty"))


def test_prompt_stop_and_bias_are_literal(abc):
    assert row("-m", abc, *GREEDY, "1", r"a\n")["prompt_tokens"] == list(rb"a\n")
    assert row("-m", abc, *GREEDY, "3", "--stop", r"\x63", "a")["finish_reason"] == "length"


def test_bytes_that_are_no_utf8_need_their_encoding(abc):
    options = ("generate", "-m", abc, *GREEDY, "0")
    assert "not UTF-8" in refusal(*options, stdin=b"caf\xe9")
    assert done(*options, "--encoding", "latin-1", stdin=b"caf\xe9").text == "café\n"


def test_end_of_text_in_a_prompt_is_text_unless_special(abc):
    prompt = "a<|endoftext|>b"
    assert row("-m", abc, *GREEDY, "1", prompt)["prompt_tokens"] == list(prompt.encode())
    special = row("-m", abc, *GREEDY, "1", "--special", prompt)
    assert special["prompt_tokens"] == [97, END, 98]
    assert special["prompt"] == prompt


@pytest.mark.parametrize(
    ("fields", "generation", "start"),
    [
        ({"bos_token_id": 7, "eos_token_id": 8}, {}, 7),
        ({"bos_token_id": 7}, {"bos_token_id": 9}, 9),
        ({"eos_token_id": 8}, {}, 8),
        ({"eos_token_id": [6, 8]}, {}, 6),
        ({}, {}, END),
    ],
)
def test_a_text_without_a_prompt_starts_from_the_start_token(folder, fields, generation, start):
    model = script(folder, b"xyz", **fields)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    for args in ((), ("--unconditional",)):  # on a terminal, and asked for
        found = row("-m", model, *GREEDY, "2", *args)
        assert (found["prompt"], found["prompt_tokens"]) == ("", [start])
        assert found["text"] == "yz"
    assert done("generate", "-m", model, *GREEDY, "2", "--unconditional").out == b"yz\n"


def test_special_ids_past_the_vocabulary_are_noted_once_and_count_as_not_given(folder):
    model = script(folder, b"xyz", bos_token_id=50256, eos_token_id=50256)
    both = {"bos_token_id": 50256, "eos_token_id": 50256}
    (folder / "generation_config.json").write_text(json.dumps(both))
    ran = done("generate", "-m", model, *GREEDY, "2", "--unconditional", "--json")
    assert json.loads(ran.out)["prompt_tokens"] == [END]
    said = "leaving out bos_token_id 50256, eos_token_id 50256, as its vocab_size is 257"
    assert ran.err == f"note: {model}: {said}\n"


def test_a_model_without_a_start_token_says_so(tmp_path):
    model = script(with_bytes(tmp_path, end=False), b"xyz", rows=256)
    assert "no start token" in refusal("generate", "-m", model, "--unconditional")


# What is printed


def test_the_prompt_comes_first_and_one_newline_last(folder):
    model = script(folder, b"ab\n\ncd")
    for new, text in ((0, "a"), (1, "ab"), (2, "ab\n"), (3, "ab\n\n"), (5, "ab\n\ncd")):
        ran = done("generate", "-m", model, *GREEDY, str(new), "a")
        assert ran.text == text + ("" if text.endswith("\n") else "\n")
        assert ran.err == ""
    assert done("generate", "-m", model, *GREEDY, "2", "--no-echo", "a").out == b"b\n"


def test_samples_stand_after_a_line_each_or_end_in_nul(folder):
    options = ("generate", "-m", script(folder, b"abc"), *GREEDY, "2", "--samples", "3", "a")
    lines = [f"=== sample {i} of 3 ===\n" for i in (1, 2, 3)]
    assert done(*options).text == "".join(f"{line}abc\n" for line in lines)
    assert done(*options, "--no-echo").text == "".join(f"{line}bc\n" for line in lines)
    assert done(*options, "-0").out == b"abc\0" * 3
    assert done(*options, "--null", "--no-echo").out == b"bc\0" * 3


def test_samples_that_end_at_different_times_stay_in_order():
    options = ("-m", "austen", "-s", "5", "-n", "25", "--samples", "4", "--stop", "e", "I")
    found = rows(*options)
    assert [each["sample"] for each in found] == [0, 1, 2, 3]
    assert len({len(each["tokens"]) for each in found}) > 1
    printed = done("generate", *options, "-0").text.split("\0")
    assert printed == [*("I" + each["text"] for each in found), ""]


def printed(monkeypatch, *args: str) -> list[bytes]:
    """Every write to stdout, one after another."""
    writes: list[bytes] = []
    monkeypatch.setattr(writing, "emit", writes.append)
    done("generate", *args)
    return writes


def test_text_is_written_as_soon_as_its_characters_are_whole(folder, monkeypatch):
    model = script(folder, "aé🤗b".encode())
    writes = printed(monkeypatch, "-m", model, *GREEDY, "7", "a")
    assert writes == [b"a", "é".encode(), "🤗".encode(), b"b", b"\n"]


def test_only_what_could_begin_a_stop_is_held_back(folder, monkeypatch):
    model = script(folder, b"xSTSTOP!")
    stop = ("--stop", "STOP")
    writes = printed(monkeypatch, "-m", model, *GREEDY, "7", *stop, "x")
    assert writes == [b"x", b"ST", b"\n"]
    writes = printed(monkeypatch, "-m", model, *GREEDY, "4", *stop, "x")
    assert writes == [b"x", b"ST", b"ST", b"\n"]


@pytest.mark.parametrize(
    ("text", "stops", "before"),
    [
        ("pAAAB!", ["AAB"], "A"),
        ("pAAB", ["AB"], "A"),
        ("pab cd", ["b c"], "a"),
        ("pone two three", ["three", "two"], "one "),
        ("pone two three", ["two t", "e"], "on"),
        ("pone", ["p"], None),  # the prompt's own text does not count
        ("pone", ["on", "one"], ""),
    ],
)
def test_a_stop_ends_the_text_and_is_never_printed(folder, text, stops, before):
    model = script(folder, text.encode())
    args = ["-m", model, *GREEDY, str(len(text) - 1), "p"]
    for stop in stops:
        args += ["--stop", stop]
    found = row(*args)
    expected = text[1:] if before is None else before
    assert (found["text"], done("generate", *args).text) == (expected, f"p{expected}\n")
    assert found["finish_reason"] == ("length" if before is None else "stop")
    assert bytes(found["tokens"]).startswith(expected.encode())


def test_a_stop_of_many_tokens_is_found_across_a_slide(folder):
    model = script(folder, b"." * (N - 2) + b"ab")
    args = ("-m", model, *GREEDY, str(2 * N), "--overflow", "slide", "--stop", "b.", "." * 9)
    found = row(*args)
    assert (found["finish_reason"], found["text"]) == ("stop", "." * (N - 11) + "a")


def test_an_unfinished_character_at_the_end_is_bytes_on_stdout_and_a_replacement_in_json(folder):
    model = script(folder, "a🤗".encode())
    args = ("-m", model, *GREEDY, "3", "a")
    assert done("generate", *args).out == b"a" + "🤗".encode()[:3] + b"\n"
    found = row(*args)
    assert (found["text"], bytes(found["tokens"])) == ("\ufffd", "🤗".encode()[:3])


# The end token


@pytest.mark.parametrize(
    ("fields", "generation"),
    [
        ({"eos_token_id": ord("d")}, {}),
        ({"eos_token_id": [ord("y"), ord("d")]}, {}),
        ({"eos_token_id": ord("b")}, {"eos_token_id": ord("d")}),
        ({"eos_token_id": ord("b")}, {"eos_token_id": [ord("d"), 255]}),
    ],
)
def test_the_end_token_is_the_generation_configs_else_the_configs(folder, fields, generation):
    model = script(folder, b"abcdef", **fields)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    found = row("-m", model, *GREEDY, "5", "a")
    assert (found["text"], found["finish_reason"]) == ("bc", "eos")
    assert found["tokens"] == [98, 99]
    on = row("-m", model, *GREEDY, "5", "--ignore-eos", "a")
    assert (on["text"], on["finish_reason"]) == ("bcdef", "length")
    forbidden = row("-m", model, *GREEDY, "5", "--logit-bias", f"{ord('d')}=-inf", "a")
    assert forbidden["finish_reason"] == "length"
    assert ord("d") not in forbidden["tokens"]


def test_without_one_it_is_end_of_text_which_is_printed_only_when_special(folder):
    model = script(folder, [97, 98, END, 99])
    args = ("-m", model, *GREEDY, "3", "a")
    assert row(*args)["finish_reason"] == "eos"
    assert done("generate", *args).out == b"ab\n"
    on = row(*args, "--ignore-eos")
    assert (on["tokens"], on["text"]) == ([98, END, 99], "bc")
    assert done("generate", *args, "--ignore-eos").out == b"abc\n"
    assert done("generate", *args, "--ignore-eos", "--special").out == b"ab<|endoftext|>c\n"


def test_sampling_defaults_of_a_generation_config_are_not_applied(folder):
    checkpoints.write(folder, checkpoints.TINY | {"vocab_size": 257})
    args = ("-m", str(folder), "-n", "12", "-s", "1", "ab")
    before = row(*args)["tokens"]
    defaults = {"do_sample": True, "temperature": 0.1, "top_k": 1, "repetition_penalty": 5.0}
    (folder / "generation_config.json").write_text(json.dumps(defaults))
    assert row(*args)["tokens"] == before


# Length


def test_as_much_as_fits_is_written_when_no_length_is_given_and_that_is_said(abc):
    ran = done("generate", "-m", abc, "-t", "0", "abcd")
    assert len(ran.out) == N + 1
    assert ran.err == f"note: {N - 4} new tokens fit beside the prompt's 4\n"
    assert done("generate", "-q", "-m", abc, "-t", "0", "abcd").err == ""
    assert len(row("-m", "austen", "My dear")["tokens"]) == 100


@pytest.mark.parametrize(
    ("overflow", "prompt", "new", "text"),
    [
        ("error", N - 1, 1, "length"),
        ("error", N - 1, 2, None),
        ("error", N, 1, None),
        ("stop", N - 1, 2, "context"),
        ("stop", N, 1, None),
        ("slide", N + 1, 2, "length"),
    ],
)
def test_a_length_that_does_not_fit_is_refused_stopped_or_slid(abc, overflow, prompt, new, text):
    args = ("-m", abc, *GREEDY, str(new), "--overflow", overflow, "a" * prompt)
    if text is None:
        message = refusal("generate", *args)
        assert str(prompt) in message
        assert str(N) in message
    else:
        assert row(*args)["finish_reason"] == text


def test_a_slide_is_said_once_and_goes_on_from_the_kept_tokens(abc):
    args = ("generate", "-m", abc, *GREEDY, str(4 * N), "--overflow", "slide", "--no-echo", "a")
    ran = done(*args)
    assert ran.err.count("note: ") == ran.err.count("\n") == 1
    assert "older half" in ran.err
    alphabet = b"abcdefghijklmnopqrstuvwxyz" * 3
    # the window goes back to its middle, and to one further for every two that are kept
    assert ran.out[: N + 9] == alphabet[1:N] + alphabet[N // 2 : N // 2 + 10]
    assert done(*args, "--keep", "10").out[N - 1 : N + 9] == alphabet[N // 2 + 5 : N // 2 + 15]
    assert done(*args, "-q").err == ""


def test_keep_is_below_half_of_the_positions(abc):
    ran = run("generate", "-m", abc, "--overflow", "slide", "--keep", str(N // 2), "a")
    assert ran.code == 2
    assert "--keep" in ran.err


# Sampling


def test_every_sampling_option_reaches_the_sampler():
    folder = weights_folder() / "austen"
    checkpoint = Checkpoint.open(folder)
    vocabulary = load_tokenizer(folder, checkpoint.config.vocab_size)
    comma = vocabulary.encode(",")[0]
    sampling = Sampling(1.3, 40, 0.9, 0.02, 1.3, {comma: -math.inf, 300: 4.0})
    request = Request(tuple(vocabulary.encode("She")), 20, sampling, seed=9, sample=1)
    expected = [step.token for step in generate(load(checkpoint), [request])]
    options = "-n 20 -t 1.3 -k 40 -p 0.9 --min-p 0.02 --repetition-penalty 1.3 -s 9 --samples 2"
    bias = ("--logit-bias", f"{comma}=-inf", "--logit-bias", "300=4")
    assert rows("-m", "austen", *options.split(), *bias, "She")[1]["tokens"] == expected


def test_filters_that_leave_one_token_are_greedy_and_those_that_are_off_are_off():
    args = ("-m", "austen", "-n", "8", "-s", "3", "My dear")
    greedy, free = row(*args, "-t", "0")["tokens"], row(*args)["tokens"]
    assert greedy != free
    for one in (("-k", "1"), ("-p", "1e-9"), ("--min-p", "1"), ("-k", "9", "-t", "0")):
        assert row(*args, *one)["tokens"] == greedy
    for off in (("-k", "0"), ("-k", "99999"), ("-p", "1"), ("--min-p", "0")):
        assert row(*args, *off)["tokens"] == free
    assert row(*args, "--repetition-penalty", "1")["tokens"] == free


def test_a_seed_is_drawn_and_shown_and_gives_the_same_text_again():
    args = ("-m", "austen", "-n", "12", "My dear")
    first, second = row(*args), row(*args)
    assert first["seed"] != second["seed"]
    assert 0 <= first["seed"] < 2**63
    assert first["tokens"] != second["tokens"]
    assert row(*args, "-s", str(first["seed"])) == first
    assert row(*args, "-s", "0")["seed"] == 0
    assert row(*args, "-s", str(2**63 - 1))["seed"] == 2**63 - 1


def test_a_sample_does_not_depend_on_how_many_run_beside_it():
    args = ("-m", "austen", "-n", "12", "-s", "4", "My dear")
    (alone,), many = rows(*args), rows(*args, "--samples", "5")
    assert [each["tokens"] for each in many[:1]] == [alone["tokens"]]
    assert len({each["text"] for each in many}) == 5
    assert alone["exact"] is True


def test_a_temperature_above_2_is_noted_once(abc):
    args = ("generate", "-m", abc, "-n", "2", "--samples", "2", "a")
    assert done(*args, "-t", "2").err == ""
    ran = done(*args, "-t", "2.5")
    assert ran.err.startswith("note: temperature 2.5")
    assert ran.err.count("\n") == 1
    assert done(*args, "-t", "2.5", "-q").err == ""


def test_greedy_samples_are_noted_to_be_equal(abc):
    args = ("generate", "-m", abc, "-n", "2", "a")
    ran = done(*args, "-t", "0", "--samples", "2")
    assert ran.err.startswith("note: the 2 samples will be equal")
    assert ran.err.count("\n") == 1
    for quiet in (("-t", "0"), ("--samples", "2"), ("-t", "0", "--samples", "2", "-q")):
        assert done(*args, *quiet).err == ""


def test_padding_is_never_sampled_and_its_logprob_has_no_text(folder):
    model = script(folder, b"abcd", rows=264)
    arrays = {n: t.read().numpy() for n, t in Checkpoint.open(folder).matched.tensors.items()}
    arrays["lm_head.weight"] = arrays["lm_head.weight"].copy()
    arrays["lm_head.weight"][260, :3] = 99
    config = json.loads((folder / "config.json").read_text())
    checkpoints.write(folder, config, arrays=arrays)
    for sampling in (("-t", "0"), ("-t", "1")):
        args = ("-m", model, *sampling, "-n", "3", "--logit-bias", "261=1e9", "a")
        found = row(*args, "--logprobs", "2")
        assert found["text"] == "bcd"
        likeliest = found["logprobs"][0]["top"][0]
        assert (likeliest["id"], likeliest["text"]) == (260, "")


# JSON


def test_a_json_line_has_the_documented_keys_and_values(abc):
    found = row("-m", abc, *GREEDY, "2", "-s", "3", "ab")
    assert found == {
        "prompt": "ab",
        "text": "cd",
        "prompt_tokens": [97, 98],
        "tokens": [99, 100],
        "finish_reason": "length",
        "seed": 3,
        "sample": 0,
        "model": abc,
        "exact": True,
    }


def test_logprobs_are_the_models_own():
    found = row(*"-m austen -n 8 -t 2 -k 3 --logit-bias 300=9 -s 1 --logprobs 4".split(), "She")
    checkpoint = Checkpoint.open(weights_folder() / "austen")
    vocabulary = load_tokenizer(checkpoint.folder, checkpoint.config.vocab_size)
    ids = torch.tensor([found["prompt_tokens"] + found["tokens"]])
    own = torch.log_softmax(load(checkpoint)(ids)[0].double(), -1)
    for place, each in enumerate(found["logprobs"], len(found["prompt_tokens"]) - 1):
        assert each.keys() == {"id", "text", "bytes", "logprob", "top"}
        assert bytes(each["bytes"]) == vocabulary.token_bytes(each["id"])
        assert each["text"] == bytes(each["bytes"]).decode("utf-8", "replace")
        assert each["logprob"] == pytest.approx(own[place, each["id"]].item(), abs=1e-4)
        values, best = own[place].topk(4)
        assert [top["id"] for top in each["top"]] == best.tolist()
        assert [top["logprob"] for top in each["top"]] == pytest.approx(values.tolist(), abs=1e-4)
        assert all(top.keys() == {"id", "text", "logprob"} for top in each["top"])
    assert [each["id"] for each in found["logprobs"]] == found["tokens"]


def test_logprobs_of_0_list_no_others(abc):
    found = row("-m", abc, *GREEDY, "2", "--logprobs", "0", "a")
    assert [each["top"] for each in found["logprobs"]] == [[], []]


def test_json_is_utf8_without_escapes(folder):
    model = script(folder, "a🤗é".encode())
    ran = done("generate", "-m", model, *GREEDY, "6", "--json", "a")
    assert '"text": "🤗é"' in ran.text


# Usage


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["a", "-f", "x"], "--file"),
        (["a", "--unconditional"], "--unconditional"),
        (["-f", "x", "--unconditional"], "--unconditional"),
        (["hi", "there"], "quote it: 'hi there'"),
        (["-n", "-1"], "--max-new-tokens"),
        (["-n", "1.5"], "--max-new-tokens"),
        (["-t", "-0.1"], "--temperature"),
        (["-t", "nan"], "--temperature"),
        (["-t", "inf"], "--temperature"),
        (["-k", "-1"], "--top-k"),
        (["-k", "2.5"], "--top-k"),
        (["-p", "0"], "--top-p"),
        (["-p", "1.01"], "--top-p"),
        (["-p", "nan"], "--top-p"),
        (["--min-p", "-0.1"], "--min-p"),
        (["--min-p", "1.1"], "--min-p"),
        (["--repetition-penalty", "0.9"], "--repetition-penalty"),
        (["--repetition-penalty", "inf"], "--repetition-penalty"),
        (["--logit-bias", "5"], "--logit-bias"),
        (["--logit-bias", "x=1"], "--logit-bias"),
        (["--logit-bias", "-1=1"], "--logit-bias"),
        (["--logit-bias", "5=nan"], "--logit-bias"),
        (["--logit-bias", "5=inf"], "--logit-bias"),
        (["--logit-bias", "5="], "--logit-bias"),
        (["--stop", ""], "--stop"),
        (["--samples", "0"], "--samples"),
        (["-s", "-1"], "--seed"),
        (["-s", str(2**63)], "--seed"),
        (["--overflow", "wrap"], "--overflow"),
        (["--keep", "-1"], "--keep"),
        (["--logprobs", "-1", "--json"], "--logprobs"),
        (["--logprobs", "1"], "--logprobs"),
        (["--null", "--json"], "--null"),
        (["--device", "abacus"], "--device"),
        (["--threads", "0"], "--threads"),
        (["--threads", "1000000"], "--threads"),
        *((["--encoding", name, "a"], "--encoding") for name in ("klingon", "", "hex", "rot13")),
        (["--samples", "100001"], "a whole number from 1 to 100000"),
        (["--keep", "1", "a"], "--overflow slide"),
        (["--keep-newline", "a"], "--keep-newline"),
        (["--no-such"], "--no-such"),
    ],
)
def test_wrong_usage_names_the_option_before_any_model_is_looked_for(args, named):
    ran = run("generate", "-m", "./no/such/model", *args, stdin=b"a")
    assert (ran.code, ran.out) == (2, b"")
    assert named in ran.err


def test_what_the_model_cannot_do_is_refused_before_its_weights_are_read(abc, monkeypatch):
    monkeypatch.setattr(Checkpoint, "read", lambda *_: pytest.fail("a weight was read"))
    everything = [f"--logit-bias={token}=-inf" for token in range(257)]
    assert "every token" in refusal("generate", "-q", "-m", abc, *everything, "a")
    assert "token 257" in refusal("generate", "-q", "-m", abc, "--logit-bias", "257=1", "a")
    assert "999 new ones" in refusal("generate", "-m", abc, "-n", "999", "a")


def test_the_environment_names_the_model_and_the_option_wins(abc, monkeypatch):
    monkeypatch.setenv("GPT2_MODEL", abc)
    assert row(*GREEDY, "1", "a")["model"] == abc
    assert row("-m", "austen", *GREEDY, "1", "a")["model"] == "austen"
