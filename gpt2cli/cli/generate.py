"""gpt2 generate: continue a text."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import GPT2Error
from .opening import network, open_with_tokenizer
from .options import Number, computing, model_option, note, quiet_option
from .text_input import read_text
from .writing import Style, write_json, write_text

if TYPE_CHECKING:
    from ..config import GPT2Config
    from ..generation import Request, Step
    from ..tokenizer import TextStream, Tokenizer

DEFAULT_NEW_TOKENS = 100
BIGGEST_SEED = 2**63 - 1


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
@click.argument("prompt", required=False)
@model_option
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    help="Read the prompt from a file.",
)
@click.option("--encoding", help="Encoding of the file or pipe.  [default: UTF-8]")
@click.option("--keep-newline", is_flag=True, help="Keep the final newline of a file or pipe.")
@click.option("--unconditional", is_flag=True, help="No prompt: start from the start token.")
@click.option(
    "--special", is_flag=True, help="Let <|endoftext|> in a prompt be the token, and print it."
)
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(min=0),
    help=f"Tokens to write at most.  [default: {DEFAULT_NEW_TOKENS}, or what fits]",
)
@click.option(
    "-t",
    "--temperature",
    type=Number(min=0),
    default=1.0,
    show_default=True,
    help="Divides the logits; 0 takes the likeliest token.",
)
@click.option(
    "-k", "--top-k", type=click.IntRange(min=0), help="Keep the k likeliest tokens; 0 is off."
)
@click.option(
    "-p",
    "--top-p",
    type=Number(min=0, max=1, min_open=True),
    help="Keep the likeliest tokens whose probabilities reach p; 1 is off.",
)
@click.option(
    "--min-p",
    type=Number(min=0, max=1),
    help="Keep tokens with at least this share of the largest probability.",
)
@click.option(
    "--repetition-penalty",
    type=Number(min=1),
    help="Weaken tokens that occurred, as in CTRL; 1 is off.",
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
@click.option("--samples", type=click.IntRange(min=1), default=1, help="How many texts to write.")
@click.option(
    "-s",
    "--seed",
    type=click.IntRange(min=0, max=BIGGEST_SEED),
    help="Same seed, same text.  [default: drawn]",
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
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="First tokens that --overflow slide never drops.",
)
@click.option("--echo/--no-echo", default=True, help="Print the prompt before the text.")
@click.option("-0", "--null", is_flag=True, help="End each text with NUL; no separator lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, a line each.")
@click.option(
    "--logprobs",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --json: each token's log-probability and the N likeliest.",
)
@computing
@quiet_option
def command(
    prompt: str | None,
    model: str,
    file: Path | None,
    encoding: str | None,
    keep_newline: bool,
    unconditional: bool,
    special: bool,
    device: str,
    threads: int | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Continue PROMPT, a file (-f), or standard input, and print the text as it is written.

    \b
    gpt2 generate -m austen "It is a truth universally acknowledged, that"
    gpt2 generate -m austen -t 0.8 -k 40 -n 60 --samples 3 -s 7 "My dear Mr. Bennet,"
    cat letter.txt | gpt2 generate -m austen --no-echo --stop "." > next.txt

    The prompt and --stop are taken literally: there are no \\n escapes. With no PROMPT on a
    terminal, or with --unconditional, the text starts from the start token.
    """
    _check_usage(prompt, file, unconditional, options)
    text = ""
    if not unconditional:  # None: no prompt on a terminal, which starts from the start token too
        text = read_text(prompt, file, encoding=encoding, keep_newline=keep_newline) or ""
    checkpoint, vocabulary = open_with_tokenizer(model, quiet=quiet)
    plan = _plan(text, special, checkpoint.config, vocabulary, quiet, options)
    from ..generation import check, generate

    check(plan.requests, checkpoint.config)
    steps = generate(network(checkpoint, device, threads), plan.requests)
    steps = _note_slide(steps, quiet)
    if options["as_json"]:
        write_json(steps, plan.streams, vocabulary, text, model)
    else:
        style = Style(len(plan.requests), text if options["echo"] else "", options["null"])
        write_text(steps, plan.streams, style)


@dataclass(frozen=True)
class _Plan:
    """A request for each sample, and what turns its ids into text."""

    requests: list[Request]
    streams: list[TextStream]


def _check_usage(
    prompt: str | None, file: Path | None, unconditional: bool, options: dict[str, Any]
) -> None:
    if unconditional and (prompt is not None or file is not None):
        raise click.UsageError("--unconditional takes no prompt.")
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
