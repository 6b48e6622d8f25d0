"""``gpt2 score``: what it says of a text, and how it shows it.

The model of most tests says the same of every text: its logits are those of `uniform` or `liking`,
whatever came before, and token i is byte i. So 256 equal ids are 8 bits each.
"""

import io
import json
import math
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import checkpoints
import numpy as np
import pytest
from program import done, refusal, run

from gpt2cli.cli import options, output, score, surprisal_page
from gpt2cli.cli.score_report import ScoreReport
from gpt2cli.cli.surprisal import BOUNDS, STEPS, Piece, coloured, stretches
from gpt2cli.sampling import TokenLogprob
from gpt2cli.scoring import Total
from gpt2cli.tokenizer import load_tokenizer
from gpt2cli.tokenizer.merges import spelled

pytestmark = pytest.mark.usefixtures("one_thread")

N = 8  # positions
END = 256


def uniform(folder: Path, rows: int = 256, likes: dict[int, float] | None = None, **fields) -> str:
    """A model of bytes, all equally likely but those it `likes`: their logits are given, not 0."""
    width = 4
    config = {"vocab_size": rows, "n_positions": N, "n_embd": width, "n_layer": 1, "n_head": 1}
    config |= {"model_type": "gpt2", "tie_word_embeddings": False, **fields}
    arrays = {n: np.zeros_like(a) for n, a in checkpoints.random_arrays(config).items()}
    arrays["ln_f.bias"][0] = 1
    for token, logit in (likes or {}).items():
        arrays["lm_head.weight"][token, 0] = logit
    checkpoints.write(folder, config, arrays=arrays)
    table = {spelled(bytes([byte])): byte for byte in range(256)}
    table |= {"<|endoftext|>": END} if rows > END else {}
    (folder / "vocab.json").write_text(json.dumps(table))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return str(folder)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return uniform(tmp_path / "model")


def scored(*args: str, stdin: bytes | None = None) -> dict:
    ran = done("score", *args, "--json", stdin=stdin)
    assert ran.out.endswith(b"}\n")
    return json.loads(ran.text, parse_constant=lambda name: pytest.fail(name))


# Figures


def test_json_has_the_figures_of_the_scored_tokens_and_of_all_bytes(model: str) -> None:
    found = scored("-m", model, "abcde")
    assert found == {
        "tokens": 5,
        "logprob": pytest.approx(-4 * math.log(256)),
        "perplexity": pytest.approx(256),
        "bits_per_byte": pytest.approx(4 * 8 / 5),
        "bytes": 5,
        "window": N,
        "stride": N // 2,
        "bos": False,
    }
    assert [*found] == "tokens logprob perplexity bits_per_byte bytes window stride bos".split()


def test_with_the_start_token_the_first_token_is_scored_and_all_bytes_count(tmp_path: Path) -> None:
    model = uniform(tmp_path / "model", END + 1, likes={END: -300})
    for text in ("a", "abcde" * 9):
        found = scored("-m", model, "--bos", text)
        assert (found["tokens"], found["bytes"], found["bos"]) == (len(text), len(text), True)
        assert found["bits_per_byte"] == pytest.approx(8)


def test_the_start_token_is_what_the_first_token_follows(tmp_path: Path) -> None:
    config = {**checkpoints.TINY, "vocab_size": 256, "bos_token_id": 7}
    folder = Path(uniform(tmp_path / "model"))
    checkpoints.write(folder, config)
    both = scored("-m", str(folder), "\x07abc", "--tokens")["token_scores"]
    alone = scored("-m", str(folder), "abc", "--bos", "--tokens")["token_scores"]
    assert both[0]["logprob"] is None
    assert [each["logprob"] for each in alone] == [each["logprob"] for each in both[1:]]


def test_any_bytes_are_scored_exactly_wherever_they_come_from(model: str, tmp_path: Path) -> None:
    data = bytes(range(256)) + "ça 🤗".encode()[:-1] + b"\r\n\n"
    (tmp_path / "x").write_bytes(data)
    found = scored("-m", model, "-f", str(tmp_path / "x"), "--tokens")
    assert bytes(byte for each in found["token_scores"] for byte in each["bytes"]) == data
    assert found["bytes"] == found["tokens"] == len(data)
    for args in (("-f", "-"), ("-",), ()):
        assert scored("-m", model, *args, "--tokens", stdin=data) == found


def test_end_of_text_is_text_unless_special(tmp_path: Path) -> None:
    model = uniform(tmp_path / "model", END + 1)
    text = "a<|endoftext|>"
    assert scored("-m", model, text)["tokens"] == len(text)
    special = scored("-m", model, text, "--special", "--tokens")
    assert special["bytes"] == len(text)
    assert [each["id"] for each in special["token_scores"]] == [97, END]


def test_window_and_stride_are_those_asked_for(model: str) -> None:
    text = "a" * 9
    for args, window, stride, unscored in (
        (("--window", "5"), 5, 2, [0]),
        (("--stride", "1"), N, 1, [0]),
        (("--window", "4", "--stride", "4"), 4, 4, [0, 4, 8]),
    ):
        found = scored("-m", model, text, "--tokens", *args)
        assert (found["window"], found["stride"]) == (window, stride)
        each = found["token_scores"]
        assert [i for i, token in enumerate(each) if token["logprob"] is None] == unscored
        assert found["logprob"] == pytest.approx(-math.log(256) * (9 - len(unscored)))


def test_a_perplexity_past_all_floats_is_null(tmp_path: Path) -> None:
    model = uniform(tmp_path / "model", likes={0: 2000})
    assert scored("-m", model, "abc")["perplexity"] is None
    assert "perplexity       inf" in done("score", "-m", model, "abc").text


def test_figures_are_columns_that_say_what_they_are_over(model: str) -> None:
    lines = done("score", "-m", model, "ab cde\n").text.splitlines()
    assert lines[0] == model
    said = {line[2:17].rstrip(): line[19:] for line in lines[1:]}
    assert {name: value.split()[0] for name, value in said.items()} == {
        "tokens": "7",
        "scored tokens": "6",
        "words": "2",
        "bytes": "7",
        "log-probability": f"{-6 * math.log(256):.3f}",
        "perplexity": "256.00",
        "nats per token": f"{math.log(256):.4f}",
        "nats per word": f"{6 * math.log(256) / 2:.4f}",
        "bits per byte": f"{6 * 8 / 7:.4f}",
        "window": "8",
        "stride": "4",
        "start token": "no",
    }
    remarks = [re.search(r"\S  +(?=[a-z])", line[19:]) for line in lines[1:]]
    assert len({found.end() for found in remarks if found}) == 1
    assert "--bos scores it" in said["scored tokens"]


def test_a_text_of_white_space_has_no_words(model: str) -> None:
    assert "per word" not in done("score", "-m", model, " \n ").text


# What is refused


def test_a_text_that_cannot_be_scored_says_why(model: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "standard input is empty" in refusal("score", "-m", model, stdin=b"")
    assert "empty is empty" in refusal("score", "-m", model, "-f", str(tmp_path / "empty"))
    assert "TEXT is empty" in refusal("score", "-m", model, "--bos", "")
    assert "one token, which follows nothing; --bos" in refusal("score", "-m", model, "a")
    assert "no start token; score the text without" in refusal("score", "-m", model, "--bos", "a")
    short = uniform(tmp_path / "short", n_positions=1)
    assert "this model holds one token" in refusal("score", "-m", short, "ab")


def test_a_vocabulary_that_the_model_has_no_rows_for_is_refused(tmp_path: Path) -> None:
    model = uniform(tmp_path / "model")
    checkpoints.write(Path(model), {**checkpoints.TINY, "vocab_size": 200})
    assert "has id 255, and the model has ids below 200" in refusal("score", "-m", model, "ab")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a", "b"], "TEXT is one argument"),
        ([], "Give TEXT"),
        (["ab", "-f", "x"], "both given"),
        (["ab", "--window", "9"], "--window is 8 at most"),
        (["ab", "--window", "1"], "2 or more"),
        (["ab", "--window", "4", "--stride", "5"], "--stride is at most the window, 4"),
        (["ab", "--stride", "9"], "--stride is at most the window, 8"),
        (["ab", "--stride", "0"], "1 or more"),
        (["ab", "--top", "3"], "--top needs --html"),
    ],
)
def test_wrong_usage_is_named(model: str, args: list[str], said: str) -> None:
    ran = run("score", "-m", model, *args)
    assert (ran.code, ran.out) == (2, b"")
    assert said in ran.err


# Tokens as text


def piece(data: bytes, bits: float | None, top: tuple[tuple[int, float], ...] = ()) -> Piece:
    score = None if bits is None else TokenLogprob(0, -bits * math.log(2), top)
    return Piece(0, data, score)


def test_without_colour_every_token_has_a_line_that_says_its_surprisal(model: str) -> None:
    table, _ = done("score", "-m", model, "--tokens", stdin="a\né".encode()).text.split("\n\n")
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["–", "'a'"],
        ["8.00", "████████", r"'\n'"],
        ["8.00", "████████", r"b'\xc3'"],
        ["8.00", "████████", r"b'\xa9'"],
    ]


def test_a_bar_that_is_cut_off_says_so(tmp_path: Path) -> None:
    model = uniform(tmp_path / "model", likes={0: 1000})
    assert "█" * 19 + "▶  'b'" in done("score", "-m", model, "--tokens", "ab").text


def test_a_terminal_shows_the_text_in_colour_under_a_legend(model: str, monkeypatch) -> None:
    monkeypatch.setattr(score, "in_colour", lambda: True)
    text = "one\n\ttwo é🤗\n"
    shown = done("score", "-m", model, "--tokens", text).text
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    legend, rest = plain.split("\n\n", 1)
    assert [name for name in (*STEPS, "not scored") if name not in legend] == []
    assert rest.startswith(text.replace("\n", "↵\n"))
    assert "tokens  " in rest


def test_each_step_has_a_colour_of_its_own_and_no_colour_runs_past_a_line() -> None:
    bits = [None, 0.5, *BOUNDS]
    _, _, *lines = coloured([piece(b"x\n", each) for each in bits])
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines] == ["x↵"] * 6
    assert len(set(lines)) == 6
    assert all(line.endswith("\x1b[0m") for line in lines if "\x1b" in line)


def test_characters_that_tokens_share_are_shown_whole_with_their_surprisal_together() -> None:
    first, second = stretches([piece(b" \xf0\x9f", 2), piece(b"\xa4\x97", 2.5), piece(b"!", 0)])
    assert (first.text, first.step, len(first.pieces)) == (" 🤗", 2, 2)
    assert (second.text, second.step) == ("!", 0)
    (cut,) = stretches([piece(b"a\xf0\x9f", None)])
    assert (cut.text, cut.step) == ("a\ufffd", None)


def test_nothing_in_a_text_acts_on_the_terminal(model: str, monkeypatch) -> None:
    monkeypatch.setattr(score, "in_colour", lambda: True)
    data = b"\x1b[2J\x07\r\x00\x7f\xc2\x9b"
    shown = done("score", "-m", model, "--tokens", stdin=data).text
    rest = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "␛[2J␇␍␀␡�" in rest
    assert not set(rest) & set("\x1b\x07\r\x00\x7f\x9b")


@pytest.mark.parametrize(
    ("terminal", "settings", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_whose_users_have_not_said_no(
    monkeypatch, terminal: bool, settings: dict[str, str], colour: bool
) -> None:
    stdout = io.StringIO()
    stdout.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert output.in_colour() is colour


@pytest.mark.parametrize(
    ("n_tokens", "terminal", "more", "shown"),
    [
        (N + 1, True, [], True),
        (N + 1, True, ["-q"], False),
        (N + 1, False, [], False),
        (N, True, [], False),  # one window
    ],
)
def test_a_terminal_sees_how_far_a_long_text_is(
    model: str, monkeypatch, n_tokens: int, terminal: bool, more: list[str], shown: bool
) -> None:
    stderr = io.StringIO()
    stderr.isatty = lambda: terminal
    for module in (options, score):
        monkeypatch.setattr(module, "sys", SimpleNamespace(**vars(sys) | {"stderr": stderr}))
    done("score", "-m", model, "a" * n_tokens, *more)
    assert bool(re.search(r"scoring .*100%", stderr.getvalue())) is shown
    assert shown or stderr.getvalue() == ""


# The page


HOSTILE = "<script>document.title='ran'</script>\n\t\"quoted\" & 'so' </main> é🤗\x00\r&amp;"


class Page(HTMLParser):
    """A page's elements, and the text and the spans of its main part."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.spans: list[dict[str, str]] = []
        self._inside = False
        self.source = path.read_bytes().decode()
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside |= tag == "main"
        if self._inside and tag == "span":
            self.spans.append(dict(attrs))

    def handle_endtag(self, tag):
        self._inside &= tag != "main"

    def handle_data(self, data):
        if self._inside:
            self.text += data


def test_a_page_does_not_take_the_place_of_its_text(model: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("ab")
    ran = run("score", "-m", model, "-f", str(text), "--html", str(text))
    assert ran.code == 1
    assert "it is read in this run; name another file" in ran.err
    assert text.read_text() == "ab"


@pytest.fixture
def page(model: str, tmp_path: Path) -> Page:
    path = tmp_path / "page.html"
    path.write_text("what was there before")
    ran = done("score", "-m", model, "--html", str(path), HOSTILE.replace("\x00", "\x01"))
    assert ran.err == f"note: wrote {path}\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "page.html"]
    return Page(path)


def test_a_page_holds_the_text_as_text_whatever_it_is(page: Page) -> None:
    assert page.text == HOSTILE.replace("\x00", "␁").replace("\r", "␍")


def test_names_and_tokens_that_are_markup_are_text(tmp_path: Path) -> None:
    pieces = [piece(b"<script>", 1), piece(b"</main>&amp;", None)]
    report = ScoreReport("</title><b>", pieces, Total(-1, 1), 1, 20, 8, 4, False)
    path = tmp_path / "page.html"
    path.write_bytes(surprisal_page.page(report, load_tokenizer(None, None)))
    assert Page(path).text == "<script></main>&amp;"
    assert {"script", "b"} & {tag for tag, _ in Page(path).elements} == {"b"}  # the legend's
    assert "<title>A text under &lt;/title&gt;&lt;b&gt;</title>" in Page(path).source


def test_a_page_stands_alone_and_runs_nothing(page: Page) -> None:
    tags = {tag for tag, _ in page.elements}
    assert tags & {"script", "link", "img", "iframe", "object", "base", "form"} == set()
    given = {name for _, attributes in page.elements for name in attributes}
    assert {name for name in given if name.startswith("on") or name in ("src", "href")} == set()
    assert re.search(r"url\(|@import|https?:", page.source) is None
    policy = dict(a for _, each in page.elements if "http-equiv" in each for a in each.items())
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_token_of_a_page_can_be_reached_and_says_more(page: Page) -> None:
    assert {each["tabindex"] for each in page.spans} == {"0"}
    assert page.spans[0]["class"] == "u"
    assert page.spans[1]["class"] == "s3"  # 8 bits
    assert page.spans[1]["data-tip"].startswith("'s'  token 115: 8.00 bits, probability 0.391 %\n")
    (shared,) = (each["data-tip"] for each in page.spans if r"\xc3" in each["data-tip"].split()[0])
    assert r"b'\xc3'  token 195" in shared
    assert r"b'\xa9'  token 169" in shared


def test_a_page_names_the_likeliest_tokens_in_their_order(tmp_path: Path) -> None:
    # logits ln 600, ln 300, and 254 zeros: of 1154, 600, 300 and 1 each
    model = uniform(tmp_path / "model", likes={98: math.log(600), 99: math.log(300)})
    path = tmp_path / "page.html"
    done("score", "-m", model, "-q", "--html", str(path), "--top", "2", "ac")
    head, *top = Page(path).spans[1]["data-tip"].split("\n")
    assert head.endswith("probability 26 %")
    assert [line.split() for line in top] == [["52", "%", "'b'"], ["26", "%", "'c'"]]


def test_a_place_that_no_page_can_be_written_to_is_refused_first(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "it is a folder"), (tmp_path / "no" / "x", "there is no folder")):
        assert said in refusal("score", "-m", "no-such-model", "--html", str(path), "ab")


@pytest.mark.parametrize("scheme", [surprisal_page.LIGHT, surprisal_page.DARK])
def test_letters_can_be_read_on_every_colour_and_grey_tells_the_steps_apart(
    scheme: dict[str, str],
) -> None:
    shades = [luminance(scheme[f"s{step}"]) for step in range(len(STEPS))]
    for shade in shades:
        light, dark = sorted((luminance(scheme["ink"]), shade), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, success criterion 1.4.3
    assert shades in (sorted(shades), sorted(shades, reverse=True))


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_shows_the_text_and_runs_none_of_it(page: Page, tmp_path: Path) -> None:
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --dump-dom"
    ran = subprocess.run(
        [
            BROWSER,
            *options.split(),
            "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        check=True,
    )
    (tmp_path / "seen.html").write_bytes(ran.stdout)
    seen = Page(tmp_path / "seen.html")
    assert seen.text == page.text
    assert seen.spans == page.spans
    assert "<title>A text under" in seen.source


def test_a_page_is_never_written_to_standard_output():
    ran = run("score", "-m", "austen", "--html", "-", "a text")
    assert (ran.code, ran.out) == (2, b"")
    assert "name a file for it" in ran.err
