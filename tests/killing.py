"""The program started again and again, its imports done once, and ended at random moments."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# How often a test ends a run; `make faults` asks for many.
TIMES = int(os.environ.get("FAULTS", "3"))

_STARTER = """
import gc, importlib, json, os, signal, sys, time
for name in sys.argv[1:]:
    importlib.import_module(name)
from gpt2cli.cli import main
gc.collect()
gc.freeze()  # a child need not walk what was imported: that copies its memory and takes longest

def start(args, out, err):
    process = os.fork()
    if process:
        return process
    for number, path in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv[1:] = args
    main()

for line in sys.stdin:
    after, number, *order = json.loads(line)
    begun = time.monotonic()
    process = start(*order)
    ended, status = 0, 0
    while not ended:
        left = after - (time.monotonic() - begun) if number else 1
        if left <= 0:
            os.kill(process, number)
            number = 0
        time.sleep(min(max(left, 0), 0.002))
        ended, status = os.waitpid(process, os.WNOHANG)
    seconds = time.monotonic() - begun
    print(json.dumps([os.waitstatus_to_exitcode(status), seconds]), flush=True)
"""


@dataclass(frozen=True)
class Run:
    """How a run ended, as a shell shows it, how long it took, and what it printed."""

    code: int
    seconds: float
    out: bytes
    err: bytes


class Starter:
    """Starts `gpt2` as often as it is asked to."""

    def __init__(self, process: subprocess.Popen, folder: Path) -> None:
        self._process = process
        self._files = [str(folder / "stdout"), str(folder / "stderr")]

    def run(self, *args: str, after: float = 0, number: int = 0) -> Run:
        """A run, which `number`, a signal, reaches after so many seconds unless it is 0."""
        order = [after, number, args, *self._files]
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        code, seconds = json.loads(self._process.stdout.readline())
        out, err = (Path(path).read_bytes() for path in self._files)
        return Run(128 - code if code < 0 else code, seconds, out, err)

    def ended_at_random(self, *args: str, by: Sequence[int] = (signal.SIGKILL,)) -> Iterator[Run]:
        """Runs that one of the signals reaches at any moment of the time that a first one takes."""
        random_ = random.Random(0)
        whole = self.run(*args)
        assert whole.code == 0, whole
        for _ in range(TIMES):
            after = random_.uniform(0, 1.1 * whole.seconds)
            ran = self.run(*args, after=after, number=random_.choice(by))
            assert ran.code in (0, *(128 + number for number in by)), ran
            yield ran


@contextmanager
def starter(folder: Path, *modules: str, **environment: str) -> Iterator[Starter]:
    """A process that has imported `modules` and starts the program in children of its own.

    `folder` is for what they print.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER, *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        text=True,
    ) as process:
        try:
            yield Starter(process, folder)
        finally:
            process.stdin.close()
