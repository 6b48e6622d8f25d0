"""gpt2 verify: whether a checkpoint, loaded here, computes what GPT-2 computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..naming import parse_model
from .completion import MODEL
from .options import NAME, chosen_model, computing, model_argument, number, quiet_option
from .output import emit, emit_lines, json_line
from .reporting import lines
from .verify_task import Task

if TYPE_CHECKING:
    from ..verification.comparison import Report, Tolerance


def _recording(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """A callback of --record: a file whose ending says what is written."""
    if path is not None and not path.name.lower().endswith((".json", ".safetensors")):
        raise click.BadParameter(f"{str(path)!r} is no name of a .safetensors or .json file.")
    return path


@click.command("verify", short_help="Check what a model computes.")
@model_argument
@click.option(
    "--reference",
    type=NAME,
    metavar="FILE",
    help="Logits to compare with: JSON, safetensors, or llm.c's debug state.",
)
@click.option(
    "--against",
    type=MODEL,
    metavar="MODEL",
    help="Another model to compare with, run in float32, or transformers.",
)
@click.option("--selftest", is_flag=True, help="Check this installation; needs no files.")
@click.option(
    "--record",
    type=NAME,
    metavar="FILE",
    callback=_recording,
    help="Write a reference: .safetensors with hidden states, or .json of logits alone.",
)
@click.option("--all", "parts", is_flag=True, help="With --record: what each part computes, too.")
@click.option(
    "--atol",
    type=number(float, 0),
    metavar="A",
    help="Difference allowed in a logit or log-probability.  [default: 0.0001 in float32]",
)
@click.option(
    "--rtol",
    type=number(float, 0),
    metavar="R",
    help="Further difference allowed, times the reference's logit.  [default: 0.00002 in float32]",
)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@computing
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    argument: str | None,
    model: str | None,
    reference: Path | None,
    against: str | None,
    selftest: bool,
    record: Path | None,
    parts: bool,
    atol: float | None,
    rtol: float | None,
    as_json: bool,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    """Compare what MODEL computes with a reference, another model, or what others published.

    \b
    gpt2 verify gpt2                                  published figures
    gpt2 verify ./model --reference expected.json     logits of another program
    gpt2 verify ./model --against ./converted         two checkpoints, live
    gpt2 verify austen                                its own redundant paths
    gpt2 verify --selftest                            this installation

    A reference holds input_ids [B, T] and logits [B, T, V], and may hold hidden states
    (hidden_states.0 … hidden_states.L) by which the first block that differs is found. A position
    passes when every logit and log-probability is within atol + rtol times the reference. On a
    mismatch, changes that would make it vanish are tried, and those that do are named. Files in
    the Hub's cache are first held to the hashes that the Hub told of them.

    Exit code 0: passed. 1: failed.
    """
    if sum([reference is not None, against is not None, selftest]) > 1:
        raise click.UsageError("--reference, --against and --selftest exclude each other.")
    if parts and (record is None or record.name.lower().endswith(".json")):
        raise click.UsageError("--all belongs to --record FILE.safetensors; JSON has no states.")
    if selftest and (argument or _given(ctx, "model", "record", "device", "dtype")):
        raise click.UsageError("--selftest takes no MODEL, --record, --device or --dtype.")
    name = chosen_model(argument, model)
    published = not (selftest or reference or against) and parse_model(name).preset is not None
    if published and _given(ctx, "atol", "rtol"):
        raise click.UsageError("Published figures have tolerances of their own.")
    from ..verification.comparison import TOLERANCES, Tolerance

    usual = TOLERANCES[dtype]
    tolerance = Tolerance(
        usual.atol if atol is None else atol, usual.rtol if rtol is None else rtol
    )
    if selftest:
        report = _selftest(tolerance, threads)
    else:
        task = Task(
            name,
            tolerance,
            reference,
            against,
            record,
            parts,
            device,
            dtype,
            threads,
            quiet,
        )
        report = task.run()
    if as_json:
        emit(json_line(report.json()))
    else:
        emit_lines(lines(report, dtype))
    ctx.exit(0 if report.passed else 1)


def _given(ctx: click.Context, *names: str) -> bool:
    """Whether one of the options stands on the command line."""
    written = click.core.ParameterSource.COMMANDLINE
    return any(ctx.get_parameter_source(name) is written for name in names)


def _selftest(tolerance: Tolerance, threads: int | None) -> Report:
    import torch

    from ..verification.selftest import selftest

    # tensors of a few numbers are computed faster by one thread than by several that wait
    torch.set_num_threads(threads or 1)
    return selftest(tolerance)
