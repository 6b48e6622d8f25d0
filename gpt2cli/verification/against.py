"""A network against a reference: recorded, or another network live."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..model import GPT2
from .causes import Trial, explain, within
from .comparison import NOTHING, Cause, Check, Kind, Report, Tolerance, compare
from .divergence import locate
from .reference import Reference


@torch.inference_mode()
def check_reference(
    model: GPT2,
    subject: str,
    reference: Reference,
    tolerance: Tolerance,
    plain: Callable[[], GPT2] | None = None,
    kind: Kind = "reference",
) -> Report:
    """Compare a network's logits with a reference's, and say where they part first, and why.

    `plain` gives the same network in unpacked float32, for the causes to be tried on; without it
    `model` is taken for that. Shapes that differ, ids outside the vocabulary, a reference without
    positions, and numbers that are not finite each fail by name.
    """
    problems = [_failed(name) for name in _problems(model, reference)]
    if problems:
        return Report(kind, subject, reference.source, NOTHING, tuple(problems), tolerance)
    ours = model(reference.input_ids.to(model.wte.weight.device)).cpu()
    comparison = compare(ours, reference.logits, tolerance)
    logits = ("logits", "logits and log-probabilities")
    used = comparison.tolerance_used
    checks = [Check(*logits, comparison.passed, used, str(tolerance))]
    if reference.targets is not None and reference.loss is not None:
        checks.append(_loss(ours, reference.targets, reference.loss, tolerance))
    if not ours.isfinite().all():
        checks.insert(0, _failed("the network computes NaN or infinity"))
    report = Report(kind, subject, reference.source, comparison, tuple(checks), tolerance)
    if comparison.passed:
        return report
    divergence = locate(model, reference)
    trial = Trial(plain() if plain else model, reference, ours, tolerance, divergence)
    return replace(report, divergence=divergence, causes=_causes(trial, packed=plain is not None))


def _causes(trial: Trial, packed: bool) -> tuple[Cause, ...]:
    """What explains a mismatch; first, whether it is the packing of the weights alone."""
    ids = trial.reference.input_ids.to(trial.model.wte.weight.device)
    if packed and within(trial.model(ids), trial.reference.logits, trial.tolerance):
        return (Cause("rounding", "the weights' own type: in float32 the logits are met"),)
    return explain(trial)


def _loss(ours: Tensor, targets: Tensor, loss: float, tolerance: Tolerance) -> Check:
    """The mean of −log p(target) against the recorded one."""
    logprobs = ours.double().log_softmax(-1)
    mean = -logprobs.gather(-1, targets[..., None]).mean()
    bound = tolerance.bound(torch.tensor(loss, dtype=torch.float64))
    share = float((mean - loss).abs() / bound)
    return Check("loss", "mean loss", share <= 1, share, str(tolerance))


def _failed(name: str) -> Check:
    return Check("input", name, passed=False, worst=None, tolerance="exact")


def _problems(model: GPT2, reference: Reference) -> Iterator[str]:
    """What makes a reference impossible to compare with, a sentence each."""
    config, ids, logits = model.config, reference.input_ids, reference.logits
    if not ids.numel():
        yield "the reference has no positions"
        return
    if ids.ndim != 2 or logits.shape != (*ids.shape, config.vocab_size):
        wanted = f"input_ids [B, T] and logits [B, T, {config.vocab_size}]"
        yield f"shapes {[*ids.shape]} and {[*logits.shape]} are not {wanted}"
        return
    if ids.shape[1] > config.n_positions:
        yield f"{ids.shape[1]} positions are more than the model's {config.n_positions}"
    outside = ids[(ids < 0) | (ids >= config.vocab_size)]
    if len(outside):
        yield f"id {int(outside[0])} is outside the vocabulary, 0 to {config.vocab_size - 1}"
    if not logits.isfinite().all():
        yield "the reference holds NaN or infinity"
    if reference.targets is not None and not _inside(reference.targets, config.vocab_size):
        yield f"a target is outside the vocabulary, 0 to {config.vocab_size - 1}"
    states = reference.hidden_states
    if states and [s.shape for s in states] != [(*ids.shape, config.n_embd)] * (config.n_layer + 1):
        yield f"hidden states are not {config.n_layer + 1} of {[*ids.shape, config.n_embd]}"


def _inside(ids: Tensor, vocab_size: int) -> bool:
    return bool(((ids >= 0) & (ids < vocab_size)).all())
