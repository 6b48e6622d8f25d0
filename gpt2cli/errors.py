"""The one kind of error a user can act on."""


class GPT2Error(Exception):
    """A problem with the user's files, network or request: what, where, and what to do next.

    The message is one line. The command line prints it as ``Error: …`` and exits 1; a program
    that uses the package catches this one class. A mistake in the calling code is a
    ``ValueError`` or ``TypeError`` instead.
    """


def listing(names: list[str], most: int = 3) -> str:
    """``a, b, c, … (7 more)``: enough of a long list to recognise it by."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names) - most} more)"
