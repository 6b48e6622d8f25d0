"""What calling code may pass: each argument that is none of it is refused by its name."""

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from .errors import one_line

BIGGEST_SEED = 2**63 - 1
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Number:
    """A finite number from `low` to `high`, whole where `kind` is Integral; numpy's are such too.

    Where `above` it is more than `low`; where `optional` it may be None. True is no number, and
    −inf is one where it is `low`.
    """

    kind: type[Integral] | type[Real]
    low: float
    high: float = LARGEST
    above: bool = False
    optional: bool = False

    def checked(self, name: str, value: Any) -> Any:
        """`value` as Python's own number; raises TypeError for none, ValueError out of range."""
        if value is None and self.optional:
            return None
        if not _is(self.kind, value):
            raise TypeError(f"{name} is {self}, not {shown(value)}")
        plain = int(value) if isinstance(value, Integral) else float(value)
        if not self.low <= plain <= self.high or (self.above and plain == self.low):
            raise ValueError(f"{name} is {self}, not {shown(value)}")
        return plain

    def __str__(self) -> str:
        """Such a number, in words."""
        what = "a whole number" if self.kind is Integral else "a number"
        within = f"{what} from {self.low} to {self.high}"
        if self.above:
            within = f"{what} above {self.low}, {self.high} at most"
        elif self.low == -math.inf:
            within = f"{what} or -inf"
        elif self.high == LARGEST:
            within = f"{what}, {self.low} or more"
        return f"{within}, or None" if self.optional else within


def hold(owner: object, numbers: Mapping[str, Number]) -> None:
    """Hold the attributes of a frozen object to `numbers`; raises as `Number.checked`."""
    for name, number in numbers.items():
        object.__setattr__(owner, name, number.checked(name, getattr(owner, name)))


def check_bias(name: str, value: object) -> None:
    """Raise TypeError for what maps no ids to numbers, ValueError for NaN and infinity in it."""
    if not isinstance(value, Mapping) or not all(_is(Integral, token) for token in value):
        raise TypeError(f"{name} maps token ids to numbers, as {{11: -1.5}}, and is {shown(value)}")
    for token, amount in value.items():
        Number(Real, -math.inf).checked(f"{name}[{token}]", amount)


def check_flag(name: str, value: object) -> None:
    """Raise TypeError for what is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {shown(value)}")


def checked_name(name: str, value: object) -> str:
    """What a model is called, where a path object is a path; raises TypeError for what names none.

    Lone surrogates stay, as names of files may hold them.
    """
    if isinstance(value, os.PathLike):
        return str(Path(value).absolute())
    if not isinstance(value, str):
        raise TypeError(f"{name} is a name (str) or a path (str or Path), not {shown(value)}")
    return value


def checked_text(name: str, value: object, what: str = "a text (str)") -> str:
    """`value`; raises TypeError for what is no text, ValueError where half a character is in it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {what}, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = f"{value[error.start]!r} at {error.start}"
        raise ValueError(f"{name} holds a lone surrogate, {half}, which is no character") from None
    return value


def checked_texts(name: str, values: object) -> tuple[str, ...]:
    """The texts in `values`; raises as `checked_text`, and TypeError for one text by itself."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        example = shown(values) if isinstance(values, str) else "'…'"
        raise TypeError(f"{name} is several texts, as {name}=[{example}], not {shown(values)}")
    return tuple(checked_text(f"{name}[{place}]", value) for place, value in enumerate(values))


def shown(value: object) -> str:
    """A value in a message: on one line, and not all of much."""
    return one_line(shortened(value))


def _is(kind: type, value: object) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
