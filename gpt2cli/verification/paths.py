"""A network against itself: the same logits by ways that share as little code as can be."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ..generation import generate
from ..model import ACTIVATIONS, GPT2, KVCache
from ..request import Request
from ..sampling import Sampling
from .comparison import Check, Report, Tolerance, compare

WRITTEN = "a text with drafts and without"

Path = Callable[[GPT2, Tensor], Tensor]

_ROWS = 2
_TOKENS = 40
_SEED = 1558


def sample_ids(*models: GPT2) -> Tensor:
    """Token ids [B, T] to try networks on: the same for all networks of the same sizes."""
    vocab_size = min(model.config.vocab_size for model in models)
    total = min(_TOKENS, *(model.config.n_positions for model in models))
    numbers = torch.Generator().manual_seed(_SEED)
    ids = torch.randint(vocab_size, (_ROWS, total), generator=numbers)
    return ids.to(models[0].wte.weight.device)


@torch.inference_mode()
def check_paths(
    model: GPT2,
    subject: str,
    tolerance: Tolerance,
    rounding: Tolerance,
    unpacked: GPT2 | None = None,
) -> Report:
    """Compare one pass over whole rows with every other way to the same logits.

    `unpacked` is the same network under the released names, if `model` is packed; what it says in
    float64 is met within `tolerance`, and what `model` says by other ways within `rounding`.
    """
    ids = sample_ids(model)
    whole = model(ids).cpu()
    results = {name: (path(model, ids), rounding) for name, path in paths()}
    results["written out in float64"] = plain(unpacked or model, ids), tolerance
    compared = {name: (compare(whole, out.cpu(), b), b) for name, (out, b) in results.items()}
    worst = max((c for c, _ in compared.values()), key=lambda c: badness(c.tolerance_used))
    checks = [
        Check("self", name, c.passed, c.tolerance_used, str(bound))
        for name, (c, bound) in compared.items()
    ]
    if model.row_exact and worst.passed:  # there is no text of logits that are no numbers
        checks.append(Check("self", WRITTEN, written_alike(model), None, "exact"))
    return Report("self", subject, "its own redundant paths", worst, tuple(checks), tolerance)


def badness(share: float) -> float:
    """A share of a tolerance to order by: what is not a number is worst."""
    return math.inf if math.isnan(share) else share


def paths() -> Iterator[tuple[str, Path]]:
    """Every way to the logits [B, T, V] of ids [B, T] through the cache."""
    yield "one token at a time", lambda model, ids: chunked(model, ids, [1] * ids.shape[1])
    yield "in chunks of 1, 2, 4, …", lambda model, ids: chunked(model, ids, _doubling(ids.shape[1]))
    yield "in rows of unequal length", unequal
    yield "in drafts of which half is wrong", drafted


def _doubling(total: int) -> list[int]:
    sizes: list[int] = []
    while (left := total - sum(sizes)) > 0:
        sizes.append(min(2 ** len(sizes), left))
    return sizes


def chunked(model: GPT2, ids: Tensor, sizes: list[int]) -> Tensor:
    """Logits [B, T, V] by passes over `sizes` tokens each, through the cache."""
    cache = KVCache.empty(model.config, len(ids), ids.shape[1], ids.device)
    chunks = torch.split(ids, sizes, dim=1)
    return torch.cat([model(chunk, cache) for chunk in chunks], dim=1)


def unequal(model: GPT2, ids: Tensor) -> Tensor:
    """Logits [B, T, V] by a padded pass in which rows differ in length, then single steps."""
    rows, total = ids.shape
    counts = [max(1, total // (2 + row)) for row in range(rows)]
    cache = KVCache.empty(model.config, rows, total, ids.device)
    logits = torch.zeros(rows, total, model.config.vocab_size, device=ids.device)
    padded = ids[:, : max(counts)].clone()
    for row, n in enumerate(counts):
        padded[row, n:] = 0
    first = model.unembed(model.hidden(padded, cache, counts))
    for row, n in enumerate(counts):
        logits[row, :n] = first[row, :n]
    everyone = torch.arange(rows, device=ids.device)
    while int(cache.lengths.min()) < total:
        # a row that is through goes over its last token again
        cache.lengths.clamp_(max=total - 1)
        places = cache.lengths.clone().to(ids.device)
        step = model(ids[everyone, places][:, None], cache)
        logits[everyone, places] = step[:, 0]
    return logits


def drafted(model: GPT2, ids: Tensor) -> Tensor:
    """Logits [B, T, V] by passes over four tokens, of which the last two are wrong and undone."""
    total = ids.shape[1]
    cache = KVCache.empty(model.config, len(ids), total, ids.device)
    found: list[Tensor] = []
    for start in range(0, total, 2):
        draft = ids[:, start : start + 4].clone()
        draft[:, 2:] = (draft[:, 2:] + 1) % model.config.vocab_size
        found.append(model(draft, cache)[:, :2])
        cache.lengths.fill_(min(start + 2, total))
    return torch.cat(found, dim=1)


def written_alike(model: GPT2) -> bool:
    """Whether drafts change nothing: a greedy and a sampled text after a prompt that repeats.

    Where a network is not row-exact a near-tie may fall the other way, so this says nothing.
    """
    total = model.config.n_positions
    prompt = tuple(sample_ids(model)[0, : max(1, min(8, total // 4))].tolist() * 2)[: total - 1]
    count = min(32, total - len(prompt))
    requests = [
        Request(prompt, count, Sampling(temperature=temperature), seed=_SEED)
        for temperature in (0.0, 1.0)
    ]

    def texts(drafts: bool) -> dict[float, list[int | None]]:
        written: dict[float, list[int | None]] = {}
        for step in generate(model, requests, drafts=drafts):
            key = step.continuation.request.sampling.temperature
            written.setdefault(key, []).append(step.token)
        return written

    return texts(drafts=True) == texts(drafts=False)


def plain(model: GPT2, ids: Tensor) -> Tensor:
    """Logits [B, T, V] in float64, one operation after another, without the model's modules."""
    config = model.config
    weights = model.state_dict()
    total = ids.shape[1]
    hidden_keys = torch.ones(total, total, dtype=torch.bool, device=ids.device).triu(1)

    def weight(name: str) -> Tensor:
        tensor: Tensor = weights[name]
        return tensor.double()

    def dense(x: Tensor, name: str) -> Tensor:
        return x @ weight(f"{name}.weight") + weight(f"{name}.bias")

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        scaled = centred / torch.sqrt(variance + config.layer_norm_epsilon)
        return scaled * weight(f"{name}.weight") + weight(f"{name}.bias")

    def attention(x: Tensor, layer: int) -> Tensor:
        parts = dense(x, f"h.{layer}.attn.c_attn").chunk(3, dim=-1)
        heads = (*x.shape[:2], config.n_head, config.head_dim)
        query, key, value = (part.reshape(heads).transpose(1, 2) for part in parts)
        scores = query @ key.mT * config.attention_scale(layer)
        mixed = scores.masked_fill(hidden_keys, -math.inf).softmax(-1) @ value
        return dense(mixed.transpose(1, 2).flatten(-2), f"h.{layer}.attn.c_proj")

    def mlp(x: Tensor, layer: int) -> Tensor:
        act = ACTIVATIONS[config.activation_function]
        return dense(act(dense(x, f"h.{layer}.mlp.c_fc")), f"h.{layer}.mlp.c_proj")

    x = F.embedding(ids, weights["wte.weight"]).double() + weight("wpe.weight")[:total]
    for layer in range(config.n_layer):
        x = x + attention(norm(x, f"h.{layer}.ln_1"), layer)
        x = x + mlp(norm(x, f"h.{layer}.ln_2"), layer)
    head = "wte.weight" if config.tie_word_embeddings else "lm_head.weight"
    logits: Tensor = F.linear(norm(x, "ln_f"), weight(head))
    return logits
