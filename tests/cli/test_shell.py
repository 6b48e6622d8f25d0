"""Shell manners: help, what a prompt may come as, and notes about it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from program import child, done, refusal, run

from gpt2cli.cli import COMMANDS, GROUPS, group

MODEL = Path(__file__).parents[1] / "fixtures" / "hub" / "hub-released"

GENERATE = ("generate", "-m", "austen", "-n", "0")


def command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def examples(help_text: str) -> list[list[str]]:
    """The words of each example: its lines begin with ``gpt2`` or pipe into it."""
    lines = [line.strip() for line in help_text.splitlines()]
    shown = [line for line in lines if re.match(r"gpt2 \w|eval |cat .*\| gpt2", line)]
    return [shlex.split(re.split(r" {3,}", line)[0]) for line in shown]


# Help


def test_help_lists_every_command_in_its_group():
    text = done("--help").text
    found = {
        title: tuple(re.findall(r"^  (\w+)  ", body, re.MULTILINE))
        for title, body in re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.MULTILINE)
    }
    assert {title: found[title] for title in GROUPS} == GROUPS


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_examples_of_options_that_exist(name):
    shown = examples(done(*name.split(), "--help").text)
    assert shown
    for words in shown:
        if "gpt2" not in words:
            continue
        given = words[words.index("gpt2") + 1 :]
        given = given[: given.index(">")] if ">" in given else given
        options = {
            option
            for each in command(given[0]).params
            for option in each.opts + each.secondary_opts
        }
        assert {word for word in given if re.match("--?[a-z]", word)} <= options


@pytest.mark.parametrize("columns", ["60", "80"])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_no_line_of_help_but_an_example_is_wider_than_the_terminal(name, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    lines = done(*name.split(), "--help").text.splitlines()
    wide = [line for line in lines if len(line) > int(columns)]
    assert [line for line in wide if not re.match(r"  (gpt2|cat|eval) ", line)] == []


# Standard input


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", b"a\r\nb"),
        (b"\xef\xbb\xbfa\n", b"a"),
        ("né".encode() + b"\n\n", "né\n".encode()),
    ],
)
def test_a_pipe_loses_a_byte_order_mark_and_one_line_end(data, text, tmp_path):
    (tmp_path / "x").write_bytes(data)
    for ran in (done(*GENERATE, stdin=data), done(*GENERATE, "-f", str(tmp_path / "x"))):
        assert ran.out.removesuffix(b"\n") == text.removesuffix(b"\n")


def test_a_byte_order_mark_that_is_typed_or_counted_is_kept():
    assert done(*GENERATE, "\ufeffa").text == "\ufeffa\n"
    assert done("tokens", "--decode", stdin=done("tokens", stdin=b"\xef\xbb\xbfa").out).out == (
        b"\xef\xbb\xbfa"
    )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_text_as_windows_writes_it_is_refused_with_its_encodings_name(encoding):
    data = "\ufeffné".encode(encoding)
    assert "try --encoding utf-16" in refusal(*GENERATE, stdin=data)
    assert done(*GENERATE, "--encoding", "utf-16", stdin=data).text == "né\n"


def test_bytes_in_an_unknown_encoding_are_refused_in_one_line():
    line = refusal(*GENERATE, stdin=b"caf\xe9")
    assert "byte 3 is 0xE9" in line
    assert "--encoding" in line


def test_a_here_document_is_a_prompt():
    script = (
        f'{shlex.quote(sys.executable)} -m gpt2cli {shlex.join(GENERATE)} <<"EOF"\nIt is\nEOF\n'
    )
    ran = subprocess.run(["sh", "-c", script], capture_output=True)
    assert (ran.stdout, ran.stderr) == (b"It is\n", b"")


# Notes about a prompt


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("It is ", "ends in a blank"),
        ("It is  ", "ends in a blank"),
        ("It is", ""),
        (" ", ""),
        ("It\r\nis", "end in CR LF"),
        ("It\nis", ""),
    ],
)
def test_a_prompt_that_goes_on_badly_is_noted_once_and_not_when_quiet(prompt, words):
    ran = done(*GENERATE, "--samples", "2", "-s", "1", prompt)
    assert words in ran.err
    assert ran.err.count("\n") == bool(words)
    assert done(*GENERATE, "-q", prompt).err == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--overflow", "stop", "-n", "200"], "12 new tokens fit beside the prompt's 500"),
        (["--overflow", "stop", "-n", "12"], ""),
        ([], "12 new tokens fit beside the prompt's 500"),
    ],
)
def test_a_prompt_near_the_limit_is_noted(options, words):
    prompt = " the" * 500  # of 512
    assert done("tokens", "-m", "austen", "--count", prompt).text == "500\n"
    ran = done("generate", "-m", "austen", "--no-draft", "-t", "0", *options, prompt)
    assert words in ran.err
    assert ran.err.count("\n") == bool(words)


# The program's beginning and end


@pytest.mark.parametrize(
    "args",
    [
        ("convert", str(MODEL), "OUT"),
        ("score", "-m", "austen", "a " * 600),  # more than the model's 512 positions
        ("download", "austen"),
        ("models",),
    ],
    ids=lambda args: args[0],
)
def test_a_closed_standard_error_is_no_bug(args, tmp_path):
    args = [str(tmp_path / "out") if arg == "OUT" else arg for arg in args]
    with child(*args, preexec_fn=lambda: os.close(2)) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_of_help_is_broken_at_its_hyphen(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = done(name, "--help").text
    assert not re.search(r"\w-\n", text)
    assert "\N{NON-BREAKING HYPHEN}" not in text


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("--file", ("generate", "-f", "")),
        ("--prompts", ("generate", "--prompts", "", "-o", "o.jsonl")),
        ("--output", ("generate", "--prompts", "p.txt", "-o", "")),
        ("--file", ("score", "-f", "")),
        ("--html", ("score", "--html", "", "text")),
        ("--file", ("tokens", "-f", "")),
        ("--reference", ("verify", "--reference", "")),
        ("--record", ("verify", "--record", "")),
        ("--to", ("download", "gpt2", "--to", "")),
        ("DEST", ("convert", "austen", "")),
    ],
)
def test_the_empty_name_of_a_file_is_not_the_current_folder(name, args):
    assert refusal(*args) == f"Error: {name} is empty; give the name of a file or folder\n"


@pytest.mark.parametrize("value", ["\N{ARABIC-INDIC DIGIT THREE}", "1_000", " 3", "0x3", ""])
def test_a_number_is_written_in_plain_digits(value):
    ran = run("generate", "-m", "austen", "-k", value, "text")
    assert (ran.code, ran.out) == (2, b"")
    assert "is not a whole number, 0 or more" in ran.err


def test_a_note_is_one_line_whatever_it_names(tmp_path):
    page = tmp_path / "a\nb.html"
    ran = done("score", "-m", "austen", "--html", str(page), "a text")
    assert page.exists()
    assert ran.err.count("\n") == 1
