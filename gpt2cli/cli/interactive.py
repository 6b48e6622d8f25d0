"""gpt2 generate --interactive: a loop of prompts and the texts that follow them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import GPT2Error
from .options import note
from .output import emit, emit_lines
from .text_input import STDIN
from .writing import note_slide
from .writing_options import SETTABLE, check_keep, wishes

if TYPE_CHECKING:
    from ..model import GPT2
    from ..request import Request
    from ..tokenizer import Tokenizer

HELP = '''\
Type a prompt: the text that follows it is written below. An empty line goes on
with the text. Ctrl-C stops a text, Ctrl-D leaves.
  """              begins a prompt of several lines, and ends it
  /retry           write the last text another way
  /set             what can be set, and how it is
  /set NAME VALUE  set it for texts to come; without VALUE, as it was at first
  /show            what is set, and how full the model is
  /quit            leaves, as Ctrl-D does
  /help            this
  //               begins a prompt that begins with /'''

_LEAVE = ("/quit", "/exit", "/bye")
_PROMPT, _MORE, _QUOTES = "> ", ". ", '"""'
_NEVER = {
    "as_json": "--json",
    "null": "--null",
    "trace": "--trace",
    "prompts": "--prompts",
    "--unconditional": "--unconditional",
}
_COLUMNS = 80
_NEARLY_FULL = 0.75  # of the model's positions: from here on it is said how many are taken


def check_interactive_usage(
    prompt: str | None, file: Path | None, unconditional: bool, options: Mapping[str, Any]
) -> None:
    """Raise click.UsageError for what has no meaning in a loop, or where nobody types."""
    for name, given in {**options, "--unconditional": unconditional}.items():
        if given and name in _NEVER:
            raise click.UsageError(f"--interactive and {_NEVER[name]} exclude each other.")
    if options["samples"] > 1:
        raise click.UsageError("--samples does not go with --interactive; /retry writes another.")
    if STDIN in (prompt, str(file)) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--interactive needs a terminal; without it a prompt can be piped.")


class Loop:
    """Prompts, the texts that follow, and what is set for them."""

    def __init__(
        self, gpt2: GPT2, vocabulary: Tokenizer, options: Mapping[str, Any], *, quiet: bool
    ) -> None:
        self.gpt2 = gpt2
        self.vocabulary = vocabulary
        self.quiet = quiet
        self.first = {name: options[name] for name in SETTABLE}
        self.options = dict(options)
        self.request: Request | None = None  # the last one
        self.tokens: list[int] = []  # what came of it
        self._apply({})

    def run(self, prompt: str) -> None:
        """Answer a first prompt, if there is one, and then what is typed, until its end."""
        with suppress(ImportError):  # what is not there on every system edits lines
            import readline  # noqa: F401
        note("/help says what can be done here", self.quiet)
        waiting = [prompt] if prompt else []
        going = True
        while going:
            try:
                going = self._turn(waiting)
            except GPT2Error as error:
                click.echo(f"Error: {error}", err=True)
            except click.UsageError as error:
                click.echo(f"Error: {error.format_message()}", err=True)
            except KeyboardInterrupt:  # of a text, or of what was being typed
                emit(b"\n")

    def _turn(self, waiting: list[str]) -> bool:
        """Answer a prompt that waits, else one entry; whether to go on."""
        if waiting:
            self._begin(waiting.pop())
            return True
        entry = read_entry()
        if entry is None or entry in _LEAVE:
            return False
        self.answer(entry)
        return True

    def answer(self, entry: str) -> None:
        """Do what one entry asks for; raises GPT2Error and click.UsageError where it cannot."""
        name, _, rest = entry.partition(" ")
        if not entry:
            self._go_on()
        elif not entry.startswith("/") or entry.startswith("//"):
            self._begin(entry.removeprefix("/") if entry.startswith("//") else entry)
        elif name == "/help":
            emit_lines([HELP])
        elif name == "/set" and rest:
            self._set(*rest.partition(" ")[::2])
        elif name == "/set":
            emit_lines(self._settings())
        elif name == "/show":
            emit_lines([*self._changed(), self._meter()])
        elif name == "/retry":
            self._retry()
        else:
            raise click.UsageError(f"There is no {name}; /help says what there is.")

    def _begin(self, prompt: str) -> None:
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise GPT2Error("what was typed is not UTF-8; set the terminal to UTF-8") from None
        self._write(self.prompter.request(prompt))

    def _go_on(self) -> None:
        """Write more of the last text; without one, a text that no prompt begins."""
        if self.request is None:
            return self._begin("")
        return self._write(self.prompter.continued([*self.request.prompt, *self.tokens]))

    def _retry(self) -> None:
        if self.request is None:
            raise click.UsageError("There is no text yet that could be written another way.")
        again = self.prompter.continued(self.request.prompt)
        self._write(replace(again, sample=self.request.sample + 1))

    def _write(self, request: Request) -> None:
        from ..generation import generate
        from ..prompting import feed

        steps = generate(self.gpt2, [request], drafts=self.options["draft"])
        stream = self.prompter.stream()
        for step in note_slide(steps, self.quiet):
            self.request, self.tokens = request, step.continuation.tokens
            emit(feed(step, stream))
        emit(b"\n")
        if len(request.prompt) + len(self.tokens) >= _NEARLY_FULL * self.gpt2.config.n_positions:
            note(self._meter(), self.quiet)

    def _set(self, name: str, value: str) -> None:
        key = _key(name)
        if key not in SETTABLE:
            raise click.UsageError(
                f"There is nothing called {name} to set; /set says what there is."
            )
        self._apply({key: _parsed(key, value) if value else self.first[key]})

    def _apply(self, changes: Mapping[str, Any]) -> None:
        """Let the changes be set, unless they cannot be."""
        from ..prompting import Prompter

        options = {**self.options, **changes}
        check_keep(options["keep"], self.gpt2.config.n_positions)
        wished = wishes(options)
        self.prompter = Prompter(self.gpt2.config, self.vocabulary, wished)
        self.options = options | {"seed": wished.seed}

    def _settings(self) -> Iterator[str]:
        """Everything that can be set, how it is, and what it does."""
        for option in click.get_current_context().command.params:
            if isinstance(option, click.Option) and option.name in SETTABLE:
                name, value = option.name.replace("_", "-"), _shown(self.options[option.name])
                what = (option.help or "").partition("  [default")[0]
                yield _shortened(f"{name:<18}  {value:<8}  {what}", _COLUMNS)

    def _changed(self) -> Iterator[str]:
        """What is set otherwise than a command line without options sets it."""
        usual = click.get_current_context().command.make_context("generate", []).params
        for key in SETTABLE:
            if self.options[key] != usual[key]:
                yield f"{key.replace('_', '-'):<18}  {_shown(self.options[key])}"

    def _meter(self) -> str:
        taken = len(self.tokens) + (0 if self.request is None else len(self.request.prompt))
        return f"{taken} of the {self.gpt2.config.n_positions} tokens that the model holds"


def read_entry() -> str | None:
    """What is typed: a line, or the lines between two triple quotes; None at its end."""
    try:
        line = input(_PROMPT)
        return _quoted(line) if line.startswith(_QUOTES) else line
    except EOFError:
        emit(b"\n")
        return None


def _quoted(line: str) -> str:
    text = line.removeprefix(_QUOTES)
    while _QUOTES not in text:
        text += "\n" + input(_MORE)
    return text.partition(_QUOTES)[0].removeprefix("\n")


def _key(name: str) -> str | None:
    """The option that is called so on the command line, with its dashes or without."""
    bare = name.lstrip("-").replace("_", "-")
    for option in click.get_current_context().command.params:
        if bare in [each.lstrip("-") for each in option.opts]:
            return option.name
    return None


def _parsed(key: str, value: str) -> Any:
    """What an option makes of a value; raises click.UsageError as on the command line."""
    command = click.get_current_context().command
    (option,) = (each for each in command.params if each.name == key)
    name = f"--{key.replace('_', '-')}"
    if isinstance(option, click.Option) and option.is_flag:
        words = {"on": [name], "off": []}
        if value not in words:
            raise click.UsageError(f"{name.removeprefix('--')} is on or off.")
        return command.make_context("generate", words[value]).params[key]
    return command.make_context("generate", [f"{name}={value}"]).params[key]


def _shortened(line: str, columns: int) -> str:
    """The line, or as much of it as fits."""
    return line if len(line) <= columns else f"{line[: columns - 1].rstrip()}…"


def _shown(value: Any) -> str:
    """A setting's value as it would be typed."""
    if value is None or value == () or value == {}:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(repr, value))
    if isinstance(value, dict):
        return " ".join(f"{token}={bias:g}" for token, bias in value.items())
    return str(value)
