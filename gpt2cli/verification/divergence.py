"""The states inside a network, and the first of them that differs from a reference."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..model import GPT2
from .comparison import Divergence
from .reference import Reference

Side = Literal["in", "out"]
Point = tuple[str, nn.Module, Side]

_SUM = "residual"

# A block's parts in the order they are computed: the name in a recording, the module, and whether
# the part is what goes into that module or what comes out of it. The first residual sum has no
# name of its own in a report: an error of that addition is the block's.
_PARTS: tuple[tuple[str, str, Side], ...] = (
    ("ln_1", "ln_1", "out"),
    ("attn.c_attn", "attn.c_attn", "out"),
    ("attn", "attn.c_proj", "in"),
    ("attn.c_proj", "attn.c_proj", "out"),
    (_SUM, "ln_2", "in"),
    ("ln_2", "ln_2", "out"),
    ("mlp.c_fc", "mlp.c_fc", "out"),
    ("mlp.act", "mlp.c_proj", "in"),
    ("mlp.c_proj", "mlp.c_proj", "out"),
)

# Each block is run on the reference's own input, so what is left is one block's rounding: some
# units in the last place of the largest number of a position.
_ROUNDING = 3e-6


@torch.inference_mode()
def record(model: GPT2, input_ids: Tensor, source: str, parts: bool = False) -> Reference:
    """Run ids [B, T] and keep logits and hidden states; with `parts`, those inside blocks too."""
    return record_from(model.h, model.ln_f, lambda: model(input_ids), input_ids, source, parts)


def record_from(
    blocks: nn.ModuleList,
    ln_f: nn.Module,
    run: Callable[[], Tensor],
    input_ids: Tensor,
    source: str,
    parts: bool = True,
) -> Reference:
    """What `run`, which gives logits [B, T, V], makes pass through blocks with released names."""
    points: list[Point] = [(f"{n}", block, "in") for n, block in enumerate(blocks)]
    points.append((f"{len(blocks)}", blocks[-1], "out"))
    inside: list[Point] = [("ln_f", ln_f, "out")]
    for layer, block in enumerate(blocks):
        inside += _points(block, f"h.{layer}.")
    states: dict[str, Tensor] = {}
    kept: dict[str, Tensor] = {}
    with _watching(points, states), _watching(inside if parts else [], kept):
        logits = run()
    return Reference(source, input_ids.cpu(), logits.cpu(), tuple(states.values()), kept)


@torch.inference_mode()
def locate(model: GPT2, reference: Reference) -> Divergence | None:
    """Where `model` parts from a reference that holds hidden states; None without them.

    Every block is run on the reference's input to it, so an error further up is not blamed on
    those after it. Inside the first bad block the parts are compared where they were recorded.
    """
    states = [state.to(model.wte.weight.device) for state in reference.hidden_states]
    if len(states) != model.config.n_layer + 1:
        return None
    ids = reference.input_ids.to(states[0].device)
    positions = torch.arange(ids.shape[1], device=ids.device)
    if states_differ(model.wte(ids) + model.wpe(positions), states[0]):
        return Divergence(None, _embedding(model, ids, states[0]))
    for layer, block in enumerate(model.h):
        part = _bad_part(block, layer, states[layer], states[layer + 1], reference)
        if part is not None:
            return Divergence(layer, part)
    return Divergence(None, _end(model, states[-1], reference))


def _bad_part(
    block: nn.Module, layer: int, before: Tensor, after: Tensor, reference: Reference
) -> str | None:
    inside: dict[str, Tensor] = {}
    with _watching(_points(block, ""), inside):
        out = block(before)
    for name in inside:
        recorded = reference.parts.get(f"h.{layer}.{name}")
        if recorded is not None and states_differ(inside[name], recorded):
            return "block" if name == _SUM else name
    return "block" if states_differ(out, after) else None


def _end(model: GPT2, state: Tensor, reference: Reference) -> str:
    """Whether ln_f or the unembedding is off, [B, T, C] being what enters ln_f.

    Where ln_f's output was not recorded: an error of ln_f is the unembedding of some error of its
    output, and if the vocabulary is larger than C, hardly any error of the unembedding is.
    """
    ours = model.ln_f(state)
    if (normed := reference.parts.get("ln_f")) is not None:
        return "ln_f" if states_differ(ours.cpu(), normed) else "logits"
    head = dict(model.named_parameters()).get(
        "wte.weight" if model.config.tie_word_embeddings else "lm_head.weight"
    )
    if head is None or len(head) <= head.shape[1]:
        return "logits"
    weight = head.double().cpu()  # [V, C]
    error = (reference.logits.double() - model.unembed(ours).double().cpu()).flatten(0, -2).T
    explained = weight @ torch.linalg.lstsq(weight, error).solution
    scale = reference.logits.abs().max()
    return "ln_f" if (explained - error).abs().max() <= _ROUNDING * scale else "logits"


def _embedding(model: GPT2, ids: Tensor, state: Tensor) -> str:
    """Whether the token or the position embedding is off: what the other leaves over tells.

    A wrong row of wpe is off alike wherever its position stands, in every row of ids; a wrong row
    of wte is off alike wherever its token does, which a single row has to tell by.
    """
    positions = torch.arange(ids.shape[1], device=ids.device)
    error = state - model.wte(ids) - model.wpe(positions)
    bound = _ROUNDING * state.abs().max()
    if len(ids) > 1:
        return "wpe" if (error - error[:1]).abs().max() <= bound else "wte"
    first = (ids == ids.T).int().argmax(-1)  # where each position's token stands first
    return "wte" if (error - error[:, first]).abs().max() <= bound else "wpe"


def states_differ(ours: Tensor, reference: Tensor) -> bool:
    """Whether [B, T, C] states are further apart than rounding, at any position; NaN is."""
    if ours.shape != reference.shape:
        return True
    reference = reference.to(ours.device)
    bound = _ROUNDING * reference.abs().amax(-1, keepdim=True)
    return not bool(((ours - reference).abs() <= bound).all())


def _points(block: nn.Module, prefix: str) -> list[Point]:
    return [(prefix + name, block.get_submodule(module), side) for name, module, side in _PARTS]


@contextmanager
def _watching(points: Iterable[Point], into: dict[str, Tensor]) -> Iterator[None]:
    """While open, what goes into or comes out of the points' modules is kept under their names."""

    def keep(name: str, side: Side, args: tuple[Tensor, ...], out: Any) -> None:
        if side == "in":
            into[name] = args[0].cpu()
        else:  # a block of transformers may give its output with more behind it
            into[name] = (out[0] if isinstance(out, tuple) else out).cpu()

    hooks = [
        module.register_forward_hook(
            lambda _module, args, out, name=name, side=side: keep(name, side, args, out)
        )
        for name, module, side in points
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
