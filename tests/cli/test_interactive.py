"""``gpt2 generate --interactive``, as it is typed at in a terminal."""

import json
import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from program import done, run

pty = pytest.importorskip("pty", reason="a pseudo-terminal is a thing of Unix")

OPTIONS = ("-m", "austen", "--threads", "1", "-n", "8", "-s", "3")
PROMPT = "\n> "


class Typist:
    """Types at a child's terminal and reads what it shows."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unread = ""

    def read(self, until: str) -> str:
        """What is shown up to `until`."""
        while until not in self.unread:
            assert select.select([self.fd], [], [], 60)[0], self.unread
            shown = os.read(self.fd, 65536).decode(errors="replace")
            shown = re.sub(r"\x1b\[\?2004[hl]|\r", "", shown)  # of pasting, and of line ends
            self.unread += shown
        before, _, self.unread = self.unread.partition(until)
        return before

    def enter(self, text: str) -> str:
        """What is shown of an entry, up to the next prompt."""
        os.write(self.fd, f"{text}\n".encode())
        self.read("\n")
        return self.answer()

    def answer(self) -> str:
        """What is shown up to the next prompt, which begins a line."""
        self.unread = "\n" + self.unread
        return self.read(PROMPT).removeprefix("\n")


@contextmanager
def typing(
    *args: str, first: str = "note: /help says what can be done here\n> "
) -> Iterator[Typist]:
    """A loop that has shown what comes `first`; it is left by Ctrl-D and ends well."""
    pid, fd = pty.fork()
    if not pid:
        os.environ |= {"TERM": "xterm", "INPUTRC": os.devnull}
        os.execv(sys.executable, [sys.executable, "-m", "gpt2cli", "generate", "-i", *args])
    try:
        typist = Typist(fd)
        assert typist.read(first) == ""
        yield typist
        os.write(fd, b"\x04")
    finally:
        if sys.exc_info()[0]:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_a_word_leaves_the_loop(word):
    with typing(*OPTIONS) as typist:
        os.write(typist.fd, f"{word}\n".encode())
        typist.read(f"{word}\n")


@pytest.fixture(scope="module")
def loop() -> Iterator[Typist]:
    with typing(*OPTIONS) as typist:
        yield typist


@pytest.fixture(autouse=True)
def afresh(loop: Typist) -> None:
    for name in ("temperature", "max-new-tokens", "stop"):
        loop.enter(f"/set {name}")


def texts(*args: str) -> list[str]:
    ran = done("generate", *OPTIONS, "--json", *args)
    return [json.loads(line)["text"] for line in ran.text.splitlines()]


def test_a_prompt_gets_the_text_it_has_alone_and_retry_the_next_sample(loop):
    first, second = texts("--samples", "2", "Emma")
    assert loop.enter("Emma") == first
    assert loop.enter("/retry") == second
    assert loop.enter("Emma") == first


def test_an_empty_line_goes_on_with_the_text(loop):
    loop.enter("/set temperature 0")
    assert loop.enter("Emma") + loop.enter("") == texts("-t", "0", "-n", "16", "Emma")[0]


def test_lines_can_be_edited_and_called_back(loop):
    assert loop.enter("Ema\x1b[Dm") == texts("Emma")[0]
    assert loop.enter("\x1b[A") == texts("Emma")[0]


def test_triple_quotes_hold_a_prompt_of_several_lines(loop):
    os.write(loop.fd, b'"""\nMy dear\n\nMr."""\n')
    loop.read('Mr."""\n')
    assert loop.answer() == texts("My dear\n\nMr.")[0]


def test_two_slashes_begin_a_prompt_with_one(loop):
    assert loop.enter("//Emma") == texts("/Emma")[0]


def test_what_is_set_counts_for_the_texts_to_come_and_is_shown(loop):
    assert loop.enter("/set temperature 0") == ""
    assert loop.enter("/set stop .") == ""
    assert loop.enter("/set max-new-tokens 60") == ""
    assert loop.enter("Emma") == texts("-t", "0", "--stop", ".", "-n", "60", "Emma")[0]
    shown = loop.enter("/show")
    assert re.search(r"^temperature +0\.0$", shown, re.MULTILINE)
    assert re.search(r"^stop +'\.'$", shown, re.MULTILINE)
    assert " of the 512 tokens" in shown
    assert max(map(len, loop.enter("/set").splitlines())) <= 80
    assert "default" not in loop.enter("/set")
    assert loop.enter("/set n 7") == ""  # as on the command line
    assert re.search("max-new-tokens +7 ", loop.enter("/set"))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("/set temperature -1", "'-1' is not a number"),
        ("/set top-p 3", "top-p"),
        ("/set warmth 1", "nothing called warmth"),
        ("/set samples 2", "nothing called samples"),
        ("/set ignore-eos maybe", "ignore-eos is on or off"),
        ("/set keep 400", "below half"),
        ("/nonsense", "There is no /nonsense"),
        ("long " * 600, "512"),
    ],
)
def test_a_wrong_entry_is_one_line_and_changes_nothing(loop, entry, said):
    shown = loop.enter(entry).splitlines()[-1]
    assert shown.startswith("Error: ")
    assert said in shown
    assert loop.enter("Emma") == texts("Emma")[0]


def test_interrupting_ends_the_text_and_not_the_loop(loop):
    loop.enter("/set max-new-tokens 490")
    os.write(loop.fd, b"Emma\n")
    loop.read("Emma\n")
    begun = loop.read(" ")
    os.write(loop.fd, b"\x03")
    rest = loop.read(PROMPT)
    whole = texts("-n", "490", "Emma")[0]
    assert whole.startswith((begun + " " + rest).rstrip("\n^C"))
    assert len(rest) < len(whole)
    os.write(loop.fd, b"half a line\x03")
    loop.read(PROMPT)
    loop.enter("/set max-new-tokens 8")
    assert loop.enter("Emma") == texts("Emma")[0]


def test_it_is_said_when_the_model_is_nearly_full(loop):
    loop.enter("/set max-new-tokens 400")
    assert "note: 403 of the 512 tokens that the model holds" in loop.enter("Emma")
    assert "Error: " in loop.enter("")
    assert "512" in loop.enter("/show")


def test_help_says_what_can_be_done(loop):
    shown = loop.enter("/help")
    assert all(f"  /{name} " in shown for name in ("retry", "set", "show", "help"))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "args",
    [(), ("--json",), ("-0",), ("--trace",), ("--samples", "2"), ("--unconditional",), ("-",)],
    ids=" ".join,
)
def test_a_loop_needs_a_terminal_and_refuses_what_it_cannot_do(args):
    ran = run("generate", "-i", "-m", "austen", *args)
    assert (ran.code, ran.out) == (2, b"")
    assert "--interactive" in ran.err


def test_a_prompt_of_the_command_line_comes_first():
    with typing(*OPTIONS, "-q", "Emma", first=texts("Emma")[0] + "\n> "):
        pass
