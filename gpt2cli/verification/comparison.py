"""Two sets of logits side by side, and what a report says of them."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["reference", "published", "self", "against"]


@dataclass(frozen=True)
class Tolerance:
    """An entry passes when |Δ| ≤ atol + rtol · |reference|."""

    atol: float = 1e-4
    rtol: float = 2e-5

    def bound(self, reference: Tensor) -> Tensor:
        """The largest difference allowed, entry by entry."""
        return self.atol + self.rtol * reference.abs()

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g}·|reference|"


# By the type that weights are held in, of logits against those of the weights as they are stored.
# Rounding changes what a network computes: bfloat16 and int8 cost `austen`, whose logits reach 20,
# a sixth and a third of these bounds, and float16 costs a self-test's networks a fifth.
TOLERANCES = {
    "float32": Tolerance(),
    "float16": Tolerance(0.02, 1e-3),
    "bfloat16": Tolerance(0.2, 1e-2),
    "int8": Tolerance(0.5, 2e-2),
}


@dataclass(frozen=True)
class Comparison:
    """How far apart two sets of logits [B, T, V] are.

    `tolerance_used` is the worst |Δ| as a share of its bound, of logits and log-probabilities
    alike; it passes up to 1. Figures are NaN when something was not finite.
    """

    positions: int
    max_abs_diff: float
    max_abs_logprob_diff: float
    mean_kl: float
    argmax_agreement: float
    tolerance_used: float

    @property
    def passed(self) -> bool:
        """Whether every entry is within its bound; never for NaN, nor for no positions."""
        return self.positions > 0 and self.tolerance_used <= 1


NOTHING = Comparison(0, math.nan, math.nan, math.nan, math.nan, math.nan)


def compare(ours: Tensor, reference: Tensor, tolerance: Tolerance) -> Comparison:
    """Compare logits [B, T, V] entry by entry, a position at a time, in float64."""
    flat = list(zip(ours.flatten(0, -2), reference.flatten(0, -2), strict=True))
    if not flat:
        return NOTHING
    rows = torch.stack([_position(a.double(), b.double(), tolerance) for a, b in flat])
    diff, logprob, share = (float(column.max()) for column in rows[:, :3].T)
    kl, same = (float(column.mean()) for column in rows[:, 3:].T)
    return Comparison(len(flat), diff, logprob, max(kl, 0.0), same, share)


def _position(ours: Tensor, reference: Tensor, tolerance: Tolerance) -> Tensor:
    """Of one position: max |Δlogit|, max |Δlogprob|, share of the bound, KL, same argmax."""
    ours_log, reference_log = ours.log_softmax(-1), reference.log_softmax(-1)
    logit, logprob = (ours - reference).abs(), (ours_log - reference_log).abs()
    worse = torch.maximum(logit, logprob)
    # no difference uses nothing, of a bound of 0 as well
    share = torch.where(worse == 0, worse, worse / tolerance.bound(reference))
    kl = (reference_log.exp() * (reference_log - ours_log)).sum()
    same = (ours.argmax() == reference.argmax()).double()
    return torch.stack([logit.max(), logprob.max(), share.max(), kl, same])


@dataclass(frozen=True)
class Check:
    """One thing that was checked: the worst share of its tolerance, and the verdict.

    `worst` is None where nothing is tolerated. `warning` says what to know of one that passed.
    """

    kind: str
    name: str
    passed: bool
    worst: float | None
    tolerance: str
    warning: str = ""

    def json(self) -> dict[str, Any]:
        """The check as `gpt2 verify --json` prints it."""
        name = f"{self.name}: {self.warning}" if self.warning else self.name
        known = self.worst is not None and math.isfinite(self.worst)
        worst = self.worst if known else None
        return {
            "kind": self.kind,
            "name": name,
            "passed": self.passed,
            "worst": worst,
            "tolerance": self.tolerance,
        }


@dataclass(frozen=True)
class Divergence:
    """Where two computations part first: a block (from 0, None outside them) and a part of it."""

    block: int | None
    part: str

    def __str__(self) -> str:
        if self.block is None:
            return self.part
        return f"h.{self.block}" if self.part == "block" else f"h.{self.block}.{self.part}"


@dataclass(frozen=True)
class Cause:
    """What would explain a mismatch: a short id for machines and a sentence for people."""

    id: str
    description: str


@dataclass(frozen=True)
class Report:
    """The outcome of a verification.

    `skipped` are kinds of checks that were not run because an earlier one failed.
    """

    kind: Kind
    subject: str
    against: str
    comparison: Comparison
    checks: tuple[Check, ...]
    tolerance: Tolerance
    divergence: Divergence | None = None
    causes: tuple[Cause, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed; a report without a check has not."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def json(self) -> dict[str, Any]:
        """The report as `gpt2 verify --json` prints it; what is not finite is null."""
        c = self.comparison
        figures = {
            "max_abs_diff": c.max_abs_diff,
            "max_abs_logprob_diff": c.max_abs_logprob_diff,
            "mean_kl": c.mean_kl,
            "argmax_agreement": c.argmax_agreement,
            "tolerance_used": c.tolerance_used,
        }
        where = self.divergence
        return {
            "passed": self.passed,
            "kind": self.kind,
            "positions": c.positions,
            **{name: _finite(value) for name, value in figures.items()},
            "checks": [check.json() for check in self.checks],
            "first_divergence": where and {"block": where.block, "part": where.part},
            "causes": [vars(cause) for cause in self.causes],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
