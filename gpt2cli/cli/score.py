"""gpt2 score: how likely a text is, token by token."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..checkpoint.single_file import check_writable, write_whole
from ..errors import GPT2Error
from . import surprisal_page
from .opening import network, open_with_tokenizer
from .options import NAME, computing, model_option, note, number, quiet_option, shows_progress
from .output import emit, emit_lines, in_colour, json_line
from .score_report import ScoreReport
from .surprisal import Piece, coloured, table
from .text_input import STDIN, read_bytes

if TYPE_CHECKING:
    from ..config import GPT2Config
    from ..sampling import TokenLogprob
    from ..tokenizer import Tokenizer

MOST_ALTERNATIVES = 100


@click.command("score", short_help="Say how likely a text is.")
@click.argument("words", metavar="[TEXT]", nargs=-1)
@model_option
@click.option(
    "-f",
    "--file",
    type=NAME,
    metavar="FILE",
    help="Read the text from FILE; - is standard input.",
)
@click.option("--special", is_flag=True, help="<|endoftext|> in the text is that token, not text.")
@click.option(
    "--bos/--no-bos",
    default=False,
    show_default=True,
    help="Put the start token before the text, so that the first token is scored too.",
)
@click.option(
    "--window",
    type=number(int, 2),
    metavar="N",
    help="Tokens read together.  [default: n_positions]",
)
@click.option(
    "--stride",
    type=number(int, 1),
    metavar="N",
    help="Tokens from one window's start to the next.  [default: half the window]",
)
@click.option("--tokens", "each", is_flag=True, help="Print the text by token, with its surprisal.")
@click.option(
    "--html",
    "page",
    type=NAME,
    metavar="FILE",
    help="Write the text by token as a page that needs nothing else; FILE is replaced.",
)
@click.option(
    "--top",
    type=number(int, 0, MOST_ALTERNATIVES),
    metavar="N",
    default=5,
    show_default=True,
    help="With --html: likeliest tokens to show in each place.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; --tokens adds each token.")
@computing
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    model: str,
    file: Path | None,
    special: bool,
    bos: bool,
    window: int | None,
    stride: int | None,
    each: bool,
    page: Path | None,
    top: int,
    as_json: bool,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    """Print the log-probability, perplexity and bits per byte of TEXT, a file, or standard input.

    \b
    gpt2 score -m austen "It was a truth universally acknowledged."
    gpt2 score -m austen --tokens -f letter.txt
    gpt2 score -m austen -q --html letter.html --json -f letter.txt

    The text is taken byte for byte: a file's last newline is scored like all else. Logs are
    natural. Without --bos the first token follows nothing and is not scored; perplexity is over
    the scored tokens, bits per byte over all bytes.

    A text longer than the window is read in windows that begin every --stride tokens, and each
    token is scored in the first that holds it: after at least window - stride others once the
    first window is past. This is how transformers' documentation measures perplexity. With a
    stride of the whole window, the first token of each window is not scored.

    In --json, tokens counts those of the text.
    """
    if len(words) > 1:
        raise click.UsageError("TEXT is one argument; put it in quotes.")
    if page is not None and str(page) == STDIN:
        raise click.UsageError("--html writes a page beside the report; name a file for it.")
    if page is None and ctx.get_parameter_source("top") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--top needs --html.")
    if window is not None and stride is not None:
        _check_stride(window, stride)
    data = _text(words[0] if words else None, file)
    if page is not None:
        check_writable(page, file)
    checkpoint, tokenizer = open_with_tokenizer(model, quiet=quiet)
    size, step = _windows(checkpoint.config.n_positions, window, stride)
    ids = tokenizer.encode_bytes(data, special=special)
    start = [_start(checkpoint.config, tokenizer)] if bos else []
    if len(start + ids) < 2:  # scoring needs one before another
        raise GPT2Error("the text is one token, which follows nothing; --bos scores it")
    from ..scoring import Total, score

    gpt2 = network(checkpoint, device, threads, dtype)
    found = score(gpt2, start + ids, size, step, 0 if page is None else top)
    n_tokens = len(start + ids)
    scores = _with_bar(found, n_tokens, quiet or n_tokens <= size)[len(start) :]
    report = ScoreReport(
        model=model,
        pieces=[
            Piece(token, tokenizer.token_bytes(token), score)
            for token, score in zip(ids, scores, strict=True)
        ],
        total=Total.of(scores),
        words=len(data.decode("utf-8", "replace").split()),
        bytes=len(data),
        window=size,
        stride=step,
        bos=bos,
    )
    if page is not None:
        write_whole(page, surprisal_page.page(report, tokenizer))
        note(f"wrote {page}", quiet)
    if as_json:
        return emit(json_line(report.json(each)))
    text = coloured if in_colour() else table
    shown = [*text(report.pieces), ""] if each else []
    return emit_lines([*shown, *report.lines()])


def _text(argument: str | None, file: Path | None) -> bytes:
    """The bytes to score."""
    data = read_bytes(argument, file)
    if data is None:
        raise click.UsageError("Give TEXT, --file FILE, or a text on standard input.")
    if not data:
        typed = argument not in (None, STDIN)
        name = "TEXT" if typed else "standard input" if file in (None, Path(STDIN)) else file
        raise GPT2Error(f"{name} is empty, and there is nothing to score; give a text")
    return data


def _start(config: GPT2Config, tokenizer: Tokenizer) -> int:
    from ..prompting import start_token

    try:
        return start_token(config, tokenizer)
    except GPT2Error as error:
        raise GPT2Error("this model has no start token; score the text without --bos") from error


def _windows(n_positions: int, window: int | None, stride: int | None) -> tuple[int, int]:
    """How long the windows are, and how far apart they begin."""
    if n_positions < 2:
        raise GPT2Error("this model holds one token, which follows nothing; it scores no text")
    size = n_positions if window is None else window
    if size > n_positions:
        raise click.UsageError(f"--window is {n_positions} at most, which is what the model holds.")
    step = size // 2 if stride is None else stride
    _check_stride(size, step)
    return size, step


def _check_stride(window: int, stride: int) -> None:
    if stride > window:
        raise click.UsageError(f"--stride is at most the window, {window}; no token is left out.")


def _with_bar(
    scores: Iterator[TokenLogprob | None], n_tokens: int, hidden: bool
) -> list[TokenLogprob | None]:
    """All scores; how far they are is shown on stderr, if that is a terminal."""
    hidden = not shows_progress(hidden)
    with click.progressbar(
        scores,
        length=n_tokens,
        label="scoring",
        file=sys.stderr,
        hidden=hidden,
        update_min_steps=1 + n_tokens // 200,
    ) as bar:
        return list(bar)
