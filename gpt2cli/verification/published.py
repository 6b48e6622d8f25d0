"""Published figures of the released sizes: the files in ``weights/references``.

A file is a JSON object with ``model`` and ``facts``; ``weights/README.md`` describes the fields of
each kind of fact and where the figures are from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import read_json
from ..errors import GPT2Error
from ..presets import ALIASES, weights_folder
from .comparison import Tolerance

TOKENIZER = "tokenizer"

# In the order they are checked: what costs least first, and nothing after a stage that failed.
STAGES: tuple[tuple[str, ...], ...] = (
    ("config", "tensors", "parameters", "file_size", "file_hash"),
    ("weight", "weight_derived", "tokens"),
    (
        *("intermediate", "kv_mean", "last_hidden_state", "final_ln_std"),
        *("logits", "logits_mean", "logit_difference", "argmax", "probs", "top_probs"),
    ),
    ("token_logprobs", "sequence_logprob", "continuation_logprob", "is_greedy", "loss"),
    ("greedy_step_logits", "greedy_step_logprobs", "greedy"),
)
KINDS = tuple(kind for stage in STAGES for kind in stage)


@dataclass(frozen=True)
class Fact:
    """One published figure.

    `data` holds the fields of its kind. A number passes within `tolerance`, absolute, plus
    `relative` times the published one; both are 0 for what is exact. `dtype` is the type it was
    computed in. `confidence` is ``two_sources``, ``one_source`` or ``uncertain``.
    """

    id: str
    kind: str
    data: Mapping[str, Any]
    tolerance: float
    relative: float
    dtype: str
    confidence: str
    sources: tuple[str, ...]

    def loosened(self, dtype: str, tolerance: Tolerance) -> "Fact":
        """The fact for a network whose weights are held in `dtype`, which costs `tolerance`."""
        if dtype == "float32" or self.kind in (*STAGES[0], *STAGES[1]):
            return self
        atol, rtol = self.tolerance + tolerance.atol, self.relative + tolerance.rtol
        return replace(self, tolerance=atol, relative=rtol, dtype=dtype)

    @property
    def bound(self) -> str:
        """The tolerance in words."""
        parts = [f"{self.tolerance:g}"] if self.tolerance else []
        parts += [f"{self.relative:g}·|published|"] if self.relative else []
        return " + ".join(parts) or "exact"


def figures_file(name: str) -> Path:
    """The file of a released size, by any of its names, or of the tokenizer; it may not exist."""
    return weights_folder() / "references" / f"{ALIASES.get(name, name)}.json"


def read_facts(path: Path) -> tuple[Fact, ...]:
    """The facts of a file, in its order; GPT2Error for a file that holds none or a kind unknown."""
    facts = read_json(path).get("facts")
    if not isinstance(facts, list) or not facts:
        raise GPT2Error(f"{path} holds no facts; install gpt2cli again")
    return tuple(_fact(data, path) for data in facts)


def _fact(data: Mapping[str, Any], path: Path) -> Fact:
    if data.get("kind") not in KINDS:
        raise GPT2Error(f"{path}: {data.get('id')} is of kind {data.get('kind')!r}, not known here")
    return Fact(
        id=str(data["id"]),
        kind=str(data["kind"]),
        data=data,
        tolerance=float(data.get("tolerance", 0)),
        relative=float(data.get("relative_tolerance", 0)),
        dtype=str(data.get("dtype", "float32")),
        confidence=str(data["confidence"]),
        sources=tuple(data["sources"]),
    )
