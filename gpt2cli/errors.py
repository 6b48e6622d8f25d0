"""The one kind of error a user can act on."""


class GPT2Error(Exception):
    """A problem with the user's files, network or request: what, where, and what to do next.

    The message is one line. The command line prints it as ``Error: …`` and exits 1; a program
    that uses the package catches this one class. A mistake in the calling code is a
    ``ValueError`` or ``TypeError`` instead.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


_LONGEST = 4000  # characters of a message, which may quote a file


def one_line(text: str) -> str:
    """`text` on one line: what a terminal would act on spelled out, the middle of much left out."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def listing(names: list[str], most: int = 3) -> str:
    """``a, b, c, … (7 more)``: enough of a long list to recognise it by."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names) - most} more)"
