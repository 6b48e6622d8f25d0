"""One row, one result: a position's logits are the same bits whatever is computed beside it."""

from collections.abc import Callable

import torch
from torch import Tensor

from .model import GPT2, KVCache

Activation = Callable[[Tensor], Tensor]

_ROWS = 64


@torch.inference_mode()
def steady(activation: Activation, width: int) -> Activation:
    """An activation of rows [..., width] that gives a row the same bits beside any others.

    torch's threads share out elements, not rows, and take what is left over of a share by other
    instructions. Where shares don't end as rows do, it is `activation` of one row at a time.
    """

    def by_row(x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        return torch.cat([activation(row) for row in torch.split(rows, 1)]).view_as(x)

    x = torch.linspace(-4, 4, _ROWS * width).view(_ROWS, width)
    apart = by_row(x)
    alike = all(torch.equal(activation(x[:n]), apart[:n]) for n in range(3, _ROWS, 4))
    return activation if alike else by_row


@torch.inference_mode()
def row_exact(model: GPT2) -> bool:
    """Whether a position's logits are bit for bit the same alone and beside other positions.

    Tried on the first block behind 185 cached tokens, where attention changes the order of its
    sums, and on the unembedding; layers look after many rows as they meet them.
    """
    config, total, before = model.config, 12, 185
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(1, total, config.n_embd, generator=numbers)
    cache = KVCache.passing(config, 1, before + total)
    for stored in (cache.keys, cache.values):
        stored[0, :, :, :before] = torch.randn(stored[0, :, :, :before].shape, generator=numbers)

    def run(start: int, stop: int) -> Tensor:
        cache.lengths.fill_(before + start)
        out: Tensor = model.h[0](x[:, start:stop], cache.window(stop - start))
        return out

    whole = run(0, total)
    alone = torch.cat([run(i, i + 1) for i in range(total)], dim=1)
    parts = torch.cat([run(0, 3), run(3, total)], dim=1)
    logits = model.unembed(x)
    one = model.unembed(x[:, -1:])
    return (
        torch.equal(whole, alone) and torch.equal(whole, parts) and torch.equal(logits[:, -1:], one)
    )
