"""``gpt2 generate --prompts``: many prompts, and a file of texts that a later run goes on with."""

import fcntl
import json
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import checkpoints
import pytest
from program import Ran, child, done, refusal, run

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.cli import progress
from gpt2cli.tokenizer.merges import spelled

pytestmark = pytest.mark.usefixtures("one_thread")

N = 64  # positions
LINES = [
    {"prompt": "It is a truth universally acknowledged", "id": "first"},
    "né",
    {"prompt": "Emma", "id": 7},
    "a longer one, to be written beside short ones",
    "né",
    {"prompt": 'She said, "well"\n\tand left.', "id": "first"},
]
PROMPTS = [line if isinstance(line, str) else line["prompt"] for line in LINES]


def tiny(folder: Path, seed: int = 0) -> str:
    """A random model whose tokens are the bytes."""
    config = checkpoints.TINY | {"vocab_size": 256, "n_positions": N}
    checkpoints.write(folder, config, seed=seed)
    table = {spelled(bytes([byte])): byte for byte in range(256)}
    (folder / "vocab.json").write_text(json.dumps(table))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def there(tmp_path, monkeypatch) -> Path:
    """A folder to be in, with a file of prompts."""
    monkeypatch.chdir(tmp_path)
    write(LINES)
    return tmp_path


def write(lines: list, name: str = "in.jsonl") -> None:
    Path(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def options(model: str, *more: str, prompts: str = "in.jsonl") -> tuple[str, ...]:
    return ("generate", "-m", model, "--prompts", prompts, "-o", "out.jsonl", "-n", "9", *more)


def rows() -> list[dict]:
    return [json.loads(line) for line in Path("out.jsonl").read_bytes().splitlines()]


def written(*args: str) -> bytes:
    """What a run that ends well leaves in its file; nothing goes to standard output."""
    assert done(*args).out == b""
    return Path("out.jsonl").read_bytes()


# The texts


def test_texts_come_in_the_order_of_their_prompts_with_their_ids(model, there):
    written(*options(model, "--samples", "2", "--batch-size", "3"))
    found = [(row["prompt"], row.get("id"), row["sample"]) for row in rows()]
    ids = [None if isinstance(line, str) else line["id"] for line in LINES]
    assert found == [(p, i, s) for p, i in zip(PROMPTS, ids, strict=True) for s in (0, 1)]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_text_is_the_one_that_its_prompt_has_alone(model, there, dtype):
    same = ("-m", model, "-s", "5", "--dtype", dtype, "-n", "9", "--stop", "e", "--logprobs", "2")
    written("generate", *same, "--prompts", "in.jsonl", "-o", "out.jsonl", "--samples", "2")
    for prompt, *pair in zip(PROMPTS, rows()[::2], rows()[1::2], strict=True):
        alone = done("generate", *same, "--samples", "2", "--json", prompt).text.splitlines()
        for row in pair:
            assert len(row.pop("digest")) == 64
            row.pop("id", None)
        assert pair == [json.loads(line) for line in alone]


def test_a_trace_goes_with_each_text_and_is_the_one_it_has_alone(model, there):
    same = ("-m", model, "-s", "5", "-n", "4", "-k", "9", "--trace")
    written("generate", *same, "--prompts", "in.jsonl", "-o", "out.jsonl", "--batch-size", "4")
    for prompt, row in zip(PROMPTS, rows(), strict=True):
        alone = json.loads(done("generate", *same, "--json", prompt).text)
        assert row["trace"] == alone["trace"]
        assert [choice["id"] for choice in row["trace"]] == row["tokens"]
    told = refusal(*options(model, "-n", "4", "-k", "9"))
    assert "line 1 has another model or other options" in told  # it lacks what the file has


def test_the_size_of_a_batch_changes_nothing(model, there):
    write([f"{'ab' * (place * 7 % 20)} {place}" for place in range(40)])
    texts = set()
    for size in ("1", "7", "32"):
        texts.add(written(*options(model, "-s", "3", "--batch-size", size, "--force")))
    assert len(texts) == 1


def test_the_prompts_of_a_text_file_are_its_lines(model, there):
    Path("in.TXT").write_bytes("\ufeffcafé\r\n a\u2028b \n".encode("utf-16-le"))
    written(*options(model, "--encoding", "utf-16-le", prompts="in.TXT"))
    assert [row["prompt"] for row in rows()] == ["café", " a\u2028b "]


# What is refused


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "blank"),
        ("{", "no JSON"),
        ("[" * 100_000, "too deep"),
        ('{"prompt": "a", "prompt": "b"}', "a name twice"),
        ("9" * 5000, "too long"),
        ("3", "neither a JSON string nor an object"),
        ('{"promt": "a"}', "'promt' is unknown"),
        ('{"id": 1}', "no prompt"),
        ('{"prompt": 3}', "no string"),
        ('{"prompt": "a", "id": true}', "id"),
        ('{"prompt": "a", "id": 1e999}', "id"),
        ('""', "--special"),
        (r'"\ud800"', "surrogate"),
        (json.dumps("a" * (N - 8)), "56 prompt tokens and 9 new ones"),
        (json.dumps("a" * N), "the prompt is 64 tokens"),
    ],
)
def test_a_bad_line_is_named_before_a_weight_is_read(model, there, monkeypatch, line, said):
    monkeypatch.setattr(Checkpoint, "read", lambda *_: pytest.fail("a weight was read"))
    Path("in.jsonl").write_text(f'"a"\n"b"\n{line}\n')
    told = refusal(*options(model))
    assert "in.jsonl: line 3: " in told
    assert said in told
    assert not Path("out.jsonl").exists()


def test_of_many_bad_lines_the_first_are_named_and_the_others_counted(model, there):
    write([*LINES, *range(9)])
    told = refusal(*options(model))
    assert all(f"line {number}: " in told for number in (7, 8, 9))
    assert "line 10" not in told
    assert "and 6 more" in told


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "is empty"), (b"\n", "line 1: "), (b"a\n\xe9", "on line 2")]
)
def test_a_text_file_without_prompts_is_refused(model, there, data, said):
    Path("in.txt").write_bytes(data)
    assert said in refusal(*options(model, prompts="in.txt"))


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["a"], "PROMPT"),
        (["-f", "in.jsonl"], "--file"),
        (["--unconditional"], "--unconditional"),
        (["--no-echo"], "--no-echo"),
        (["-0"], "--null"),
        (["--keep-newline"], "--keep-newline"),
        (["-o", "-"], "-o is a file"),
        (["-o", "./in.jsonl"], "the file of the prompts"),
        (["--batch-size", "0"], "--batch-size"),
        (["--prompts", "in.csv"], "neither in .jsonl nor in .txt"),
    ],
)
def test_what_does_not_go_with_many_prompts_is_wrong_usage(there, args, named):
    ran = run(*options("./no/such/model", *args))
    assert (ran.code, ran.out) == (2, b"")
    assert named in ran.err


@pytest.mark.parametrize("args", [["-o", "out"], ["--batch-size", "2"], ["--force"]])
def test_what_goes_with_many_prompts_only_is_wrong_usage_without(args):
    ran = run("generate", "-m", "./no/such/model", *args, "a")
    assert ran.code == 2
    assert f"{args[0]} goes with --prompts" in ran.err


def test_many_prompts_need_a_file_to_write_to(there):
    ran = run("generate", "-m", "./no/such/model", "--prompts", "in.jsonl")
    assert ran.code == 2
    assert "-o OUT.jsonl" in ran.err


@pytest.mark.parametrize("name", [".", "no/out", "/dev/null", "x" * 300])
def test_an_output_that_cannot_be_one_is_named_before_the_model_is_looked_for(there, name):
    assert name in refusal(*options("./no/such/model", "-o", name))


# Going on


def test_a_file_cut_off_at_any_byte_is_made_whole_again(model, there):
    whole = written(*options(model, "-s", "5"))
    ends = [end for end in range(len(whole) + 1) if whole[end - 1 : end + 1] in (b"\n{", b"\n")]
    around = {end + step for end in ends for step in (-2, -1, 0, 1, 12)}
    places = around | {random.Random(0).randrange(len(whole)) for _ in range(9)}
    for place in sorted(place for place in places if 0 <= place <= len(whole)):
        Path("out.jsonl").write_bytes(whole[:place])
        assert written(*options(model, "-s", "5")) == whole, place


# Runs the program to its end, and then again and again in children that it kills soon after they
# have written something.
KILLER = """
import os, signal, sys, time
import torch
from gpt2cli.cli import main

torch.set_num_threads(1)
try:
    main()
except SystemExit:
    os.rename("out.jsonl", "whole.jsonl")
size = lambda: os.path.getsize("out.jsonl") if os.path.exists("out.jsonl") else 0
for delay in map(float, sys.stdin):
    before = size()
    process = os.fork()
    if not process:
        main()
    while size() == before and not os.waitpid(process, os.WNOHANG)[0]:
        time.sleep(0.0002)
    time.sleep(delay)
    os.kill(process, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


def test_killed_at_any_moment_a_run_goes_on_to_the_same_texts(model, there):
    write([f"{place} {'ab' * (place % 15)}" for place in range(160)])
    args = options(model, "-s", "2", "--batch-size", "1", "-q", "-n", "3")
    delays = [random.Random(place).uniform(0, 0.01) for place in range(12)]
    ran = subprocess.run(
        [sys.executable, "-c", KILLER, *args],
        input="\n".join(map(str, delays)),
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == ["-9"] * 12, ran.stderr
    whole, killed = (Path(name).read_bytes() for name in ("whole.jsonl", "out.jsonl"))
    assert killed.count(b"\n") >= 12
    assert whole.startswith(killed)
    assert written(*args) == whole


@contextmanager
def running(*args: str):
    """The program as a child that has written a line and has more to write."""
    with child(*args) as process:
        while not (Path("out.jsonl").exists() and Path("out.jsonl").stat().st_size):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        yield process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_whole_lines_and_says_how_to_go_on(model, there, sent, code):
    write([f"{place}" for place in range(5000)])
    args = options(model, "--threads", "1", "--batch-size", "2")
    with running(*args) as process:
        assert "another process" in refusal(*args)
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    count = len(rows())
    assert 0 < count < 5000
    assert f"note: {count:,} of 5,000 texts are in out.jsonl; the same command" in err.decode()
    whole = Path("out.jsonl").read_bytes()
    assert whole.endswith(b"\n")
    write([f"{place}" for place in range(count)])
    assert "already" in done(*args).err  # the same command takes what is there
    assert Path("out.jsonl").read_bytes() == whole


def test_what_is_there_is_said_and_its_seed_is_taken(model, there):
    whole = written(*options(model))
    Path("out.jsonl").write_bytes(whole[:-30])
    ran = done(*options(model))
    assert "note: 5 of 6 texts are in out.jsonl already\n" in ran.err
    assert Path("out.jsonl").read_bytes() == whole
    seed = rows()[0]["seed"]
    told = refusal(*options(model, "-s", str(seed // 2)))
    assert f"the seed {seed}, and {seed // 2} was asked for" in told


def test_a_whole_file_is_left_alone_and_no_weight_is_read(model, there, monkeypatch):
    whole = written(*options(model))
    monkeypatch.setattr(Checkpoint, "read", lambda *_: pytest.fail("a weight was read"))
    assert written(*options(model)) == whole


def test_a_run_goes_on_with_the_same_weights_elsewhere_and_other_ways_to_compute(model, there):
    first, *rest = written(*options(model)).splitlines(keepends=True)
    Path("out.jsonl").write_bytes(first)
    moved = tiny(there / "moved")
    others = b"".join(rest).replace(json.dumps(model).encode(), json.dumps(moved).encode())
    args = options(moved, "--batch-size", "2", "--no-draft", "--threads", "1")
    assert written(*args) == first + others


@pytest.mark.parametrize(
    "more",
    [
        ["-n", "8"],
        ["-t", "0.5"],
        ["-k", "3"],
        ["-p", "0.5"],
        ["--min-p", "0.5"],
        ["--repetition-penalty", "2"],
        ["--logit-bias", "1=1"],
        ["--stop", "~"],
        ["--logprobs", "0"],
        ["--overflow", "stop"],
        ["--special"],
        ["--dtype", "int8"],
    ],
    ids="".join,
)
def test_texts_of_other_options_are_refused_and_left_alone(model, there, more):
    whole = written(*options(model))
    told = refusal(*options(model, *more))
    assert "out.jsonl: line 1 has another model or other options" in told
    assert "--force" in told
    assert Path("out.jsonl").read_bytes() == whole


def test_texts_of_other_prompts_ids_samples_and_weights_are_refused(model, there):
    written(*options(model))
    other = tiny(there / "other", seed=1)
    assert "line 1 has another model or other options" in refusal(*options(other))
    assert "line 2 is the text of another prompt" in refusal(*options(model, "--samples", "2"))
    for place in (3, 5):
        changed = [*LINES]
        changed[place] = {"prompt": PROMPTS[place], "id": "other"}
        write(changed)
        assert f"line {place + 1} is the text of another prompt" in refusal(*options(model))
    write(LINES[:4])
    assert "line 5 is one more" in refusal(*options(model))


@pytest.mark.parametrize("data", [b"hello", b"hello\n", b"[1]\n", b"{}\n", b'{"digest": 3}\n'])
@pytest.mark.parametrize("before", [0, 2])
def test_what_no_run_has_written_is_refused_by_line_and_left_alone(model, there, data, before):
    lines = written(*options(model)).splitlines(keepends=True)
    strange = b"".join(lines[:before]) + data
    Path("out.jsonl").write_bytes(strange)
    assert f"out.jsonl: line {before + 1} " in refusal(*options(model))
    assert Path("out.jsonl").read_bytes() == strange


def test_force_starts_over_when_there_is_something_to_write(model, there):
    before = written(*options(model, "-s", "1"))
    refusal(*options(model, "-s", "2", "-n", "60", "--force"))
    assert Path("out.jsonl").read_bytes() == before
    after = written(*options(model, "-s", "2", "--force"))
    Path("out.jsonl").unlink()
    assert after == written(*options(model, "-s", "2"))


def test_a_file_is_refused_while_another_holds_it(model, there):
    with Path("out.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = refusal(*options(model, "--force"))
    assert "another process" in told
    written(*options(model))


@contextmanager
def file_size_limit(most: int):
    """Files of this process grow no longer, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_whole_lines_and_is_one_error(model, there):
    whole = written(*options(model, "-s", "4"))
    third = len(b"".join(whole.splitlines(keepends=True)[:3]))
    Path("out.jsonl").unlink()
    with file_size_limit(third + 50):
        ran: Ran = run(*options(model, "-s", "4", "--batch-size", "1"))
    assert ran.code == 1
    assert "Error: cannot write out.jsonl: File too large" in ran.err
    left = Path("out.jsonl").read_bytes()
    assert whole.startswith(left)
    assert left.endswith(b"\n") or not left
    assert written(*options(model, "-s", "4")) == whole


# What is said on the way


def test_progress_is_said_in_plain_lines_unless_quiet(model, there, monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0)
    said = done(*options(model, "--batch-size", "1")).err.splitlines()
    assert "5 of 6 texts" in said[-2]
    assert "tokens/s" in said[-2]
    assert said[-2].endswith(" left")
    assert said[-1].startswith("6 of 6 texts, ")
    Path("out.jsonl").unlink()
    assert done(*options(model, "-q")).err == ""


def test_timing_is_of_all_texts(model, there):
    assert f"decode        {6 * 9 - 1} tokens" in done(*options(model, "--timing")).err


def test_room_that_is_less_than_the_default_is_said_once(model, there):
    args = [each for each in options(model) if each not in ("-n", "9")]
    assert "note: fewer than 100 new tokens fit beside 6 of the prompts\n" in done(*args).err
