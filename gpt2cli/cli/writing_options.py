"""The options of a text: how long it may be, how its tokens are chosen, and where it ends."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..arguments import BIGGEST_SEED
from ..presets import DEFAULT_NEW_TOKENS
from .options import Command, number
from .trace import MOST_NAMED

if TYPE_CHECKING:
    from ..prompting import Wishes

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


_OPTIONS = (
    click.option(
        "--special", is_flag=True, help="Let <|endoftext|> in a prompt be the token, and print it."
    ),
    click.option(
        "-n",
        "--max-new-tokens",
        type=number(int, 0),
        metavar="N",
        help=f"Tokens to write at most.  [default: {DEFAULT_NEW_TOKENS}, or what fits]",
    ),
    click.option(
        "-t",
        "--temperature",
        type=number(float, 0),
        metavar="T",
        default=1.0,
        show_default=True,
        help="Divides the logits; 0 takes the likeliest token.",
    ),
    click.option(
        "-k",
        "--top-k",
        type=number(int, 0),
        metavar="K",
        help="Keep the K likeliest tokens.  [default: 0, all]",
    ),
    click.option(
        "-p",
        "--top-p",
        type=number(float, 0, 1, above=True),
        metavar="P",
        help="Keep the likeliest tokens that together reach probability P.  [default: 1, all]",
    ),
    click.option(
        "--min-p",
        type=number(float, 0, 1),
        metavar="P",
        help="Keep tokens at least P times as likely as the likeliest.  [default: 0, all]",
    ),
    click.option(
        "--repetition-penalty",
        type=number(float, 1),
        metavar="R",
        help="Weaken tokens that occurred, as in CTRL.  [default: 1, not at all]",
    ),
    click.option(
        "--logit-bias",
        multiple=True,
        metavar="ID=BIAS",
        callback=_logit_bias,
        help="Add a number, or -inf, to a token's logit (repeatable).",
    ),
    click.option(
        "--stop",
        multiple=True,
        metavar="TEXT",
        callback=_stops,
        help="End before this text (repeatable).",
    ),
    click.option(
        "--samples",
        type=number(int, 1, MOST_SAMPLES),
        metavar="N",
        default=1,
        show_default=True,
        help="How many texts to write.",
    ),
    click.option(
        "-s",
        "--seed",
        type=number(int, 0, BIGGEST_SEED),
        metavar="SEED",
        help="Same SEED, same text.  [default: drawn]",
    ),
    click.option("--ignore-eos", is_flag=True, help="Go on past the end-of-text token."),
    click.option(
        "--overflow",
        type=click.Choice(["error", "stop", "slide"]),
        default="error",
        show_default=True,
        help="When the text outgrows the model: refuse, end there, or drop the older half.",
    ),
    click.option(
        "--keep",
        type=number(int, 0),
        metavar="N",
        default=0,
        show_default=True,
        help="First tokens that --overflow slide never drops.",
    ),
    click.option(
        "--logprobs",
        type=number(int, 0),
        metavar="N",
        help="With --json or --prompts: each token's log-probability and the N likeliest.",
    ),
    click.option(
        "--trace",
        is_flag=True,
        help="How each token was chosen, step by step, in place of the text; in JSON, beside it.",
    ),
)


# What may be set while a program of prompts runs.
SETTABLE = (
    "special",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "logit_bias",
    "stop",
    "seed",
    "ignore_eos",
    "overflow",
    "keep",
)


def writing_options(command: Command) -> Command:
    """The options that `wishes` reads, and --samples."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wishes(options: Mapping[str, Any]) -> Wishes:
    """What `writing_options` were given; a seed is drawn when there is none."""
    from ..prompting import Wishes
    from ..sampling import Sampling

    return Wishes(
        max_new_tokens=options["max_new_tokens"],
        sampling=Sampling(
            temperature=options["temperature"],
            top_k=options["top_k"] or None,
            top_p=options["top_p"],
            min_p=options["min_p"],
            repetition_penalty=options["repetition_penalty"],
            logit_bias=options["logit_bias"],
        ),
        seed=secrets.randbelow(BIGGEST_SEED) if options["seed"] is None else options["seed"],
        stops=options["stop"],
        special=options["special"],
        ignore_eos=options["ignore_eos"],
        overflow=options["overflow"],
        keep=options["keep"],
        logprobs=options["logprobs"],
        trace=MOST_NAMED if options["trace"] else None,
    )


def notes(options: Mapping[str, Any]) -> Iterator[str]:
    """What is worth knowing of `writing_options`."""
    if options["temperature"] > 2:
        yield f"temperature {options['temperature']:g} makes nearly random text"
    if options["temperature"] == 0 and options["samples"] > 1:
        yield f"the {options['samples']} samples will be equal, as temperature 0 draws none"


def check_keep(keep: int, n_positions: int) -> None:
    """Raise click.UsageError where --keep leaves a sliding text no room."""
    if not keep < n_positions / 2:
        raise click.UsageError(f"--keep must be below half of the model's {n_positions}.")
