"""A network against itself: the same logits by ways that share as little code as can be."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ..model import ACTIVATIONS, GPT2, KVCache
from .comparison import Check, Report, Tolerance, compare

Path = Callable[[GPT2, Tensor], Tensor]

_ROWS = 2
_TOKENS = 40
_SEED = 1558


def sample_ids(model: GPT2) -> Tensor:
    """Token ids [B, T] to try a network on: the same for every network of its sizes."""
    config = model.config
    numbers = torch.Generator().manual_seed(_SEED)
    shape = (_ROWS, min(_TOKENS, config.n_positions))
    ids = torch.randint(config.vocab_size, shape, generator=numbers)
    return ids.to(model.wte.weight.device)


@torch.inference_mode()
def check_paths(model: GPT2, subject: str, tolerance: Tolerance) -> Report:
    """Compare one pass over whole rows with every other way to the same logits."""
    ids = sample_ids(model)
    whole = model(ids).cpu()
    results = {name: compare(path(model, ids).cpu(), whole, tolerance) for name, path in _paths()}
    worst = max(results.values(), key=lambda c: _badness(c.tolerance_used))
    checks = tuple(
        Check("self", name, c.passed, c.tolerance_used, str(tolerance))
        for name, c in results.items()
    )
    return Report("self", subject, "its own redundant paths", worst, checks, tolerance)


def _badness(share: float) -> float:
    return math.inf if math.isnan(share) else share


def _paths() -> Iterator[tuple[str, Path]]:
    yield "one token at a time", lambda model, ids: chunked(model, ids, [1] * ids.shape[1])
    yield "in chunks of 1, 2, 4, …", lambda model, ids: chunked(model, ids, _doubling(ids.shape[1]))
    yield "in rows of unequal length", unequal
    yield "written out in float64", plain


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
