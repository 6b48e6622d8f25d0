"""What is said of many texts while they are written."""

import io
import re
import sys
from itertools import count
from types import SimpleNamespace

import pytest

from gpt2cli.cli import download, progress


def said(monkeypatch, lengths: list[int]) -> list[str]:
    """Each second's line of texts that are written one after another, a token a second."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 1)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    def steps():
        for length in lengths:
            text = SimpleNamespace(tokens=[], finish_reason=None)
            for number in count(1):
                clock.now += 1
                text.tokens.append(number)
                text.finish_reason = "length" if number == length else None
                yield SimpleNamespace(token=number, continuation=text)
                if text.finish_reason:
                    break

    with progress.Progress(0, len(lengths), quiet=False) as shown:
        list(shown.watch(steps()))
    return sys.stderr.getvalue().splitlines()


def test_the_time_left_is_known_from_the_first_text_on_and_falls(monkeypatch):
    lines = said(monkeypatch, [4] * 3)
    assert lines[0] == "0 of 3 texts, 1 tokens/s, time left unknown"
    assert lines[3] == "1 of 3 texts, 1 tokens/s, 0:08 left"
    left = [line.split(", ")[-1] for line in lines[3:-1]]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 5
    assert lines[-1] == "3 of 3 texts, 1 tokens/s, took 0:12"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_first_bytes_of_a_download_tell_nothing_of_the_time_left(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(download, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(sys, "stderr", Screen())
    with download.bars(False)("fetching", 10_000) as advance:
        clock.now = 10.0
        advance(50)
        assert " left" not in sys.stderr.getvalue()
        clock.now = 20.0
        advance(4950)
    lines = re.sub(r"\x1b\[\?25[lh]", "", sys.stderr.getvalue()).split("\r")
    (line,) = (line for line in lines if " left" in line)
    assert re.match(r"fetching 10 kB +\[.*\] +50%  0:20 left", line)
    assert len(line.rstrip()) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")]
)
def test_a_time_is_in_hours_minutes_and_seconds(seconds, text):
    assert progress.duration(seconds) == text
