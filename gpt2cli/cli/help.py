"""How --help is set: no word is broken at its hyphens, as --no-bos would be."""

from collections.abc import Iterable

import click

_HYPHEN = "\N{NON-BREAKING HYPHEN}"  # while lines are broken


class _Formatter(click.HelpFormatter):
    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        unbroken = [(term, text.replace("-", _HYPHEN)) for term, text in rows]
        super().write_dl(unbroken, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


class Context(click.Context):
    """The context of every command: its help is set as this module says."""

    formatter_class = _Formatter
