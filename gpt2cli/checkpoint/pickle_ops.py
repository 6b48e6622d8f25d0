"""What a pickle would build, by its opcodes alone: nothing is built before this has been seen."""

import pickle
import pickletools
import warnings
from typing import IO

# Opcodes, and objects in everything that they take up, each counted as often as it is reached: ten
# times what a training checkpoint of the largest GPT-2 has, and a few seconds' work.
_MOST_HANDLED = 1_000_000

_MOST_BITS = 1024  # of a number; torch's own magic one has 77

# What puts objects into the one below them, which is not handled again.
_INTO = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")

# Its argument is how many bytes to fill with zeros, however short the pickle.
_REFUSED = ("builtins bytearray", "__builtin__ bytearray")


def check_opcodes(stream: IO[bytes]) -> None:
    """Raise UnpicklingError for the pickle at the stream's place when it grows beyond measure.

    Objects that hold one another again and again take little memory, and forever to hash or
    print; the number by which an object is kept may be a place in a list that is made that long.
    An escape that is none, of which Python warns, is refused too. The stream is left where it was.
    Raises what pickletools does for a damaged pickle.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            _check(stream)
        except DeprecationWarning as warning:
            raise pickle.UnpicklingError(f"{warning}") from warning


def _check(stream: IO[bytes]) -> None:
    start = stream.tell()
    handled = 0
    stack: list[int | None] = []  # how many objects each one holds, itself too; None is a mark
    memo: dict[int, int | None] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        handled += 1
        if opcode.name == "GLOBAL" and argument in _REFUSED:
            raise pickle.UnpicklingError(f"GLOBAL {str(argument).replace(' ', '.')}")
        if isinstance(argument, int) and argument.bit_length() > _MOST_BITS:
            raise pickle.UnpicklingError("it has a number without measure")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            if int(str(argument)) > 2 * len(memo) + 1000:
                raise pickle.UnpicklingError("it numbers its objects at random")
            memo[int(str(argument))] = stack[-1]
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(str(argument))])
        elif opcode.name == "MARK":
            stack.append(None)
        else:
            taken = _taken(opcode, stack)
            held = 1 + sum(taken)
            handled += sum(taken) - (taken[-1] if opcode.name in _INTO else 0)
            stack += [held] * len(opcode.stack_after)
        if handled > _MOST_HANDLED:
            raise pickle.UnpicklingError("its objects hold one another too often")
    stream.seek(start)


def _taken(opcode: pickletools.OpcodeInfo, stack: list[int | None]) -> list[int]:
    """The sizes of what an opcode takes off the stack."""
    taken = []
    before = opcode.stack_before
    if pickletools.markobject in before:
        while (size := stack.pop()) is not None:
            taken.append(size)
        before = before[: before.index(pickletools.markobject)]
    taken += [stack.pop() or 0 for _ in before]
    return taken
