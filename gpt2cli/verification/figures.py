"""What a network here says of the figures that others published of it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..generation import generate
from ..model import GPT2, KVCache
from ..request import Request
from ..sampling import Sampling
from ..tokenizer import Tokenizer
from .published import Fact

Ids = tuple[int, ...]


class Run:
    """A network and what it has computed so far: final hidden states, by the ids it ran.

    `before` is an id that stands before every text, unseen: a hypothesis about another program.
    """

    def __init__(self, model: GPT2, before: int | None = None) -> None:
        self.model = model
        self.before = [] if before is None else [before]
        self.hidden = functools.cache(self._hidden)

    def _hidden(self, ids: Ids) -> Tensor:
        """The states after ln_f, [T, C]."""
        device = self.model.wte.weight.device
        run = torch.tensor([[*self.before, *ids]], device=device)
        return self.model.hidden(run)[0, len(self.before) :]

    def logits(self, ids: Sequence[int], positions: Sequence[int] | None = None) -> Tensor:
        """Float64 logits [P, V] at some positions of ids, or at all."""
        hidden = self.hidden(tuple(ids))
        chosen = hidden if positions is None else hidden[list(positions)]
        return self.model.unembed(chosen).double().cpu()

    def logprobs(self, ids: Sequence[int], positions: Sequence[int] | None = None) -> Tensor:
        """Float64 log-probabilities [P, V] at some positions of ids, or at all."""
        return self.logits(ids, positions).log_softmax(-1)

    def following(self, prompt: Sequence[int], rest: Sequence[int]) -> Tensor:
        """Log-probabilities [N, V] at the places of `rest`, run after `prompt` in one pass."""
        ids = [*prompt, *rest][:-1]
        return self.logprobs(ids, range(len(prompt) - 1, len(ids)))


def ids_of(fact: Fact, tokenizer: Tokenizer) -> list[int]:
    """The ids that a fact is about: its own, else those of its text, special tokens as such."""
    ids = fact.data.get("input_ids")
    return list(ids) if ids is not None else tokenizer.encode(fact.data["text"], special=True)


def greedy(run: Run, prompt: Sequence[int], count: int) -> list[int]:
    """The `count` likeliest tokens one after another, with the cache that `generate` uses."""
    request = Request(tuple(prompt), count, Sampling(temperature=0.0))
    return [step.token for step in generate(run.model, [request]) if step.token is not None]


# One function a kind: what this network says where `values` of the fact are the published numbers.


def _logits(run: Run, ids: list[int], data: Any) -> Tensor:
    return run.logits(ids, [data["position"]])[0, data["indices"]]


def _logits_mean(run: Run, ids: list[int], data: Any) -> Tensor:
    return run.logits(ids, data["positions"]).mean()


def _logit_difference(run: Run, ids: list[int], data: Any) -> Tensor:
    pair = run.logits(ids, [data["position"]])[0, data["indices"]]
    return pair[0] - pair[1]


def _probs(run: Run, ids: list[int], data: Any) -> Tensor:
    return run.logprobs(ids, [data["position"]]).exp()[0, data["indices"]]


def _hidden(run: Run, ids: list[int], data: Any) -> Tensor:
    rows = torch.tensor(data["positions"])[:, None]
    return run.hidden(tuple(ids))[rows, torch.tensor(data["indices"])]


def _final_ln_std(run: Run, ids: list[int], data: Any) -> Tensor:
    """√(variance + ε) of the state that enters ln_f."""
    seen: list[Tensor] = []
    hook = run.model.ln_f.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        run.model.hidden(torch.tensor([ids], device=run.model.wte.weight.device))
    finally:
        hook.remove()
    state = seen[0][0, data["position"]].double()
    return torch.sqrt(state.var(correction=0) + run.model.ln_f.eps)


def _intermediate(run: Run, ids: list[int], data: Any) -> Tensor:
    """A part of the network run on the rows of wte for some ids, without their positions."""
    model = run.model
    rows = model.wte(torch.tensor([ids], device=model.wte.weight.device))
    out: Tensor = model.get_submodule(data["part"])(rows)
    return out[0, data["position"], data["indices"]]


def _kv_mean(run: Run, ids: list[int], data: Any) -> Tensor:
    """The mean of what the cache holds of every block."""
    device = run.model.wte.weight.device
    cache = KVCache.empty(run.model.config, 1, len(ids), device)
    run.model.hidden(torch.tensor([ids], device=device), cache)
    stored = cache.keys if data["of"] == "keys" else cache.values
    return stored[:, 0, :, : len(ids)].double().mean((1, 2, 3))


def _token_logprobs(run: Run, ids: list[int], data: Any) -> Tensor:
    if "contexts" in data:
        rows = [run.logprobs(context, [-1])[0] for context in data["contexts"]]
        return torch.stack(rows)[range(len(rows)), data["indices"]]
    return run.logprobs(ids, data["positions"])[range(len(data["indices"])), data["indices"]]


def _sequence_logprob(run: Run, ids: list[int], data: Any) -> Tensor:
    return _of(run.following(ids[:1], ids[1:]), ids[1:]).sum()


def _continuation_logprob(run: Run, ids: list[int], data: Any) -> Tensor:
    return _of(run.following(ids, data["continuation"]), data["continuation"]).sum()


def _loss(run: Run, ids: list[int], data: Any) -> Tensor:
    """The mean over all rows of `row_length` ids, or over one row of all, of −log p(next)."""
    if (head := data.get("zeroed_values")) is not None:
        whole = {name: value for name, value in data.items() if name != "zeroed_values"}
        with _zeroed_values(run.model, head["layer"], head["head"]):
            return _loss(Run(run.model), ids, whole)
    length = data.get("row_length", len(ids) - 1)
    starts = range(0, len(ids) - length, length)
    rows = [(ids[n : n + length], ids[n + 1 : n + length + 1]) for n in starts]
    return -torch.cat([_of(run.logprobs(row), targets) for row, targets in rows]).mean()


@contextmanager
def _zeroed_values(model: GPT2, layer: int, head: int) -> Iterator[None]:
    """While open, the value vectors of one head of a block are 0."""
    start = 2 * model.config.n_embd + head * model.config.head_dim
    kept = torch.ones(3 * model.config.n_embd, device=model.wte.weight.device)
    kept[start : start + model.config.head_dim] = 0
    c_attn = model.get_submodule(f"h.{layer}.attn.c_attn")
    hook = c_attn.register_forward_hook(lambda _, args, out: out * kept)
    try:
        yield
    finally:
        hook.remove()


def _step_logits(run: Run, ids: list[int], data: Any) -> Tensor:
    path = [*ids, *greedy(run, ids, len(data["values"]))]
    return run.logits(path[:-1], range(len(ids) - 1, len(path) - 1)).amax(-1)


def _step_logprobs(run: Run, ids: list[int], data: Any) -> Tensor:
    path = data.get("indices") or greedy(run, ids, len(data["values"]))
    return _of(run.following(ids, path), path)


def _of(rows: Tensor, tokens: Sequence[int]) -> Tensor:
    """Of each row [V] the entry of its token."""
    return rows[range(len(tokens)), list(tokens)]


MEASURES: dict[str, Callable[[Run, list[int], Any], Tensor]] = {
    "logits": _logits,
    "logits_mean": _logits_mean,
    "logit_difference": _logit_difference,
    "probs": _probs,
    "top_probs": _probs,
    "last_hidden_state": _hidden,
    "final_ln_std": _final_ln_std,
    "intermediate": _intermediate,
    "kv_mean": _kv_mean,
    "token_logprobs": _token_logprobs,
    "sequence_logprob": _sequence_logprob,
    "continuation_logprob": _continuation_logprob,
    "loss": _loss,
    "greedy_step_logits": _step_logits,
    "greedy_step_logprobs": _step_logprobs,
}
