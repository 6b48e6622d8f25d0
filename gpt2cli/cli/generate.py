"""gpt2 generate: continue a text."""

from __future__ import annotations

import math
import secrets
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import GPT2Error
from .opening import network, open_with_tokenizer
from .options import computing, model_option, note, number, quiet_option
from .text_input import STDIN, check_encoding, read_text
from .timing import Clock
from .writing import Style, write_json, write_text

if TYPE_CHECKING:
    from ..config import GPT2Config
    from ..generation import Request, Step
    from ..tokenizer import TextStream, Tokenizer

DEFAULT_NEW_TOKENS = 100
BIGGEST_SEED = 2**63 - 1
MOST_SAMPLES = 100_000  # each holds its own numbers and text in memory


def _logit_bias(
    _ctx: click.Context, _param: click.Parameter, values: Sequence[str]
) -> dict[int, float]:
    bias: dict[int, float] = {}
    for value in values:
        token, _, amount = value.partition("=")
        try:
            bias[int(token)] = float(amount)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not ID=BIAS, as in 50256=-inf.") from None
        if int(token) < 0:
            raise click.BadParameter(f"{value!r}: token ids are whole numbers from 0.")
        if math.isnan(bias[int(token)]) or bias[int(token)] == math.inf:
            raise click.BadParameter(f"{value!r}: a bias is a number or -inf.")
    return bias


def _stops(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    if "" in values:
        raise click.BadParameter("an empty text would stop at once.")
    return tuple(values)


@click.command("generate", short_help="Continue a text.")
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@model_option
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the prompt from FILE; - is standard input.",
)
@click.option(
    "--encoding",
    metavar="NAME",
    callback=check_encoding,
    help="Encoding of the file or pipe, as latin-1.  [default: UTF-8]",
)
@click.option("--keep-newline", is_flag=True, help="Keep the final newline of a file or pipe.")
@click.option("--unconditional", is_flag=True, help="No prompt: start from the start token.")
@click.option(
    "--special", is_flag=True, help="Let <|endoftext|> in a prompt be the token, and print it."
)
@click.option(
    "-n",
    "--max-new-tokens",
    type=number(int, 0),
    metavar="N",
    help=f"Tokens to write at most.  [default: {DEFAULT_NEW_TOKENS}, or what fits]",
)
@click.option(
    "-t",
    "--temperature",
    type=number(float, 0),
    metavar="T",
    default=1.0,
    show_default=True,
    help="Divides the logits; 0 takes the likeliest token.",
)
@click.option(
    "-k",
    "--top-k",
    type=number(int, 0),
    metavar="K",
    help="Keep the K likeliest tokens.  [default: 0, all]",
)
@click.option(
    "-p",
    "--top-p",
    type=number(float, 0, 1, above=True),
    metavar="P",
    help="Keep the likeliest tokens that together reach probability P.  [default: 1, all]",
)
@click.option(
    "--min-p",
    type=number(float, 0, 1),
    metavar="P",
    help="Keep tokens at least P times as likely as the likeliest.  [default: 0, all]",
)
@click.option(
    "--repetition-penalty",
    type=number(float, 1),
    metavar="R",
    help="Weaken tokens that occurred, as in CTRL.  [default: 1, not at all]",
)
@click.option(
    "--logit-bias",
    multiple=True,
    metavar="ID=BIAS",
    callback=_logit_bias,
    help="Add a number, or -inf, to a token's logit (repeatable).",
)
@click.option(
    "--stop",
    multiple=True,
    metavar="TEXT",
    callback=_stops,
    help="End before this text (repeatable).",
)
@click.option(
    "--samples",
    type=number(int, 1, MOST_SAMPLES),
    metavar="N",
    default=1,
    show_default=True,
    help="How many texts to write.",
)
@click.option(
    "-s",
    "--seed",
    type=number(int, 0, BIGGEST_SEED),
    metavar="SEED",
    help="Same SEED, same text.  [default: drawn]",
)
@click.option("--ignore-eos", is_flag=True, help="Go on past the end-of-text token.")
@click.option(
    "--overflow",
    type=click.Choice(["error", "stop", "slide"]),
    default="error",
    show_default=True,
    help="When the text outgrows the model: refuse, end there, or drop the older half.",
)
@click.option(
    "--keep",
    type=number(int, 0),
    metavar="N",
    default=0,
    show_default=True,
    help="First tokens that --overflow slide never drops.",
)
@click.option("--echo/--no-echo", default=True, help="Print the prompt before the text.")
@click.option("-0", "--null", is_flag=True, help="End each text with NUL; no separator lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, a line each.")
@click.option(
    "--logprobs",
    type=number(int, 0),
    metavar="N",
    help="With --json: each token's log-probability and the N likeliest.",
)
@click.option(
    "--draft/--no-draft",
    default=True,
    help="Check tokens that the text suggests several at a time; the text is the same.",
)
@click.option("--timing", is_flag=True, help="Speeds, on stderr, when the text is written.")
@computing
@quiet_option
def command(
    words: tuple[str, ...],
    model: str,
    file: Path | None,
    encoding: str | None,
    keep_newline: bool,
    unconditional: bool,
    special: bool,
    device: str,
    dtype: str,
    threads: int | None,
    draft: bool,
    timing: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Continue PROMPT, a file (-f), or standard input, and print the text as it is written.

    \b
    gpt2 generate -m austen "It is a truth universally acknowledged, that"
    gpt2 generate -m austen -t 0.8 -k 40 -n 60 --samples 3 -s 7 "My dear"
    cat letter.txt | gpt2 generate -m austen --no-echo --stop "." > next.txt

    The prompt and --stop are taken literally: there are no \\n escapes. With no PROMPT on a
    terminal, or with --unconditional, the text starts from the start token.

    In --json, finish_reason is length (-n was reached), eos (the model ended the text), stop (a
    --stop text came) or context (the model is full); exact is true where the text is, to the bit,
    what its prompt and seed give on this machine whatever runs beside it.
    """
    if len(words) > 1:
        raise click.UsageError(f"PROMPT is one argument; quote it: {shlex.quote(' '.join(words))}")
    prompt = words[0] if words else None
    _check_usage(prompt, file, unconditional, keep_newline, options)
    text = ""
    if not unconditional:  # None: no prompt on a terminal, which starts from the start token too
        text = read_text(prompt, file, encoding=encoding, keep_newline=keep_newline) or ""
    checkpoint, vocabulary = open_with_tokenizer(model, quiet=quiet)
    plan = _plan(text, special, checkpoint.config, vocabulary, quiet, options)
    from ..generation import Meter, check, generate

    check(plan.requests, checkpoint.config)
    gpt2 = network(checkpoint, device, threads, dtype)
    meter = Meter()
    steps = generate(gpt2, plan.requests, drafts=draft, meter=meter)
    steps = _note_slide(steps, quiet)
    clock = Clock()
    if timing:
        steps = clock.watch(steps)
    if options["as_json"]:
        write_json(steps, plan.streams, vocabulary, text, model, exact=gpt2.row_exact)
    else:
        style = Style(len(plan.requests), text if options["echo"] else "", options["null"])
        write_text(steps, plan.streams, style)
    if timing:
        click.echo(clock.report(meter, checkpoint.config, dtype), err=True)


@dataclass(frozen=True)
class _Plan:
    """A request for each sample, and what turns its ids into text."""

    requests: list[Request]
    streams: list[TextStream]


def _check_usage(
    prompt: str | None,
    file: Path | None,
    unconditional: bool,
    keep_newline: bool,
    options: dict[str, Any],
) -> None:
    if unconditional and (prompt is not None or file is not None):
        raise click.UsageError("--unconditional takes no prompt.")
    if keep_newline and prompt not in (None, STDIN):
        raise click.UsageError("--keep-newline is for a file or pipe; PROMPT is taken as it is.")
    if options["keep"] and options["overflow"] != "slide":
        raise click.UsageError("--keep needs --overflow slide.")
    if options["logprobs"] is not None and not options["as_json"]:
        raise click.UsageError("--logprobs needs --json.")
    if options["null"] and options["as_json"]:
        raise click.UsageError("--null and --json exclude each other.")


def _plan(
    text: str,
    special: bool,
    config: GPT2Config,
    vocabulary: Tokenizer,
    quiet: bool,
    options: dict[str, Any],
) -> _Plan:
    """A request and a text stream for each sample."""
    from ..generation import Request
    from ..sampling import Sampling
    from ..tokenizer import TextStream

    end_of_text = vocabulary.end_of_text
    end_ids = config.eos_token_id or (() if end_of_text is None else (end_of_text,))
    prompt = vocabulary.encode(text, special=special) if text else [_start_token(config, end_ids)]
    if options["temperature"] > 2:
        note(f"temperature {options['temperature']:g} makes nearly random text", quiet)
    if options["temperature"] == 0 and options["samples"] > 1:
        note(f"the {options['samples']} samples will be equal, as temperature 0 draws none", quiet)
    request = Request(
        prompt=tuple(prompt),
        max_new_tokens=_new_tokens(len(prompt), config.n_positions, quiet, options),
        sampling=Sampling(
            temperature=options["temperature"],
            top_k=options["top_k"] or None,
            top_p=options["top_p"],
            min_p=options["min_p"],
            repetition_penalty=options["repetition_penalty"],
            logit_bias=options["logit_bias"],
        ),
        seed=secrets.randbelow(BIGGEST_SEED) if options["seed"] is None else options["seed"],
        end_ids=frozenset() if options["ignore_eos"] else frozenset(end_ids),
        never=tuple(vocabulary.unknown_ids(config.vocab_size)),
        overflow=options["overflow"],
        keep=options["keep"],
        logprobs=options["logprobs"],
    )
    if not request.keep < config.n_positions / 2:
        raise click.UsageError(f"--keep must be below half of the model's {config.n_positions}.")
    samples = range(options["samples"])
    return _Plan(
        requests=[replace(request, sample=sample) for sample in samples],
        streams=[TextStream(vocabulary, options["stop"], special) for _ in samples],
    )


def _start_token(config: GPT2Config, end_ids: Sequence[int]) -> int:
    starts = [config.bos_token_id] if config.bos_token_id is not None else [*end_ids]
    if starts and starts[0] < config.vocab_size:
        return starts[0]
    raise GPT2Error("this model has no start token for unconditional text; give a prompt")


def _new_tokens(prompt: int, n_positions: int, quiet: bool, options: dict[str, Any]) -> int:
    """-n, else the default or what fits."""
    if options["max_new_tokens"] is not None:
        return int(options["max_new_tokens"])
    room = n_positions - prompt
    if options["overflow"] == "slide" or room >= DEFAULT_NEW_TOKENS:
        return DEFAULT_NEW_TOKENS
    if room > 0:
        note(f"{room} new tokens fit beside the prompt's {prompt}", quiet)
    return max(room, 0)


def _note_slide(steps: Iterator[Step], quiet: bool) -> Iterator[Step]:
    """The same steps; the first slide is said on stderr."""
    said = False
    for step in steps:
        if step.continuation.slid and not said:
            said = True
            note("the text outgrew the model: its older half is dropped as it goes on", quiet)
        yield step
