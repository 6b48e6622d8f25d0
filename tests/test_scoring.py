"""Log-probabilities of given ids: which window scores a token, and what it says."""

import math
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import oracle
import pytest
import torch

from gpt2cli import scoring
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.sampling import token_logprob
from gpt2cli.scoring import Total, Window, score, windows

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = checkpoints.TINY
N, V = TINY["n_positions"], TINY["vocab_size"]
IDS = np.random.default_rng(5).integers(V, size=60).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> GPT2:
    return load(Checkpoint.open(folder))


def logprobs(model: GPT2, ids: list[int], size: int, stride: int) -> list[float | None]:
    found = [each and each.logprob for each in score(model, ids, size, stride)]
    assert len(found) == len(ids)
    return found


def apart(found: list[float | None], expected: list[float | None]) -> float:
    assert [each is None for each in found] == [each is None for each in expected]
    pairs = zip(found, expected, strict=True)
    return max(abs(one - other) for one, other in pairs if one is not None)


# Windows


@pytest.mark.parametrize(
    ("n_tokens", "size", "stride", "expected"),
    [
        (0, 4, 2, []),
        (1, 4, 2, [(0, 0, 1)]),
        (3, 4, 2, [(0, 0, 3)]),
        (4, 4, 2, [(0, 0, 4)]),
        (5, 4, 2, [(0, 0, 4), (2, 4, 5)]),
        (8, 4, 2, [(0, 0, 4), (2, 4, 6), (4, 6, 8)]),
        (8, 4, 4, [(0, 0, 4), (4, 4, 8)]),
        (9, 4, 4, [(0, 0, 4), (4, 4, 8), (8, 8, 9)]),
        (6, 4, 1, [(0, 0, 4), (1, 4, 5), (2, 5, 6)]),
        (6, 4, 3, [(0, 0, 4), (3, 4, 6)]),
    ],
)
def test_windows_begin_every_stride_and_end_with_the_text(
    n_tokens: int, size: int, stride: int, expected: list[tuple[int, int, int]]
) -> None:
    assert windows(n_tokens, size, stride) == [Window(*each) for each in expected]


def test_every_token_but_the_first_is_scored_once_and_sees_what_the_stride_leaves_it() -> None:
    for size in range(2, 9):
        for stride in range(1, size):
            for n_tokens in range(30):
                found = windows(n_tokens, size, stride)
                scored = [(token, window) for window in found for token in window.scored]
                assert [token for token, _ in scored] == list(range(1, n_tokens))
                least = size - stride
                assert all(token - each.start >= min(token, least) for token, each in scored)


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (4, 0), (4, 5), (0, 1)])
def test_windows_that_would_leave_tokens_out_are_refused(size: int, stride: int) -> None:
    with pytest.raises(ValueError, match="no windows"):
        windows(10, size, stride)


# Scores


READINGS = [
    (60, N, 8),
    (60, N, 1),
    (60, N, N - 1),
    (60, N, N),
    (49, N, N),  # the last window is one token, which is not scored
    (37, 7, 3),
    (N - 1, N, 8),
    (N, N, 8),
    (N + 1, N, 8),
    (2, N, 8),
    (1, N, 8),
]


@pytest.mark.parametrize(("n_tokens", "size", "stride"), [r for r in READINGS if r[0] > 1])
def test_scores_are_those_of_the_sliding_windows_of_transformers(
    theirs: Any, tiny: GPT2, n_tokens: int, size: int, stride: int
) -> None:
    ids = IDS[:n_tokens]
    expected = documented_recipe(theirs, ids, size, stride)
    assert apart(logprobs(tiny, ids, size, stride), expected) < 5e-5


@pytest.fixture(scope="module")
def theirs() -> Any:
    transformers = pytest.importorskip("transformers")
    config = {"bos_token_id": None, "eos_token_id": None} | TINY
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**config, attn_implementation="eager")
    ).eval()
    arrays = checkpoints.random_arrays().items()
    model.transformer.load_state_dict({name: torch.from_numpy(a) for name, a in arrays})
    return model


def documented_recipe(theirs: Any, ids: list[int], size: int, stride: int) -> list[float | None]:
    """The loss of each window over the labels that are not −100, a token at a time."""
    found: list[float | None] = [None] * len(ids)
    before = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + size, len(ids))
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, : -(end - before)] = -100
        with torch.no_grad():
            logits = theirs(window).logits
        losses = torch.nn.functional.cross_entropy(
            logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="none"
        )
        for place, label in enumerate(labels[0, 1:].tolist(), begin + 1):
            if label != -100:
                found[place] = -losses[place - begin - 1].item()
        before = end
        if end == len(ids):
            break
    return found


@pytest.mark.parametrize(("size", "stride"), [(N, 8), (7, 7)])
def test_scores_are_those_of_float64_arithmetic(
    folder: Path, tiny: GPT2, size: int, stride: int
) -> None:
    arrays, ids = oracle.read_hub(folder), IDS[:30]
    expected: list[float | None] = [None] * len(ids)
    for start in range(0, len(ids), stride):
        logits = oracle.logits(arrays, TINY, ids[start : start + size])
        for place, row in enumerate(logits[:-1], start + 1):
            if expected[place] is None:
                likelihoods = np.exp(row - row.max())
                chosen = likelihoods[ids[place]] / likelihoods.sum()
                expected[place] = float(np.log(chosen))
    assert apart(logprobs(tiny, ids, size, stride), expected) < 2e-5


def test_a_text_of_one_token_or_none_has_no_scores(tiny: GPT2) -> None:
    assert list(score(tiny, IDS[:1], N, 8)) == [None]
    assert list(score(tiny, [], N, 8)) == []


@pytest.mark.parametrize(("n_tokens", "size", "stride"), READINGS)
def test_what_is_computed_at_a_time_changes_no_score(
    tiny: GPT2, monkeypatch: pytest.MonkeyPatch, n_tokens: int, size: int, stride: int
) -> None:
    ids = IDS[:n_tokens]
    whole = logprobs(tiny, ids, size, stride)
    monkeypatch.setattr(scoring, "PREFILL_TOKENS", 5)  # a window in parts, no two side by side
    monkeypatch.setattr(scoring, "UNEMBED_ROWS", 3)
    parts = logprobs(tiny, ids, size, stride)
    if tiny.row_exact:
        assert parts == pytest.approx(whole, abs=1e-13)
    else:
        assert parts == pytest.approx(whole, abs=5e-5)


def test_the_logits_of_a_whole_window_are_never_held(
    tiny: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "UNEMBED_ROWS", 4)
    sizes = []
    unembed = tiny.unembed
    monkeypatch.setattr(
        tiny, "unembed", lambda states: sizes.append(len(states)) or unembed(states)
    )
    logprobs(tiny, IDS, N, 8)
    assert sum(sizes) == len(IDS) - 1
    assert max(sizes) == 4


def test_the_likeliest_tokens_are_those_that_generation_names(tiny: GPT2) -> None:
    ids = IDS[:N]
    logits = tiny(torch.tensor([ids]))[0].numpy()
    for place, found in enumerate(score(tiny, ids, N, 8, most=4)):
        if found is not None:
            said = token_logprob(logits[place - 1], ids[place], 4)
            assert found.id == said.id
            assert found.logprob == pytest.approx(said.logprob, abs=5e-5)
            assert [token for token, _ in found.top] == [token for token, _ in said.top]
            for (_, one), (_, other) in zip(found.top, said.top, strict=True):
                assert one == pytest.approx(other, abs=5e-5)


def test_more_alternatives_than_there_are_ids_are_all_of_them(tiny: GPT2) -> None:
    *_, last = score(tiny, IDS[:3], N, 8, most=V + 1)
    assert sorted(token for token, _ in last.top) == list(range(V))
    assert sum(math.exp(logprob) for _, logprob in last.top) == pytest.approx(1)


@pytest.mark.parametrize(
    ("ids", "size"), [([0, V], N), ([-1, 0], N), (IDS, N + 1)], ids=["high", "low", "long"]
)
def test_what_the_model_lacks_is_the_callers_mistake(tiny: GPT2, ids: list[int], size: int) -> None:
    with pytest.raises(ValueError, match=f"{N} positions, {V} ids"):
        list(score(tiny, ids, size, 8))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_logit_that_is_no_number_is_an_error(
    tiny: GPT2, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    unembed = tiny.unembed

    def spoilt(states: torch.Tensor) -> torch.Tensor:
        logits = unembed(states)
        logits[-1, 7] = bad
        return logits

    monkeypatch.setattr(tiny, "unembed", spoilt)
    with pytest.raises(GPT2Error, match="NaN or infinite"):
        list(score(tiny, IDS, N, 8))


# Totals


def test_a_total_is_over_the_scored_tokens() -> None:
    scores = [None, *(scoring.TokenLogprob(0, -math.log(p), ()) for p in (2, 4, 8))]
    total = Total.of(scores)
    assert total.scored == 3
    assert total.logprob == pytest.approx(-math.log(64))
    assert total.perplexity == pytest.approx(4)  # the geometric mean of 2, 4 and 8
    assert total.bits(12) == pytest.approx(0.5)  # 6 bits over 12 bytes


def test_a_perplexity_past_all_floats_is_infinite() -> None:
    assert Total(-1e6, 10).perplexity == math.inf
