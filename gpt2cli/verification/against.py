"""A network against a reference."""

from collections.abc import Iterator

import torch

from ..model import GPT2
from .comparison import NOTHING, Check, Report, Tolerance, compare
from .divergence import locate
from .reference import Reference


@torch.inference_mode()
def check_reference(
    model: GPT2, subject: str, reference: Reference, tolerance: Tolerance
) -> Report:
    """Compare a network's logits with a reference's, and say where they part first.

    Shapes that differ, ids outside the vocabulary, a reference without positions, and numbers
    that are not finite each fail by name.
    """
    problems = [_failed(name) for name in _problems(model, reference)]
    if problems:
        return Report("reference", subject, reference.source, NOTHING, tuple(problems), tolerance)
    ours = model(reference.input_ids.to(model.wte.weight.device)).cpu()
    comparison = compare(ours, reference.logits, tolerance)
    checks = [
        Check(
            "logits",
            "logits and log-probabilities",
            comparison.passed,
            comparison.tolerance_used,
            str(tolerance),
        )
    ]
    if not ours.isfinite().all():
        checks.insert(0, _failed("the network computes NaN or infinity"))
    divergence = None if comparison.passed else locate(model, reference)
    return Report(
        "reference", subject, reference.source, comparison, tuple(checks), tolerance, divergence
    )


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
    states = reference.hidden_states
    if states and [s.shape for s in states] != [(*ids.shape, config.n_embd)] * (config.n_layer + 1):
        yield f"hidden states are not {config.n_layer + 1} of {[*ids.shape, config.n_embd]}"
