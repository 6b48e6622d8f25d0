"""What reading a file may take: time, memory, and no warning."""

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 10  # seconds of the processor
STUCK = 100  # seconds on the clock: enough for a machine that is busy or pauses
LARGEST = 100 * 1024  # KiB beyond what is held before

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class TooLongError(BaseException):
    """A file took longer than any may."""


@contextmanager
def bounded() -> Iterator[None]:
    """Fail on a warning, after LONGEST or STUCK seconds, and, on Linux, for LARGEST more held."""

    def late(*_: object) -> None:
        raise TooLongError

    if CLEAR_REFS.exists():
        CLEAR_REFS.write_text("5")  # the most memory held is what is held now
    before = _memory("VmHWM")
    handlers = {number: signal.signal(number, late) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    signal.setitimer(signal.ITIMER_REAL, STUCK)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        assert _memory("VmHWM") - before < LARGEST


def _memory(what: str) -> int:
    """KiB of memory that this process holds, or held at most; 0 where the system does not say."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(what)), 0)
