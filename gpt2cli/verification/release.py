"""A checkpoint of a released size against the figures that others published of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..checkpoint import Checkpoint
from ..model import GPT2
from ..tokenizer import Tokenizer
from .causes import explain_by
from .comparison import TOLERANCES, Cause, Check, Comparison, Report
from .figures import MEASURES, Run, ids_of
from .hypotheses import Hypothesis
from .published import STAGES, Fact
from .stored_figures import EXACT, WEIGHTS, applies

# The gap between two logits, by the type the figure was computed in, within which a program that
# rounds another way may take the other token: twice what published logits are met within.
NEAR_TIES = {"float32": 0.002, "float16": 0.1, "bfloat16": 0.5, "int8": 1.0}

_LOGITS = ("logits", "logits_mean", "logit_difference", "greedy_step_logits")
_LOGPROBS = ("token_logprobs", "sequence_logprob", "continuation_logprob", "greedy_step_logprobs")

# Kinds that are told by running whole texts, so that a cause can be tried on them.
_CONTEXTUAL = tuple(kind for stage in STAGES[2:] for kind in stage)


@dataclass(frozen=True)
class Verdict:
    """How a fact compares: the largest |Δ|, its share of the bound, and what there is to say.

    `share` is 0 for what is exactly as published and infinite for what can only be exact and is
    not. `agreeing` of `tokens` predicted tokens were the published ones.
    """

    share: float
    difference: float = 0.0
    remark: str = ""
    tokens: int = 0
    agreeing: int = 0


@dataclass(frozen=True)
class Release:
    """A checkpoint, the tokenizer of the figures' texts, and a way to the network.

    The network is loaded when the first figure needs it: what can be told without fails first.
    `unpacked` gives it in float32 under the released names, for causes to be tried on.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    load: Callable[[], GPT2]
    unpacked: Callable[[], GPT2]
    before: int | None = None

    @cached_property
    def run(self) -> Run:
        """The network, and what it has computed so far."""
        return Run(self.load(), self.before)


@torch.inference_mode()
def check_release(
    release: Release, subject: str, facts: Sequence[Fact], dtype: str = "float32"
) -> Report:
    """Check every fact that applies, stage by stage; what follows a failed stage is skipped.

    A published file size or hash that differs is a warning, as a re-saved file differs; so is
    what fails with a confidence of ``uncertain``, and a near-tie that went the other way.
    `dtype` is what the network's weights are held in.
    """
    facts = [f.loosened(dtype, TOLERANCES[dtype]) for f in facts if applies(f, release.checkpoint)]
    judged: list[tuple[Fact, Verdict]] = []
    skipped: list[str] = []
    failed: list[Fact] = []
    for stage in STAGES:
        kinds = [kind for kind in stage if any(fact.kind == kind for fact in facts)]
        if failed:
            skipped += kinds
            continue
        here = [fact for kind in kinds for fact in facts if fact.kind == kind]
        judged += [(fact, judge(fact, release)) for fact in here]
        failed = [fact for fact, verdict in judged if not _check(fact, verdict).passed]
    checks = tuple(_check(fact, verdict) for fact, verdict in judged)
    against = "figures that others published"
    whole = Report("published", subject, against, _summary(judged), checks, TOLERANCES[dtype])
    return replace(whole, skipped=tuple(skipped), causes=_causes(release, failed))


def _causes(release: Release, failed: Sequence[Fact]) -> tuple[Cause, ...]:
    """The changes of the network with which all that failed is as published."""
    if not failed or any(fact.kind not in _CONTEXTUAL for fact in failed):
        return ()

    def accepts(hypothesis: Hypothesis) -> bool:
        changed = replace(release, load=hypothesis.make, before=hypothesis.before)
        return all(judge(fact, changed).share <= 1 for fact in failed)

    return explain_by(release.unpacked(), accepts)


def judge(fact: Fact, release: Release) -> Verdict:
    """How this checkpoint compares with one fact."""
    if fact.kind in EXACT:
        return _exact("; ".join(EXACT[fact.kind](fact, release.checkpoint)))
    if fact.kind == "tokens":
        return _exact(_split(fact, release.tokenizer))
    if fact.kind in WEIGHTS:
        return _numbers(fact, WEIGHTS[fact.kind](fact, release.checkpoint))
    ids = ids_of(fact, release.tokenizer)
    if fact.kind in ("argmax", "greedy"):
        return _choices(fact, *_chosen(fact, release, ids))
    if fact.kind == "is_greedy":
        likeliest = release.run.following(ids, fact.data["continuation"]).argmax(-1)
        same = likeliest.tolist() == fact.data["continuation"]
        return _exact("" if [same] == fact.data["values"] else f"is {same} here")
    verdict = _numbers(fact, MEASURES[fact.kind](release.run, ids, fact.data))
    if fact.kind == "top_probs" and (found := _order(fact, release.run, ids)):
        return Verdict(math.inf, verdict.difference, found)
    return verdict


def _check(fact: Fact, verdict: Verdict) -> Check:
    passed = verdict.share <= 1
    forgiven = fact.confidence == "uncertain" or fact.kind in ("file_size", "file_hash")
    warning = verdict.remark or ("" if passed else f"differs by {verdict.difference:.3g}")
    worst = verdict.share if math.isfinite(verdict.share) else None
    bound = f"a gap of {NEAR_TIES[fact.dtype]:g}" if verdict.tokens else fact.bound
    return Check(fact.kind, fact.id, passed or forgiven, worst, bound, warning)


def _exact(remark: str) -> Verdict:
    return Verdict(math.inf if remark else 0.0, remark=remark)


def _split(fact: Fact, tokenizer: Tokenizer) -> str:
    text, special = fact.data["text"], bool(fact.data.get("special"))
    same = tokenizer.encode(text, special=special) == fact.data["input_ids"]
    return "" if same else f"{text!r} is split another way"


def _numbers(fact: Fact, ours: Tensor) -> Verdict:
    """Compare numbers with the published ones, entry by entry."""
    published = torch.tensor(fact.data["values"], dtype=torch.float64)
    difference = (ours.double().cpu().reshape(published.shape) - published).abs()
    share = difference / (fact.tolerance + fact.relative * published.abs())
    share = torch.where(difference == 0, 0.0, share)
    return Verdict(float(share.max()), float(difference.max()))


def _chosen(fact: Fact, release: Release, ids: list[int]) -> tuple[Tensor, list[int]]:
    """Logits [N, V] and the published tokens that are the likeliest there."""
    if fact.kind == "argmax":
        return release.run.logits(ids, fact.data["positions"]), fact.data["values"]
    rest = fact.data.get("continuation")
    if rest is None:
        rest = release.tokenizer.encode(fact.data["continuation_text"])
    path = [*ids, *rest]
    return release.run.logits(path[:-1], range(len(ids) - 1, len(path) - 1)), rest


def _choices(fact: Fact, logits: Tensor, published: list[int]) -> Verdict:
    """Whether the published tokens are the likeliest; a greedy text is judged at each step."""
    ours = logits.argmax(-1)
    theirs = torch.tensor(published)
    gaps = logits.amax(-1) - logits[range(len(published)), published]
    same = int((ours == theirs).sum())
    if same == len(published):
        return Verdict(0.0, tokens=same, agreeing=same)
    at = int((ours != theirs).nonzero()[0])
    share = float(gaps.max()) / NEAR_TIES[fact.dtype]
    what = "a near-tie" if share <= 1 else "not what was published"
    remark = (
        f"token {at + 1} of {len(published)} is {what}: {int(ours[at])} here, "
        f"{published[at]} published, {float(gaps[at]):.3g} apart"
    )
    return Verdict(share, remark=remark, tokens=len(published), agreeing=same)


def _order(fact: Fact, run: Run, ids: list[int]) -> str:
    indices = fact.data["indices"]
    top = run.logits(ids, [fact.data["position"]])[0].topk(len(indices)).indices.tolist()
    return "" if top == indices else f"the likeliest tokens are {top} here"


def _summary(judged: Sequence[tuple[Fact, Verdict]]) -> Comparison:
    """The figures of a report; what published numbers do not tell is NaN."""

    def worst(kinds: Sequence[str]) -> float:
        return max((v.difference for fact, v in judged if fact.kind in kinds), default=math.nan)

    tokens = sum(v.tokens for _, v in judged)
    agreeing = sum(v.agreeing for _, v in judged)
    shares = [v.share for fact, v in judged if fact.kind in MEASURES or v.tokens]
    return Comparison(
        positions=sum(_positions(fact) for fact, _ in judged),
        max_abs_diff=worst(_LOGITS),
        max_abs_logprob_diff=worst(_LOGPROBS),
        mean_kl=math.nan,
        argmax_agreement=agreeing / tokens if tokens else math.nan,
        tolerance_used=max(shares, default=math.nan),
    )


def _positions(fact: Fact) -> int:
    """How many positions of the network a fact speaks of."""
    if fact.kind in (*EXACT, *WEIGHTS, "tokens"):
        return 0
    listed = (fact.data.get(name) for name in ("positions", "contexts", "continuation"))
    return next((len(found) for found in listed if found is not None), 1)
