"""gpt2 generate --prompts: the texts of many prompts, as JSON lines in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..arguments import BIGGEST_SEED
from ..presets import DEFAULT_NEW_TOKENS
from .batch import Texts, Writing, fingerprint, resume
from .batch_output import Output
from .opening import network, open_with_tokenizer
from .options import NAME, Command, note, number
from .progress import Progress
from .prompt_file import BadLines, Prompt, check_suffix, read_prompts
from .text_input import STDIN
from .timing import Clock
from .writing import note_slide
from .writing_options import check_keep, notes, wishes

if TYPE_CHECKING:
    from ..model import GPT2
    from ..prompting import Prompter

_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE

_OPTIONS = (
    click.option(
        "--prompts",
        type=NAME,
        metavar="FILE",
        callback=check_suffix,
        help="Many prompts, a line each: text (.txt), or JSON strings or objects (.jsonl).",
    ),
    click.option(
        "-o",
        "--output",
        type=NAME,
        metavar="OUT",
        help="With --prompts: the file of JSON lines to write, or to go on with.",
    ),
    click.option(
        "--batch-size",
        type=number(int, 1),
        metavar="N",
        help="With --prompts: texts to write at a time.  [default: 32]",
    ),
    click.option("--force", is_flag=True, help="With --prompts: start OUT over."),
)

# What goes with --prompts only, and what does not go with it.
_ONLY = {"output": "-o", "batch_size": "--batch-size", "force": "--force"}
_NEVER = {
    "words": "PROMPT",
    "file": "--file",
    "unconditional": "--unconditional",
    "keep_newline": "--keep-newline",
    "echo": "--echo or --no-echo",
    "null": "--null",
}


def prompts_options(command: Command) -> Command:
    """The options that `check_prompts_usage` and `write_prompts` read."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_prompts_usage(prompts: Path | None, output: Path | None) -> None:
    """Raise click.UsageError for options that do not go with --prompts, or not without it."""
    source = click.get_current_context().get_parameter_source
    apart = _ONLY if prompts is None else _NEVER
    given = [name for key, name in apart.items() if source(key) is _COMMAND_LINE]
    if given and prompts is None:
        raise click.UsageError(f"{given[0]} goes with --prompts FILE.")
    if given:
        raise click.UsageError(f"{given[0]} does not go with --prompts.")
    if prompts is None:
        return
    if output is None:
        raise click.UsageError(
            "--prompts needs -o OUT.jsonl, a file that a later run goes on with."
        )
    if str(output) == STDIN:
        raise click.UsageError("-o is a file that a later run goes on with, not standard output.")
    with suppress(OSError):  # one that is not there is no other
        if output.samefile(prompts):
            raise click.UsageError(f"-o {output} is the file of the prompts; name another.")


def write_prompts(
    model: str, encoding: str | None, options: dict[str, Any], *, quiet: bool
) -> None:
    """Write the texts that --output lacks of those that --prompts asks for, in order."""
    prompts = read_prompts(options["prompts"], encoding)
    with Output.held(options["output"]) as output:
        checkpoint, vocabulary = open_with_tokenizer(model, quiet=quiet)
        check_keep(options["keep"], checkpoint.config.n_positions)
        from ..prompting import Prompter

        if options["seed"] is None and not options["force"]:
            options["seed"] = _seed(output)
        prompter = Prompter(checkpoint.config, vocabulary, wishes(options))
        for line in (*notes(options), *_check(prompts, prompter, options["prompts"])):
            note(line, quiet)
        mark = fingerprint(checkpoint, options["dtype"])
        texts = Texts(prompts, options["samples"], prompter, mark)
        there = 0 if options["force"] else resume(texts, output)
        if there:
            note(f"{there:,} of {len(texts):,} texts are in {output.path} already", quiet)
        if there == len(texts):
            return
        gpt2 = network(checkpoint, options["device"], options["threads"], options["dtype"])
        writing = Writing(texts, there, output)
        try:
            _write(writing, gpt2, model, options, quiet=quiet)
        except BaseException as end:
            if not isinstance(end, Exception):
                done = f"{writing.next:,} of {len(texts):,} texts are in {output.path}"
                force = " without --force" if options["force"] else ""
                note(f"{done}; the same command{force} goes on from there", quiet)
            raise


def _write(
    writing: Writing, gpt2: GPT2, model: str, options: dict[str, Any], *, quiet: bool
) -> None:
    from ..generation import MOST_ROWS, Meter

    meter, clock = Meter(), Clock()
    rows = options["batch_size"] or MOST_ROWS
    steps = writing.steps(gpt2, rows, drafts=options["draft"], meter=meter)
    with Progress(writing.next, len(writing.texts), quiet) as progress:
        steps = progress.watch(clock.watch(note_slide(steps, quiet)))
        writing.write(steps, model, exact=gpt2.row_exact)
    if options["timing"]:
        click.echo(clock.report(meter, gpt2.config, options["dtype"]), err=True)


def _seed(output: Output) -> int | None:
    """The seed of the texts that are there."""
    seed = output.first().get("seed")
    return seed if type(seed) is int and 0 <= seed <= BIGGEST_SEED else None


def _check(prompts: Sequence[Prompt], prompter: Prompter, path: Path) -> Iterator[str]:
    """Raise GPT2Error, by line, for prompts whose texts the model cannot write; else notes."""
    from ..request import check, check_length

    bad = BadLines(path)
    short = 0
    for prompt in prompts:
        with bad.at(prompt.line):
            request = prompter.request(prompt.text)
            check_length(request, prompter.config.n_positions)
            short += request.max_new_tokens < DEFAULT_NEW_TOKENS
    bad.check()
    check([request], prompter.config)  # what is wrong with its options is wrong with all
    if short and prompter.wishes.max_new_tokens is None:
        yield f"fewer than {DEFAULT_NEW_TOKENS} new tokens fit beside {short:,} of the prompts"
