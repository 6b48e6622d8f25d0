"""Standard output: bytes go out at once, and what cannot be written ends in one line."""

import sys

from ..errors import GPT2Error


def emit(data: bytes) -> None:
    """Write bytes to stdout and flush them.

    Raises BrokenPipeError when the reader has left, GPT2Error for a full disk and the like.
    """
    stream = sys.stdout.buffer
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise GPT2Error(f"cannot write to standard output: {error.strerror}") from error
