"""gpt2 verify: whether a checkpoint, loaded here, computes what GPT-2 computes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import __version__
from .opening import network, open_weights
from .options import Number, chosen_model, computing, model_argument, quiet_option
from .output import emit, emit_lines, json_line

if TYPE_CHECKING:
    from ..model import GPT2
    from ..verification.comparison import Report, Tolerance
    from ..verification.reference import Reference


@click.command("verify", short_help="Check what a model computes.")
@model_argument
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    help="Logits to compare with: JSON or safetensors.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    help="Write this model's logits and hidden states as a reference.",
)
@click.option("--all", "parts", is_flag=True, help="With --record: what each part computes, too.")
@click.option("--atol", type=Number(min=0), default=1e-4, show_default=True)
@click.option("--rtol", type=Number(min=0), default=2e-5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@computing
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    argument: str | None,
    model: str | None,
    reference: Path | None,
    record: Path | None,
    parts: bool,
    atol: float,
    rtol: float,
    as_json: bool,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    """Compare the logits of MODEL with a reference, or with its own redundant paths.

    \b
    gpt2 verify ./model --reference expected.json
    gpt2 verify austen --record austen.safetensors --all
    gpt2 verify austen

    A reference holds input_ids [B, T] and logits [B, T, V], and may hold hidden states
    (hidden_states.0 … hidden_states.L) by which the first block that differs is found. A position
    passes when every logit and log-probability is within atol + rtol times the reference.

    Exit code 0: passed. 1: failed.
    """
    name = chosen_model(argument, model)
    if parts and record is None:
        raise click.UsageError("--all belongs to --record.")
    from ..verification.comparison import Tolerance
    from ..verification.reference import Reference

    expected = None if reference is None else Reference.read(reference)
    checkpoint = open_weights(name, quiet=quiet)
    tolerance = Tolerance(atol, rtol)
    report = _report(network(checkpoint, device, threads), name, expected, record, parts, tolerance)
    if as_json:
        emit(json_line(report.json()))
    else:
        emit_lines(_lines(report))
    ctx.exit(0 if report.passed else 1)


def _report(
    gpt2: GPT2,
    name: str,
    expected: Reference | None,
    record: Path | None,
    parts: bool,
    tolerance: Tolerance,
) -> Report:
    """Verify, and write a recording of the same ids, if they can be run, when one was asked for."""
    from ..verification import divergence, paths
    from ..verification.against import check_reference

    if expected is None:
        report = paths.check_paths(gpt2, name, tolerance)
    else:
        report = check_reference(gpt2, name, expected, tolerance)
    if record is not None and report.comparison.positions:
        ids = paths.sample_ids(gpt2) if expected is None else expected.input_ids
        divergence.record(gpt2, ids, f"gpt2cli {__version__}: {name}", parts).write(record)
    return report


def _lines(report: Report) -> Iterator[str]:
    """The report as people read it."""
    c = report.comparison
    yield f"{report.subject} against {report.against}"
    if c.positions:
        same = round(c.argmax_agreement * c.positions)
        yield f"  positions compared  {c.positions}"
        yield f"  max |Δlogit|        {c.max_abs_diff:.3g}"
        yield f"  max |Δlogprob|      {c.max_abs_logprob_diff:.3g}"
        yield f"  mean KL             {c.mean_kl:.3g} nats"
        yield f"  argmax agreement    {same} of {c.positions}"
        yield f"  tolerance used      {_percent(c.tolerance_used)} of {report.tolerance} (float32)"
    for check in report.checks:
        verdict = "ok" if check.passed else "FAILED"
        worst = "" if check.worst is None else f" ({_percent(check.worst)} of the tolerance)"
        yield f"  {verdict:<6} {check.name}{worst}"
    if report.divergence is not None:
        yield f"  first divergence    {report.divergence}"
    yield _verdict(report)


def _verdict(report: Report) -> str:
    if not report.passed:
        return "FAIL"
    if report.kind == "self":
        return "PASS: self-consistent (nothing outside was compared)"
    return "PASS"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if math.isfinite(share) else "not a number"
