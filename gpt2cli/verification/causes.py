"""Why a network differs from a reference: the hypotheses that make the difference vanish."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import GPT2
from .comparison import Cause, Divergence, Tolerance
from .divergence import states_differ
from .hypotheses import HALVES, Hypothesis, around_blocks, in_blocks, swaps
from .reference import Reference

_AHEAD = 8  # positions after the first bad one that a first trial runs


@dataclass(frozen=True)
class Trial:
    """A mismatch to explain: the network's own logits, and where it parts from the reference."""

    model: GPT2
    reference: Reference
    ours: Tensor
    tolerance: Tolerance
    where: Divergence | None

    @property
    def block(self) -> int | None:
        """The first bad block, where hidden states tell it."""
        return None if self.where is None else self.where.block

    @property
    def behind(self) -> bool:
        """Whether hidden states tell that the mismatch is after the last block."""
        return self.where is not None and self.where.part in ("ln_f", "logits")


@torch.inference_mode()
def explain(trial: Trial) -> tuple[Cause, ...]:
    """The causes that make the mismatch vanish, one an id; none when no single one does.

    With hidden states a hypothesis is judged on the blocks up to the first bad one, each run on
    the reference's own input, or on what follows the last block; else on the logits. Blocks are
    swapped only when nothing else explains it.
    """
    found = _first_of_each_id(_of_logits(trial))
    found |= _accepted(_everywhere(trial), _judge(trial))
    if not found and trial.block is not None:
        alone = in_blocks(trial.model, [trial.block])
        found |= _accepted(alone, lambda h: _block_met(trial, h.make(), trial.block))
    if not found and not trial.behind:
        among = range(trial.model.config.n_layer) if trial.block is None else [trial.block]
        found |= _accepted(swaps(trial.model, among), _judge(trial))
    return tuple(found.values())


@torch.inference_mode()
def explain_by(model: GPT2, accepts: Callable[[Hypothesis], bool]) -> tuple[Cause, ...]:
    """The causes that `accepts`, one an id, of those that a network without its packing shows."""
    n_layer = model.config.n_layer
    cheap = itertools.chain(in_blocks(model, range(n_layer)), around_blocks(model, 0))
    found = _accepted(cheap, accepts) or _accepted(swaps(model, range(n_layer)), accepts)
    return tuple(found.values())


def _everywhere(trial: Trial) -> Iterator[Hypothesis]:
    yield from in_blocks(trial.model, range(trial.model.config.n_layer))
    if trial.block is None:
        yield from around_blocks(trial.model, _first_bad(trial)[1])
    else:  # a block's error on its own input is none of the positions' or the head's
        yield from (h for h in around_blocks(trial.model, 0) if h.cause.id == "rounding")


def _accepted(
    hypotheses: Iterable[Hypothesis], judge: Callable[[Hypothesis], bool]
) -> dict[str, Cause]:
    return _first_of_each_id(h.cause for h in hypotheses if judge(h))


def _first_of_each_id(causes: Iterable[Cause]) -> dict[str, Cause]:
    found: dict[str, Cause] = {}
    for cause in causes:
        found.setdefault(cause.id, cause)
    return found


def _judge(trial: Trial) -> Callable[[Hypothesis], bool]:
    """How a hypothesis is tried, by what the reference holds and where the networks part."""
    if trial.block is not None:
        last = trial.block
        return lambda h: all(_block_met(trial, h.make(), layer) for layer in range(last + 1))
    if trial.behind:
        return lambda h: h.before is None and _end_met(trial, h.make())
    return lambda h: _logits_met(trial, h)


def _block_met(trial: Trial, model: GPT2, layer: int | None) -> bool:
    if layer is None:
        return False
    states = [state.to(model.wte.weight.device) for state in trial.reference.hidden_states]
    return not states_differ(model.h[layer](states[layer]), states[layer + 1])


def _end_met(trial: Trial, model: GPT2) -> bool:
    state = trial.reference.hidden_states[-1].to(model.wte.weight.device)
    return within(model.unembed(model.ln_f(state)), trial.reference.logits, trial.tolerance)


def _logits_met(trial: Trial, hypothesis: Hypothesis) -> bool:
    """Whether logits are met: first a few positions of one row, then all."""
    model, before = hypothesis.make(), hypothesis.before
    ids, logits = trial.reference.input_ids, trial.reference.logits
    row, position = _first_bad(trial)
    few = slice(row, row + 1), slice(0, position + _AHEAD)
    return all(
        within(_run(model, ids[part], before), logits[part], trial.tolerance)
        for part in (few, (slice(None), slice(None)))
    )


def _run(model: GPT2, ids: Tensor, before: int | None) -> Tensor:
    """Logits [B, T, V] of ids, run after one more id where there is one."""
    ids = ids.to(model.wte.weight.device)
    if before is not None:
        ids = torch.cat([torch.full_like(ids[:, :1], before), ids], dim=1)
    if ids.shape[1] > model.config.n_positions:
        return torch.full((), torch.nan)
    logits: Tensor = model(ids)
    return logits if before is None else logits[:, 1:]


def within(ours: Tensor, reference: Tensor, tolerance: Tolerance) -> bool:
    """Whether logits are within their bound at every entry; NaN is not."""
    reference = reference.double()
    return bool(((ours.cpu().double() - reference).abs() <= tolerance.bound(reference)).all())


def _first_bad(trial: Trial) -> tuple[int, int]:
    """The row and position [B, T] of the earliest position whose logits differ."""
    reference = trial.reference.logits.double()
    error = (trial.ours.double() - reference).abs() - trial.tolerance.bound(reference)
    bad = ~(error <= 0).all(-1)
    position = int(bad.any(0).int().argmax())
    return int(bad[:, position].int().argmax()), position


def _of_logits(trial: Trial) -> Iterator[Cause]:
    """What is told by the two sets of logits alone."""
    if trial.block is not None:
        return
    ours, reference = trial.ours.double(), trial.reference.logits.double()
    bound = trial.tolerance.bound(reference)
    shift = (ours.log_softmax(-1) - reference.log_softmax(-1)).abs()
    if bool((shift <= bound).all()):
        yield Cause("constant_shift", "the reference's logits are moved by one number a position")
    for name, dtype in HALVES.items():
        low, high = ((ours + side).to(dtype).double() for side in (-bound, bound))
        stored = torch.equal(reference.to(dtype).double(), reference)
        if stored and bool(((low <= reference) & (reference <= high)).all()):
            yield Cause("rounding", f"the reference's logits are rounded to {name}")
