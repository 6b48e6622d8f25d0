"""What may be wrong with a computation: copies of a network, each with one fault undone.

A fault turns up on either side: the network here may be the one that drops a scale, or the
program that it is compared with. So every change is tried in both directions.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..model import ACTIVATIONS, GPT2, Block
from .comparison import Cause
from .copies import put, shared_copy

EPSILONS = (1e-5, 1e-6, 1e-12)
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
MOST_LAYERS_TO_PAIR = 24  # beyond it, without hidden states, only neighbours are swapped

_SQUARES = ("attn.c_proj", "mlp.c_fc", "mlp.c_proj")
_ORDERS = tuple(order for order in itertools.permutations("qkv") if order != tuple("qkv"))


@dataclass(frozen=True)
class Hypothesis:
    """A cause, the network in which it is undone, and an id that would stand before the text."""

    cause: Cause
    make: Callable[[], GPT2]
    before: int | None = None


def _changed(
    cause: str, description: str, model: GPT2, change: Callable[[GPT2], None]
) -> Hypothesis:
    def make() -> GPT2:
        twin = shared_copy(model)
        change(twin)
        return twin

    return Hypothesis(Cause(cause, description), make)


def in_blocks(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    """Changes of the arithmetic and of the weights' layout in some blocks, cheap ones first."""
    yield from _activations(model, layers)
    yield from _epsilons(model, layers)
    yield from _scales(model, layers)
    yield from _transposed(model, layers)
    yield from _qkv(model, layers)


def around_blocks(model: GPT2, first_bad: int) -> Iterator[Hypothesis]:
    """Changes of positions, of the start token, of the head and of the weights' precision.

    `first_bad` is the first position at which logits differ: from there positions may start
    again, since what comes before does not depend on it.
    """
    yield from _positions(model, first_bad)
    config = model.config
    starts = [config.bos_token_id, *config.eos_token_id, config.vocab_size - 1, 0]
    for token in dict.fromkeys(token for token in starts if token is not None):
        description = f"the reference has token {token} before the text, unseen"
        yield Hypothesis(Cause("bos", description), lambda: model, before=token)
    if not config.tie_word_embeddings:
        yield _changed("tied_head", "the reference's unembedding is wte, not lm_head", model, _tie)
    for name, dtype in HALVES.items():

        def rounded(twin: GPT2, dtype: torch.dtype = dtype) -> None:
            for weight, tensor in list(twin.named_parameters()):
                put(twin, weight, tensor.to(dtype).float())

        yield _changed("rounding", f"the reference's weights are rounded to {name}", model, rounded)


def swaps(model: GPT2, among: Sequence[int]) -> Iterator[Hypothesis]:
    """The weights of two blocks in each other's place; one of the two is in `among`."""
    n_layer = model.config.n_layer
    for first, second in itertools.combinations(range(n_layer), 2):
        far = len(among) > 1 and n_layer > MOST_LAYERS_TO_PAIR and second - first > 1
        if (first in among or second in among) and not far:

            def swap(twin: GPT2, first: int = first, second: int = second) -> None:
                for here, there in ((first, second), (second, first)):
                    weights = model.h[there].state_dict()
                    twin.h[here].load_state_dict(weights, assign=True)

            description = f"the reference has h.{first} and h.{second} in each other's place"
            yield _changed("swapped_blocks", description, model, swap)


def _blocks(model: GPT2, layers: Sequence[int]) -> list[Block]:
    return [cast("Block", model.h[layer]) for layer in layers]


def _activations(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    names = {function: name for name, function in reversed(ACTIVATIONS.items())}
    for function, name in names.items():

        def activate(twin: GPT2, function: Callable[[Tensor], Tensor] = function) -> None:
            for block in _blocks(twin, layers):
                block.mlp.activation = function

        yield _changed("activation", f"the reference has {name} as its activation", model, activate)


def _epsilons(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    for epsilon in EPSILONS:

        def widen(twin: GPT2, epsilon: float = epsilon) -> None:
            twin.ln_f.eps = epsilon
            for block in _blocks(twin, layers):
                block.ln_1.eps = block.ln_2.eps = epsilon

        description = f"the reference has {epsilon:g} as its layer norms' epsilon"
        yield _changed("epsilon", description, model, widen)


def _scales(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    """Attention scores multiplied or divided by √d, and by the number of the block from 1."""

    def scaled(factor: Callable[[int], float]) -> Callable[[GPT2], None]:
        def scale(twin: GPT2) -> None:
            for layer, block in zip(layers, _blocks(twin, layers), strict=True):
                block.attn.scale *= factor(layer)

        return scale

    root = math.sqrt(model.config.head_dim)
    factors: tuple[tuple[str, str, Callable[[int], float]], ...] = (
        ("attention_scale", "lacks the factor 1/√d", lambda layer: root),
        ("attention_scale", "has the factor 1/√d once more", lambda layer: 1 / root),
        ("inverse_layer_scale", "lacks the factor 1/(layer + 1)", lambda layer: layer + 1),
        ("inverse_layer_scale", "has the factor 1/(layer + 1) more", lambda layer: 1 / (layer + 1)),
    )
    for cause, what, factor in factors:
        description = f"the reference {what} on attention scores"
        yield _changed(cause, description, model, scaled(factor))


def _transposed(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    """Square weights the other way round: each of them alone, and all together."""
    block = model.h[0]
    square = [name for name in _SQUARES if len({*block.get_parameter(f"{name}.weight").shape}) == 1]
    sets: list[tuple[str, ...]] = [(name,) for name in square]
    if len(square) > 1:
        sets.append(tuple(square))
    for names in sets:

        def transpose(twin: GPT2, names: tuple[str, ...] = names) -> None:
            for layer, name in itertools.product(layers, names):
                weight = twin.get_parameter(f"h.{layer}.{name}.weight")
                put(twin, f"h.{layer}.{name}.weight", weight.T)

        description = f"the reference has {' and '.join(names)} transposed"
        yield _changed("transposed", description, model, transpose)


def _qkv(model: GPT2, layers: Sequence[int]) -> Iterator[Hypothesis]:
    """The thirds of c_attn in another order, or laid out head by head."""
    width, heads = model.config.n_embd, model.config.n_head
    columns = torch.arange(3 * width)
    thirds = dict(zip("qkv", columns.chunk(3), strict=True))
    layouts = {
        f"the reference's c_attn holds {', '.join(order)}": torch.cat([thirds[x] for x in order])
        for order in _ORDERS
    }
    if heads > 1:
        by_head = columns.view(3, heads, -1).transpose(0, 1).flatten()
        layouts["the reference's c_attn holds q, k, v head by head"] = by_head
        layouts["the reference reads c_attn head by head"] = by_head.argsort()
    for description, places in layouts.items():

        def reorder(twin: GPT2, places: Tensor = places) -> None:
            for layer, part in itertools.product(layers, ("weight", "bias")):
                name = f"h.{layer}.attn.c_attn.{part}"
                put(twin, name, twin.get_parameter(name)[..., places])

        yield _changed("qkv_order", description, model, reorder)


def _positions(model: GPT2, first_bad: int) -> Iterator[Hypothesis]:
    """Another row of wpe for each position."""
    places = torch.arange(model.config.n_positions)
    layouts = {
        "the reference counts positions from 1": (places + 1).clamp(max=len(places) - 1),
        "the reference's positions lag by one": (places - 1).clamp(min=0),
        "the reference puts every token at position 0": places * 0,
    }
    if first_bad:
        again = torch.where(places < first_bad, places, places - first_bad)
        layouts[f"the reference's positions start again from 0 at {first_bad}"] = again
    for description, rows in layouts.items():

        def replace(twin: GPT2, rows: Tensor = rows) -> None:
            put(twin, "wpe.weight", model.wpe.weight[rows])

        yield _changed("positions", description, model, replace)


def _tie(twin: GPT2) -> None:
    put(twin, "lm_head.weight", twin.wte.weight)
