"""gpt2 generate: continue a text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..presets import DEFAULT_NEW_TOKENS
from .interactive import Loop, check_interactive_usage
from .opening import network, open_with_tokenizer
from .options import NAME, computing, model_option, note, quiet_option
from .prompt_notes import prompt_notes
from .prompts import check_prompts_usage, prompts_options, write_prompts
from .text_input import STDIN, check_encoding, read_text
from .timing import Clock
from .writing import Style, note_slide, write_json, write_text
from .writing_options import check_keep, notes, wishes, writing_options

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from ..request import Request
    from ..tokenizer import Tokenizer


@click.command("generate", short_help="Continue a text.")
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@model_option
@click.option(
    "-f",
    "--file",
    type=NAME,
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
@writing_options
@click.option("--echo/--no-echo", default=True, help="Print the prompt before the text.")
@click.option("-0", "--null", is_flag=True, help="End each text with NUL; no separator lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, a line each.")
@click.option(
    "--draft/--no-draft",
    default=True,
    help="Check tokens that the text suggests several at a time; the text is the same.",
)
@prompts_options
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="A loop of prompts, with line editing; /help in it says what it does.",
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
    quiet: bool,
    **options: Any,
) -> None:
    """Continue PROMPT, a file (-f), or standard input, and print the text as it is written.

    \b
    gpt2 generate -m austen "It is a truth universally acknowledged, that"
    gpt2 generate -m austen -t 0.8 -k 40 -n 60 --samples 3 -s 7 "My dear"
    cat letter.txt | gpt2 generate -m austen --no-echo --stop "." > next.txt
    gpt2 generate -m austen -n 40 --prompts many.txt -o texts.jsonl

    The prompt and --stop are taken literally: there are no \\n escapes. With no PROMPT on a
    terminal, or with --unconditional, the text starts from the start token.

    In --json, finish_reason is length (-n was reached), eos (the model ended the text), stop (a
    --stop text came) or context (the model is full); exact is true where the text is, to the bit,
    what its prompt and seed give on this machine whatever runs beside it.

    With --prompts, lines as of --json go to OUT, in the order of the prompts, and an id goes with
    its text. Run again after an interrupt, the same command goes on where OUT ends, with its seed.
    """
    if len(words) > 1:
        raise click.UsageError(f"PROMPT is one argument; quote it: {shlex.quote(' '.join(words))}")
    prompt = words[0] if words else None
    _check_usage(prompt, file, unconditional, keep_newline, options)
    if options["prompts"] is not None:
        write_prompts(model, encoding, options, quiet=quiet)
        return
    text = ""
    if not unconditional:  # None: no prompt on a terminal, which starts from the start token too
        text = read_text(prompt, file, encoding=encoding, keep_newline=keep_newline) or ""
    checkpoint, vocabulary = open_with_tokenizer(model, quiet=quiet)
    check_keep(options["keep"], checkpoint.config.n_positions)
    if options["interactive"]:
        gpt2 = network(checkpoint, options["device"], options["threads"], options["dtype"])
        Loop(gpt2, vocabulary, options, quiet=quiet).run(text)
        return
    _write_samples(checkpoint, vocabulary, text, model, options, quiet=quiet)


def _write_samples(
    checkpoint: Checkpoint,
    vocabulary: Tokenizer,
    text: str,
    model: str,
    options: dict[str, Any],
    *,
    quiet: bool,
) -> None:
    """Continue `text` --samples times, and print what comes of it."""
    from ..generation import Meter, check, generate
    from ..prompting import Prompter

    prompter = Prompter(checkpoint.config, vocabulary, wishes(options))
    request = prompter.request(text)
    for line in (*_notes(request, options), *prompt_notes(text, request, prompter)):
        note(line, quiet)
    requests = [replace(request, sample=sample) for sample in range(options["samples"])]
    streams = [prompter.stream() for _ in requests]
    check(requests, checkpoint.config)
    gpt2 = network(checkpoint, options["device"], options["threads"], options["dtype"])
    meter, clock = Meter(), Clock()
    steps = generate(gpt2, requests, drafts=options["draft"], meter=meter)
    steps = clock.watch(note_slide(steps, quiet))
    if options["as_json"]:
        write_json(steps, streams, vocabulary, text, model, exact=gpt2.row_exact)
    else:
        echoed = text if options["echo"] and not options["trace"] else ""
        style = Style(len(requests), echoed, options["null"])
        write_text(steps, streams, style, vocabulary if options["trace"] else None)
    if options["timing"]:
        click.echo(clock.report(meter, checkpoint.config, options["dtype"]), err=True)


def _check_usage(
    prompt: str | None,
    file: Path | None,
    unconditional: bool,
    keep_newline: bool,
    options: dict[str, Any],
) -> None:
    check_prompts_usage(options["prompts"], options["output"])
    if options["interactive"]:
        check_interactive_usage(prompt, file, unconditional, options)
    if unconditional and (prompt is not None or file is not None):
        raise click.UsageError("--unconditional takes no prompt.")
    if keep_newline and prompt not in (None, STDIN):
        raise click.UsageError("--keep-newline is for a file or pipe; PROMPT is taken as it is.")
    if options["keep"] and options["overflow"] != "slide":
        raise click.UsageError("--keep needs --overflow slide.")
    if options["logprobs"] is not None and not (options["as_json"] or options["prompts"]):
        raise click.UsageError("--logprobs needs --json or --prompts.")
    if options["null"] and options["as_json"]:
        raise click.UsageError("--null and --json exclude each other.")
    if options["null"] and options["trace"]:
        raise click.UsageError("--null and --trace exclude each other.")


def _notes(request: Request, options: dict[str, Any]) -> Iterator[str]:
    """What is worth knowing before the text is written."""
    yield from notes(options)
    if options["max_new_tokens"] is None and 0 < request.max_new_tokens < DEFAULT_NEW_TOKENS:
        yield f"{request.max_new_tokens} new tokens fit beside the prompt's {len(request.prompt)}"
