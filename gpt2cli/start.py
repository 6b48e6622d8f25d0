"""The program ``gpt2``: it imports all else itself, so that Ctrl-C is quiet from here on."""

import sys


def program() -> None:
    """Run the command line; it ends at once, where Python would undo torch for long."""
    try:
        import os
        from contextlib import suppress

        from gpt2cli.cli import main
    except KeyboardInterrupt:  # there is no seam yet
        sys.exit(130)
    try:
        main()
    except SystemExit as end:
        if "torch" not in sys.modules or not isinstance(end.code, int):
            raise
        with suppress(OSError):  # which has been said, if somebody can hear it
            sys.stdout.flush()
        os._exit(end.code)
