"""The names that OpenAI's TensorFlow program and its optimizers give to variables."""

import math
import re
from collections.abc import Set

from .stored import Skipped, StoredTensor

_LAYER = r"model/h(0|[1-9][0-9]*)"
_NORM = re.compile(rf"(?:{_LAYER}/(ln_1|ln_2)|model/(ln_f))/(g|b)")
_DENSE = re.compile(rf"{_LAYER}/(attn|mlp)/(c_attn|c_fc|c_proj)/(w|b)")
_EMBEDDINGS = {"model/wte": "wte.weight", "model/wpe": "wpe.weight"}
_PARTS = {"g": "weight", "w": "weight", "b": "bias"}

# What tf.train's optimizers, AdamW, LAMB, BERT's AdamWeightDecayOptimizer and Adafactor keep
# beside a variable. A second slot of the same name, or a second optimizer, appends _1, _2, …
_SLOT = re.compile(
    r"""
    (?:.+/)? (model/.+) /
    (?: (?: Adam | AdamW | AdamOptimizer | LAMB | LAMBOptimizer | Adadelta | Adafactor | Adagrad
          | AdagradDA | Ftrl | Momentum | RMSProp | ExponentialMovingAverage ) (?:_[0-9]+)?
      | (?: adam | lamb ) _[mv]
      | adafactor_ (?: m | v | vr | vc )
    )""",
    re.VERBOSE,
)

# What they keep once for all variables: steps, powers of the decay rates, the loss's scale.
_COUNTER = re.compile(
    r"(?:.+/)?(?:global_step|beta[12]_power|current_loss_scale|good_steps)(?:_[0-9]+)?"
)


def is_variable(name: str) -> bool:
    """Whether a name is that of a variable of the network."""
    return _released(name) is not None


def tf_name(tensor: StoredTensor, variables: Set[str]) -> str | Skipped | None:
    """The released name of a tensor in a TensorFlow checkpoint that stores `variables`.

    Skipped are ``NAME/SLOT`` where NAME is a variable of the network that is stored, below the
    scope of its optimizer or not, and counters, which are one number; nothing else is.
    """
    if (name := _released(tensor.name)) is not None:
        return name
    slot = _SLOT.fullmatch(tensor.name)
    if slot and slot[1] in variables and is_variable(slot[1]):
        return Skipped("optimizer slot")
    if _COUNTER.fullmatch(tensor.name) and math.prod(tensor.shape) == 1:
        return Skipped("counter")
    return None


def _released(name: str) -> str | None:
    if name in _EMBEDDINGS:
        return _EMBEDDINGS[name]
    if found := _NORM.fullmatch(name):
        layer, block_norm, last_norm, part = found.groups()
        where = last_norm or f"h.{layer}.{block_norm}"
        return f"{where}.{_PARTS[part]}"
    if found := _DENSE.fullmatch(name):
        layer, half, dense, part = found.groups()
        return f"h.{layer}.{half}.{dense}.{_PARTS[part]}"
    return None
