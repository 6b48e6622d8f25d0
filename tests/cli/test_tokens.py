"""``gpt2 tokens``: what it prints for texts, files and pipes, and what it refuses."""

import json
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from gpt2cli.cli.text_input import read_text
from gpt2cli.cli.tokens import command
from gpt2cli.errors import GPT2Error


def run(*args: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(command, list(args), input=stdin, catch_exceptions=True)


def out(*args: str, stdin: bytes | None = None) -> bytes:
    result = run(*args, stdin=stdin)
    assert result.exit_code == 0, result.exception or result.output
    assert result.stderr == ""
    return result.stdout_bytes


def refusal(*args: str, stdin: bytes | None = None) -> str:
    """The message of the error that the program's seam prints and turns into exit code 1."""
    result = run(*args, stdin=stdin)
    assert isinstance(result.exception, GPT2Error), result.output
    return str(result.exception)


def usage(*args: str, stdin: bytes | None = None) -> str:
    result = run(*args, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr


def test_a_text_becomes_ids_on_one_line():
    assert out("hello world") == b"31373 995\n"
    assert out("") == b"\n"


def test_ids_become_the_exact_bytes_with_nothing_added():
    assert out("--decode", "88", "318", "5633") == b"y is ?"
    assert out("--decode", stdin=b"88,318\n 5633,") == b"y is ?"
    assert out("--decode", "[88, 318, 5633]") == out("--decode", stdin=b"[88, 318, 5633]\n")
    assert out("--decode", "[88, 318, 5633]") == b"y is ?"
    assert out("--decode", "12520") == b" \xf0\x9f"
    assert out("--decode", "50256") == b"<|endoftext|>"


def test_a_file_or_a_pipe_is_taken_byte_for_byte(tmp_path):
    data = bytes(range(256)) + "ça 🤗\r\n".encode()
    (tmp_path / "x").write_bytes(data)
    ids = out("-f", str(tmp_path / "x"))
    assert ids == out(stdin=data) == out("-", stdin=data) == out("-f", "-", stdin=data)
    assert out("--decode", stdin=ids) == data
    (tmp_path / "ids").write_bytes(ids)
    assert out("--decode", "--file", str(tmp_path / "ids")) == data


def test_count_pieces_and_json_say_the_same():
    text = "hi 🤗'\n"
    assert out("--count", text) == b"6\n"
    pieces = (
        "5303\t'hi'\n12520\tb' \\xf0\\x9f'\n97\tb'\\xa4'\n245\tb'\\x97'\n6\t\"'\"\n198\t'\\n'\n"
    )
    assert out("--pieces", text) == pieces.encode()
    assert json.loads(out("--json", text)) == {
        "ids": [5303, 12520, 97, 245, 6, 198],
        "pieces": ["hi", " \ufffd", "\ufffd", "\ufffd", "'", "\n"],
        "count": 6,
    }
    assert out("--count", stdin=b"") == b"0\n"


def test_end_of_text_is_text_unless_special():
    assert out("--count", "<|endoftext|>") == b"7\n"
    assert out("--special", "a<|endoftext|>") == b"64 50256\n"


def test_another_model_has_its_own_ids_and_the_environment_names_it(monkeypatch):
    ids = out("-m", "austen", "My dear Mr. Bennet")
    assert ids != out("My dear Mr. Bennet")
    monkeypatch.setenv("GPT2_MODEL", "austen")
    assert out("My dear Mr. Bennet") == ids
    assert out("--decode", *ids.decode().split()) == b"My dear Mr. Bennet"


def test_ids_outside_the_vocabulary_and_unreadable_files_are_named(tmp_path):
    said = (
        "token id 999999 is not in the vocabulary of austen (its ids end at 4095); name the model"
    )
    assert refusal("-m", "austen", "--decode", "5", "999999").startswith(said)
    assert refusal("--decode", stdin=b"1 x").startswith("'x' is not a token id")
    assert str(tmp_path) in refusal("-f", str(tmp_path))
    assert "nowhere.txt: No such file" in refusal("-f", str(tmp_path / "nowhere.txt"))
    assert "has no tokenizer files" in refusal("-m", str(tmp_path), "text")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "onlyone",
            r"merges\.txt, line 2: \['onlyone'\] is no merge of two .*; fetch the file again",
        ),
        ("a b", r"merge a b cannot be followed: ab is not a token; fetch both files again"),
    ],
)
def test_merges_that_cannot_be_read_get_a_next_step(tmp_path, line, said):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{line}\n")
    assert re.search(f"{said}$", refusal("-m", str(tmp_path), "a"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("a", "b"), "put it in quotes"),
        (("a", "-f", "b"), "both given"),
        (("--count", "--pieces", "a"), "Give one of"),
        (("--decode", "--json", "1"), "Give one of"),
        (("--decode", "--special", "1"), "no meaning"),
        (("--decode", "one"), "'one' is not a token id"),
        (("--decode", "--", "-1"), "'-1' is not a token id"),
        (("--decode", "[1, 2"), "'[1' is not a token id"),
    ],
)
def test_wrong_usage_is_said(args, message):
    assert message in usage(*args)


def test_an_argument_that_is_no_text_is_taken_byte_for_byte_and_nothing_heavy_is_loaded():
    program = (
        "import sys; from gpt2cli.cli.tokens import command\n"
        "command(standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'requests'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, b"caf\xe9"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert ran.stdout == out(stdin=b"caf\xe9") + b"[]\n"


def text_of(data: bytes, encoding: str | None = None, keep_newline: bool = False) -> str | None:
    """What `read_text` makes of a pipe."""
    found: list[str | None] = []

    @click.command()
    def probe() -> None:
        found.append(read_text(None, None, encoding=encoding, keep_newline=keep_newline))

    result = CliRunner().invoke(probe, input=data)
    if result.exception:
        raise result.exception
    return found[0]


def test_one_final_newline_of_a_pipe_or_file_is_dropped_unless_kept(tmp_path):
    assert text_of(b"a\n\n") == "a\n"
    assert text_of(b"a\r\n") == "a"
    assert text_of(b"a\n", keep_newline=True) == "a\n"
    assert text_of(b"a ") == "a "
    (tmp_path / "x").write_bytes(b"a\nb\n")
    assert read_text(None, tmp_path / "x", encoding=None, keep_newline=False) == "a\nb"
    assert read_text("a\n", None, encoding=None, keep_newline=False) == "a\n"


def test_bytes_that_are_no_utf8_are_refused_unless_their_encoding_is_named():
    with pytest.raises(GPT2Error, match="standard input is not UTF-8: byte 3 is 0xE9"):
        text_of(b"caf\xe9")
    assert text_of(b"caf\xe9\n", encoding="latin-1") == "café"
    assert text_of("né\n".encode("utf-16"), encoding="utf-16") == "né"
    with pytest.raises(GPT2Error, match="standard input is not ascii: byte 3 is 0xE9; name its"):
        text_of(b"caf\xe9", encoding="ascii")
    with pytest.raises(GPT2Error, match="PROMPT is not UTF-8"):
        read_text("caf\udce9", None, encoding=None, keep_newline=False)
    assert read_text("caf\udce9", None, encoding="latin-1", keep_newline=False) == "café"


def test_a_typed_prompt_that_is_utf8_is_literal_whatever_the_encoding():
    for encoding in ("latin-1", "utf-16", "ascii"):
        assert read_text("né 🤗", None, encoding=encoding, keep_newline=False) == "né 🤗"


def test_an_empty_text_is_refused_and_the_way_without_one_is_named(tmp_path):
    for data, what in (
        (b"", "is empty"),
        (b"\n", "is a newline alone, which --keep-newline keeps"),
    ):
        with pytest.raises(GPT2Error, match=f"standard input {what}; --unconditional"):
            text_of(data)
    (tmp_path / "empty").touch()
    with pytest.raises(GPT2Error, match="empty is empty"):
        read_text(None, tmp_path / "empty", encoding=None, keep_newline=False)
    with pytest.raises(GPT2Error, match="PROMPT is empty"):
        read_text("", None, encoding=None, keep_newline=False)


def test_a_prompt_is_taken_without_touching_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert read_text("a", None, encoding=None, keep_newline=False) == "a"


def test_standard_input_that_is_closed_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    for prompt in (None, "-"):
        with pytest.raises(GPT2Error, match=r"standard input is closed; .* --unconditional"):
            read_text(prompt, None, encoding=None, keep_newline=False)


def test_a_prompt_and_a_file_together_are_wrong_usage(tmp_path):
    with pytest.raises(click.UsageError, match="both given"):
        read_text("a", tmp_path / "x", encoding=None, keep_newline=False)
