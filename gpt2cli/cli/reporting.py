"""A verification as people read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..verification.comparison import Check, Report

_MANY = 10  # times a tolerance, and more, are said as such and not as a percentage
_MOST_SAID = 20  # failures and warnings that are spelled out; --json has them all


def lines(report: Report, dtype: str) -> Iterator[str]:
    """Figures, a table of what was checked, what failed, where, why, and the verdict."""
    yield f"{report.subject} against {report.against}"
    yield from _figures(report, dtype)
    yield from _table(report.checks)
    said = [check for check in report.checks if _has_more(check)]
    for check in said[:_MOST_SAID]:
        yield f"  {_remark(check)}"
    if len(said) > _MOST_SAID:
        yield f"  … and {len(said) - _MOST_SAID} more; --json has them all"
    if report.skipped:
        yield f"  not run, as something before failed: {', '.join(report.skipped)}"
    if report.divergence is not None:
        yield f"  first divergence    {report.divergence}"
    for cause in report.causes:
        yield f"  likely cause        {cause.id}: {cause.description}"
    yield _verdict(report)


def _figures(report: Report, dtype: str) -> Iterator[str]:
    c = report.comparison
    if not c.positions:
        return
    yield f"  positions compared  {c.positions}"
    yield f"  max |Δlogit|        {_number(c.max_abs_diff)}"
    yield f"  max |Δlogprob|      {_number(c.max_abs_logprob_diff)}"
    if report.kind == "published":
        return
    same = round(c.argmax_agreement * c.positions)
    yield f"  mean KL             {c.mean_kl:.3g} nats"
    yield f"  argmax agreement    {same} of {c.positions}"
    yield f"  tolerance used      {_share(c.tolerance_used, str(report.tolerance))} ({dtype})"


def _table(checks: Sequence[Check]) -> Iterator[str]:
    """A line a kind, and of a network's own paths a line each: the worst last."""
    rows: dict[str, list[Check]] = {}
    for check in checks:
        rows.setdefault(check.name if check.kind == "self" else check.kind, []).append(check)
    width = max([len("kind"), *map(len, rows)])
    yield f"  {'kind':<{width}}  checked  verdict  worst share of its tolerance"
    for label, row in rows.items():
        verdict = "ok" if all(check.passed for check in row) else "FAILED"
        if verdict == "ok" and any(check.warning for check in row):
            verdict = "warning"
        yield f"  {label:<{width}}  {len(row):>7}  {verdict:<7}  {_worst(row)}"


def _worst(checks: Sequence[Check]) -> str:
    shares = [check.worst for check in checks if check.worst is not None]
    if not all(check.passed for check in checks) and len(shares) < len(checks):
        return "–"
    return _percent(max(shares)) if any(shares) else "exact"


def _has_more(check: Check) -> bool:
    """Whether there is more to say of a check than its line in the table does."""
    return bool(check.warning) or not (check.passed or check.kind in ("self", "logits", "loss"))


def _remark(check: Check) -> str:
    said = f": {check.warning}" if check.warning else ""
    share = "" if check.worst is None else f" ({_share(check.worst, check.tolerance)})"
    return f"{'warning' if check.passed else 'FAILED'} {check.name}{said}{share}"


def _verdict(report: Report) -> str:
    if not report.passed:
        return "FAIL"
    if report.kind == "self" and report.against.startswith("its own"):
        return "PASS: self-consistent (nothing outside was compared)"
    return "PASS"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "not a number"


def _share(share: float, tolerance: str) -> str:
    """How much of a tolerance is used, with the tolerance."""
    if math.isinf(share):
        return f"a difference where the tolerance is 0: {tolerance}"
    return f"{_percent(share)} {'the tolerance of' if share >= _MANY else 'of'} {tolerance}"


def _percent(share: float) -> str:
    """A share of a tolerance; of many times as much, how many."""
    if math.isnan(share):
        return "not a number"
    if math.isinf(share):
        return "over 0"
    if share < _MANY:
        return f"{100 * share:.3g} %"
    return f"{share:,.0f} ×" if share < 1e6 else f"{share:.1e} ×"
