"""Ids in, ids out: the same text in any company, and what happens at the model's limit."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from gpt2cli import generation
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.config import GPT2Config
from gpt2cli.errors import GPT2Error
from gpt2cli.generation import Continuation, Meter, Request, by_room, generate
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.presets import weights_folder
from gpt2cli.sampling import Sampler, Sampling, generator

pytestmark = pytest.mark.usefixtures("one_thread")

N = 16  # positions of the tiny model
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def tiny() -> GPT2:
    """A model whose every number matters: large weights, gains and biases."""
    config = GPT2Config(vocab_size=61, n_positions=N, n_embd=24, n_layer=2, n_head=3)
    torch.manual_seed(3)
    model = GPT2(config).requires_grad_(False).eval()
    for name, parameter in model.named_parameters():
        parameter.normal_(mean=1.0 if "ln" in name else 0.0, std=0.4)
    return model


@pytest.fixture(scope="module")
def austen() -> GPT2:
    return load(Checkpoint.open(weights_folder() / "austen"))


def texts(
    model: GPT2, requests: list[Request], most_rows: int = 32, **options: object
) -> list[Continuation]:
    """The finished texts in the order of their requests."""
    found: dict[int, Continuation] = {}
    counts: dict[int, int] = defaultdict(int)
    place = {id(request): i for i, request in enumerate(requests)}
    for step in generate(model, requests, most_rows, **options):
        i = place[id(step.continuation.request)]
        found[i] = step.continuation
        counts[i] += step.token is not None
        assert len(step.continuation.tokens) == counts[i]
    assert all(text.finish_reason for text in found.values())
    return [found[i] for i in range(len(requests))]


def text(model: GPT2, request: Request) -> Continuation:
    return texts(model, [request])[0]


def tokens(model: GPT2, requests: list[Request], most_rows: int = 32) -> list[list[int]]:
    return [each.tokens for each in texts(model, requests, most_rows)]


def whole_passes(model: GPT2, request: Request) -> list[int]:
    """The same text without a cache: the model runs its whole window for every token.

    At n_positions tokens the older half of those after the kept ones goes; of a prompt that is
    too long the kept tokens and the last half stay.
    """
    config, keep = model.config, request.keep
    half = (config.n_positions - keep) // 2
    numbers = generator(request.seed, request.prompt, request.sample)
    sampler = Sampler(request.sampling, config.vocab_size, numbers, request.prompt)
    window, new = list(request.prompt), []
    for _ in range(request.max_new_tokens):
        if len(window) >= config.n_positions:
            window = window[:keep] + window[-(config.n_positions - keep - half) :]
        logits = model(torch.tensor([window]))[0, -1]
        new.append(sampler.choose(logits.numpy()))
        window.append(new[-1])
    return new


# A text is the same in any company


def company(model: GPT2) -> list[Request]:
    """Requests of many lengths, two samples each, with filters that look at the past."""
    chance = torch.Generator().manual_seed(0)
    longest = min(model.config.n_positions, 40) - 1
    sampling = Sampling(temperature=0.9, top_k=30, top_p=0.95, repetition_penalty=1.2)
    requests = []
    for length in (1, 3, 7, longest - 4, 2, 5):
        ids = torch.randint(model.config.vocab_size, (length,), generator=chance).tolist()
        shape = Request(tuple(ids), 4 + length % 5, sampling, seed=11, overflow="stop")
        requests += [shape, replace(shape, sample=1)]
    return requests


@pytest.mark.parametrize("name", ["tiny", "austen"])
def test_a_sample_is_the_same_alone_in_any_batch_and_in_any_order(name, request):
    model = request.getfixturevalue(name)
    requests = company(model)
    alone = [text(model, each).tokens for each in requests]
    for most_rows in (1, 2, 32):
        assert tokens(model, requests, most_rows) == alone
    assert tokens(model, requests[::-1], 5) == alone[::-1]


def test_the_cache_changes_nothing(tiny, austen):
    for model in (tiny, austen):
        for each in company(model)[::3]:
            each = replace(each, max_new_tokens=4)
            assert text(model, each).tokens == whole_passes(model, each)


def test_equal_requests_have_equal_texts_and_samples_and_seeds_differ(tiny):
    request = Request((4, 5), 12, seed=0)
    same = [request, replace(request)]
    others = [replace(request, sample=i) for i in range(1, 6)]
    others += [replace(request, seed=seed) for seed in (1, 2, 2**63 - 1)]
    first, again, *rest = tokens(tiny, same + others)
    assert first == again == text(tiny, request).tokens
    assert len({tuple(ids) for ids in [first, *rest]}) == 1 + len(others)


def test_a_text_that_ends_early_leaves_its_place_to_the_next(tiny):
    requests = [Request((i,), 1 + i % 4, sampling=GREEDY) for i in range(9)]
    order = [step.continuation.request for step in generate(tiny, requests, 2)]
    assert order[:2] == requests[:2]
    assert {id(each) for each in order} == set(map(id, requests))
    assert [len(ids) for ids in tokens(tiny, requests, 2)] == [1 + i % 4 for i in range(9)]


def test_a_prompt_is_run_once_for_all_its_samples_and_only_its_last_logits_are_computed(
    tiny, monkeypatch
):
    hidden, unembedded = [], []
    run, unembed = tiny.hidden, tiny.unembed
    monkeypatch.setattr(
        tiny,
        "hidden",
        lambda ids, cache, counts: hidden.append([*ids.shape]) or run(ids, cache, counts),
    )
    monkeypatch.setattr(tiny, "unembed", lambda x: unembedded.append([*x.shape[:-1]]) or unembed(x))
    request = Request((1, 2, 3, 4, 5, 6, 7), 3, seed=5)
    texts(tiny, [replace(request, sample=i) for i in range(4)])
    assert hidden == [[1, 7], [4, 1], [4, 1]]
    assert unembedded == [[1], [4], [4]]


# The limit


@pytest.mark.parametrize(
    ("overflow", "prompt", "new", "written", "reason"),
    [
        ("error", N - 1, 1, 1, "length"),
        ("error", N - 3, 3, 3, "length"),
        ("error", N - 3, 4, None, None),
        ("error", N - 1, 2, None, None),
        ("error", N, 1, None, None),
        ("error", N, 0, None, None),
        ("error", N + 1, 1, None, None),
        ("stop", N - 1, 1, 1, "length"),
        ("stop", N - 1, 2, 1, "context"),
        ("stop", N - 3, 3, 3, "length"),
        ("stop", N - 3, 4, 3, "context"),
        ("stop", N, 1, None, None),
        ("stop", N + 1, 1, None, None),
        ("slide", N - 1, 1, 1, "length"),
        ("slide", N - 1, 2, 2, "length"),
        ("slide", N, 1, 1, "length"),
        ("slide", N + 1, 3 * N, 3 * N, "length"),
        ("slide", N, 0, 0, "length"),
    ],
)
def test_what_each_policy_does_at_the_limit(tiny, overflow, prompt, new, written, reason):
    request = Request((1,) * prompt, new, GREEDY, overflow=overflow)
    if reason is None:
        with pytest.raises(GPT2Error, match=f"{prompt}.* {N}"):
            text(tiny, request)
        return
    found = text(tiny, request)
    assert (len(found.tokens), found.finish_reason) == (written, reason)


def test_a_request_that_cannot_be_met_is_refused_before_any_work(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "hidden", lambda *_: pytest.fail("the model ran"))
    good = Request((1,), 1)
    forbidding = Sampling(logit_bias=dict.fromkeys(range(61), float("-inf")))
    for bad in (replace(good, prompt=(1,) * N), replace(good, sampling=forbidding)):
        with pytest.raises(GPT2Error):
            next(generate(tiny, [good, bad]))
    with pytest.raises(ValueError, match="a prompt needs a token"):
        next(generate(tiny, [good, replace(good, prompt=())]))
    with pytest.raises(ValueError, match=f"keep is below half of n_positions, {N}, not {N // 2}"):
        next(generate(tiny, [good, replace(good, keep=N // 2)]))


@pytest.mark.parametrize("keep", [0, 1, 4, N // 2 - 1])
@pytest.mark.parametrize("prompt", [1, N - 1, N, N + 1, 3 * N])
def test_a_slide_keeps_the_first_tokens_and_the_newer_half_at_positions_from_0(tiny, prompt, keep):
    ids = torch.arange(prompt) * 7 % 61
    request = Request(tuple(ids.tolist()), 3 * N, GREEDY, overflow="slide", keep=keep)
    found = text(tiny, request)
    assert found.tokens == whole_passes(tiny, request)
    assert found.slid > 2


def test_numbers_and_penalties_run_on_over_a_slide(tiny):
    sampling = Sampling(temperature=1.5, repetition_penalty=1.6)
    request = Request((9, 8, 7), 3 * N, sampling, seed=2, overflow="slide", keep=2)
    neighbours = [replace(request, sample=i, keep=i) for i in range(4)]
    assert tokens(tiny, neighbours) == [whole_passes(tiny, each) for each in neighbours]


def test_a_model_of_one_position_slides_too():
    torch.manual_seed(0)
    model = GPT2(GPT2Config(7, 1, 4, 1, 1)).requires_grad_(False).eval()
    request = Request((1, 2), 5, GREEDY, overflow="slide")
    assert text(model, request).tokens == whole_passes(model, request)


# The end of a text


def test_an_end_token_ends_the_text_and_is_no_part_of_it(tiny):
    request = Request((1, 2), 10, GREEDY)
    whole = text(tiny, request).tokens
    end = whole[3]
    before = whole[: whole.index(end)]
    for ends in ({end}, {60, end} - set(before)):
        found = text(tiny, replace(request, end_ids=frozenset(ends)))
        assert (found.tokens, found.finish_reason) == (before, "eos")
    at_once = text(tiny, replace(request, end_ids=frozenset(whole)))
    assert (at_once.tokens, at_once.finish_reason) == ([], "eos")


def test_a_reader_may_stop_a_text_and_its_neighbours_go_on(tiny):
    requests = [Request((1,), 6, GREEDY), Request((2,), 6, GREEDY)]
    alone = [text(tiny, each).tokens for each in requests]
    seen: list[Continuation] = []
    for step in generate(tiny, requests):
        seen.append(step.continuation)
        if step.continuation.request is requests[0] and len(step.continuation.tokens) == 2:
            step.continuation.stop()
    ended, other = (next(s for s in seen if s.request is each) for each in requests)
    assert (ended.tokens, ended.finish_reason) == (alone[0][:2], "stop")
    assert (other.tokens, other.finish_reason) == (alone[1], "length")


def test_logprobs_are_the_models_own_before_bias_penalty_temperature_and_filters(tiny):
    sampling = Sampling(3.0, top_k=2, repetition_penalty=2.0, logit_bias={4: 6.0})
    request = Request((1, 2, 3), 6, sampling, seed=1, logprobs=3)
    found = text(tiny, request)
    ids = [*request.prompt, *found.tokens]
    own = torch.log_softmax(tiny(torch.tensor([ids]))[0].double(), -1)
    for place, each in enumerate(found.logprobs):
        row = own[len(request.prompt) - 1 + place]
        assert each.id == found.tokens[place]
        assert each.logprob == pytest.approx(row[each.id].item(), abs=1e-4)
        values, best = row.topk(3)
        assert [token for token, _ in each.top] == best.tolist()
        assert [logprob for _, logprob in each.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert len(found.logprobs) == 6


def test_a_model_that_computes_no_numbers_is_an_error_and_no_text(tiny):
    broken = GPT2(tiny.config).requires_grad_(False).eval()
    broken.ln_f.bias[0] = float("nan")
    with pytest.raises(GPT2Error, match="NaN or infinite"):
        text(broken, Request((1,), 1))


# Drafts


CHOICES = [
    GREEDY,
    Sampling(temperature=0.8, top_k=40),
    Sampling(temperature=0.3),
    Sampling(temperature=0.7, top_p=0.9, min_p=0.02),
    Sampling(temperature=0.5, repetition_penalty=1.2),
    Sampling(temperature=0.5, logit_bias={11: 4.0, 13: -float("inf")}),
]


@pytest.fixture(scope="module", params=["float32", "int8"])
def exact(request) -> GPT2:
    model = load(Checkpoint.open(weights_folder() / "austen"), dtype=request.param)
    assert model.row_exact
    return model


@pytest.mark.parametrize("sampling", CHOICES)
def test_text_with_drafts_is_the_text_without(exact, sampling):
    prompts = [(4095,), (338, 257, 1204), (5, 6, 7, 8) * 5, tuple(range(200, 290))]
    requests = [
        Request(prompt, 40, sampling, seed=9, sample=sample, end_ids=frozenset({0}))
        for prompt in prompts
        for sample in range(2)
    ]
    meter = Meter()
    drafted = texts(exact, requests, meter=meter)
    plain = texts(exact, requests, most_rows=1, drafts=False)
    assert [text.tokens for text in drafted] == [text.tokens for text in plain]
    assert [text.finish_reason for text in drafted] == [text.finish_reason for text in plain]
    assert meter.drafted


@pytest.mark.parametrize(
    ("overflow", "new"), [("error", N - 4), ("stop", 40), ("slide", 60)], ids=str
)
def test_drafts_keep_to_the_models_limit_and_run_on_over_a_slide(overflow, new):
    model = looping(N)
    request = Request((3, 4, 3, 4), new, GREEDY, overflow=overflow, keep=1)
    meter = Meter()
    [drafted] = texts(model, [request], meter=meter)
    [plain] = texts(model, [request], drafts=False)
    assert drafted.tokens == plain.tokens
    assert (drafted.finish_reason, drafted.slid) == (plain.finish_reason, plain.slid)
    assert meter.accepted > 0


def looping(n_positions: int) -> GPT2:
    """A model whose logits follow from the last token alone, so that 3 4 3 4 goes on and on."""
    config = GPT2Config(vocab_size=61, n_positions=n_positions, n_embd=64, n_layer=1, n_head=1)
    model = GPT2(config).requires_grad_(False).eval()
    for parameter in (*model.parameters(), model.wpe.weight):
        parameter.zero_()
    model.wte.weight[:] = torch.eye(61, 64)
    model.ln_f.weight.fill_(1.0)
    model.lm_head = torch.nn.Linear(64, 61, bias=False).requires_grad_(False)
    model.lm_head.weight[:] = torch.eye(61, 64).roll(1, 0)
    model.lm_head.weight[[3, 5]] = model.lm_head.weight[[5, 3]]
    return model


def test_a_reader_that_stops_a_text_inside_a_draft_gets_no_more_of_it():
    model = looping(256)
    request = Request((3, 4, 3, 4), 60, GREEDY)
    [whole] = texts(model, [request])
    for length in range(1, 40, 3):
        for step in generate(model, [request]):
            if len(step.continuation.tokens) == length:
                step.continuation.stop()
        assert step.continuation.tokens == whole.tokens[:length]


def test_a_loop_takes_far_fewer_passes_than_tokens():
    meter = Meter()
    texts(looping(256), [Request((3, 4, 3, 4), 200, GREEDY)], meter=meter)
    assert meter.passes < 200 / 8
    assert meter.accepted == 200 - 1 - meter.passes


def test_long_prompts_come_first_and_take_no_rows_from_short_ones(monkeypatch):
    config = GPT2Config(vocab_size=61, n_positions=1024, n_embd=24, n_layer=2, n_head=3)
    row_of_64 = 2 * 4 * 2 * 24 * 64  # keys and values, float32, layers, width, tokens
    monkeypatch.setattr(generation, "MOST_CACHE_BYTES", 32 * row_of_64)
    requests = [Request((0,) * length, 1) for length in (12, 800, 40, 300, 5, 900)]
    lengths = [[len(request.prompt) for request in group] for group in by_room(config, requests)]
    assert lengths == [[900, 800], [300], [40, 12, 5]]  # for 2, 5 and 32 rows
