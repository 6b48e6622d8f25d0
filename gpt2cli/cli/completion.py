"""Completion in the shell: the script to switch it on, and what MODEL can be."""

import os
from contextlib import suppress

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    shell_complete,
)

from ..errors import GPT2Error
from ..naming import names
from .output import emit

_SWITCH_ON = "(( $+functions[compdef] )) || { autoload -Uz compinit; compinit -i; }"

VARIABLE = "_GPT2_COMPLETE"  # set by the script where the program is to complete, not to run


@click.command("completion", short_help="Print a script for completion in the shell.")
@click.argument(
    "shell", metavar="SHELL", required=False, type=click.Choice(["bash", "zsh", "fish"])
)
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print the script by which SHELL completes commands, options and models' names.

    SHELL is bash, zsh or fish. Put one of these into ~/.bashrc or ~/.zshrc, or run the last:

    \b
    eval "$(gpt2 completion bash)"
    eval "$(gpt2 completion zsh)"
    gpt2 completion fish > ~/.config/fish/completions/gpt2.fish
    """
    if shell is None:
        raise click.UsageError("Give SHELL: bash, zsh or fish.")
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


@add_completion_class
class _Bash(BashComplete):
    """Bash takes ``--option=value`` for three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


class _WholeWords(ShellComplete):
    """For shells that take ``--option=value`` for one word and put an answer in its place."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.rpartition("=")
        if not option.startswith("--"):
            return found
        return [
            CompletionItem(f"{option}{equals}{item.value}", item.type, item.help) for item in found
        ]


@add_completion_class
class _Zsh(_WholeWords, ZshComplete):
    """Zsh, which has completion when it is asked for."""

    def source(self) -> str:
        """What zsh reads; where ~/.zshrc has not switched completion on, it does."""
        first, rest = super().source().split("\n", 1)
        return f"{first}\n{_SWITCH_ON}\n{rest}"


@add_completion_class
class _Fish(_WholeWords, FishComplete):
    """Fish, whose descriptions may have commas."""

    source_template = FishComplete.source_template.replace('split ","', 'split --max 1 ","')


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
