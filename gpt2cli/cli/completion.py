"""Completion in the shell: the script to switch it on, and what MODEL can be."""

import os
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from ..errors import GPT2Error
from ..naming import names
from .output import emit

VARIABLE = "_GPT2_COMPLETE"  # set by the script where the program is to complete, not to run


@click.command("completion", short_help="Print a script for completion in the shell.")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands, options and models' names.

    SHELL is bash, zsh or fish. Put one of these into ~/.bashrc or ~/.zshrc, or run the last:

    \b
    eval "$(gpt2 completion bash)"
    eval "$(gpt2 completion zsh)"
    gpt2 completion fish > ~/.config/fish/completions/gpt2.fish
    """
    form = get_completion_class(shell)
    if form is None:
        raise ValueError(f"click completes nothing in {shell}")
    emit(form(ctx.find_root().command, {}, "gpt2", VARIABLE).source().encode())


def complete(group: click.Group) -> int | None:
    """Answer the shell's question, if the program was started to, with the exit code."""
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return None
    try:
        return shell_complete(group, {}, "gpt2", VARIABLE, asked)
    except (KeyError, ValueError):
        raise GPT2Error(f"{VARIABLE} is for the shell's completion; unset it") from None


class _Model(click.types.StringParamType):
    """MODEL: known names, what the Hub client's cache holds, and paths."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        cached: list[str] = []
        with suppress(GPT2Error):
            from ..cache import snapshots

            cached = [found.model for found in snapshots() if found.complete]
        known = dict.fromkeys([*names(), *cached])
        # the scripts for bash drop what comes before a question for files
        files = CompletionItem(incomplete, type="file")
        return [files, *(CompletionItem(name) for name in known if name.startswith(incomplete))]


MODEL = _Model()
