"""Another program's network, run beside this one: transformers' GPT2LMHeadModel."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from ..config import GPT2Config
from ..errors import GPT2Error
from ..model import GPT2
from .divergence import record_from
from .reference import Reference

if TYPE_CHECKING:
    from torch import Tensor

NAME = "transformers"


def require_transformers() -> None:
    """Raise GPT2Error when transformers is not installed."""
    if importlib.util.find_spec(NAME) is None:
        raise GPT2Error(
            "transformers is not installed; pip install 'gpt2cli[verify]' brings it, and "
            "--against MODEL or --reference FILE work without it"
        )


@torch.inference_mode()
def record_transformers(model: GPT2, input_ids: Tensor) -> Reference:
    """What transformers computes from the same float32 weights for ids [B, T], parts and all.

    `model` is unpacked. Only the arithmetic is compared: the file is not read a second time.
    """
    require_transformers()
    import transformers

    with torch.device("meta"):
        theirs: Any = transformers.GPT2LMHeadModel(_config(model.config, transformers))
    weights = {f"transformer.{name}": tensor for name, tensor in model.state_dict().items()}
    head = weights.pop("transformer.lm_head.weight", model.wte.weight)
    theirs.load_state_dict(weights | {"lm_head.weight": head}, strict=True, assign=True)
    theirs.eval()
    source = f"transformers {transformers.__version__} on the same weights"
    ids = input_ids.to(model.wte.weight.device)
    inner = theirs.transformer
    return record_from(inner.h, inner.ln_f, lambda: theirs(ids).logits, ids, source)


def _config(config: GPT2Config, transformers: Any) -> Any:
    fields = vars(config) | {"bos_token_id": None, "eos_token_id": None}
    return transformers.GPT2Config(**fields, attn_implementation="eager")
