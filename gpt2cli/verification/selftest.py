"""Whether an installation computes GPT-2: tiny networks against float64, with no files at all."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor

from ..checkpoint import Checkpoint
from ..config import GPT2Config
from ..layout import shapes
from ..loader import load
from ..packing import DTYPES
from ..tokenizer import load_tokenizer
from . import oracle
from .comparison import TOLERANCES, Check, Comparison, Report, Tolerance, compare
from .paths import WRITTEN, badness, paths, sample_ids, written_alike
from .published import TOKENIZER, figures_file, read_facts

_SEED = 124
_TIED = GPT2Config(vocab_size=331, n_positions=64, n_embd=48, n_layer=3, n_head=4)
_CONFIGS = {
    "tied head": _TIED,
    "untied head, scaled by layer": replace(
        _TIED,
        n_embd=32,
        n_inner=80,
        n_head=2,
        scale_attn_by_inverse_layer_idx=True,
        tie_word_embeddings=False,
    ),
}


@torch.inference_mode()
def selftest(tolerance: Tolerance) -> Report:
    """Check the reading of a file, every path to the logits at every precision, and the tokenizer.

    The reference is float64 arithmetic on the numbers that were written, by `oracle`. Half types
    and int8 are met within their own tolerances. `tolerance` is for float32.
    """
    results = [each for name in _CONFIGS for each in _network(name, tolerance)]
    in_float32 = [c for check, c in results if check.kind == "float32" and c is not None]
    worst = max(in_float32, key=lambda c: badness(c.tolerance_used))
    checks = (_tokens(), *(check for check, _ in results))
    subject, against = "this installation", "float64 arithmetic written apart from it"
    return Report("self", subject, against, worst, checks, tolerance)


def _network(name: str, tolerance: Tolerance) -> Iterator[tuple[Check, Comparison | None]]:
    """A network of seeded numbers, written to a file and read back, by every path."""
    config = _CONFIGS[name]
    arrays = _arrays(config)
    with tempfile.TemporaryDirectory(prefix="gpt2cli-") as folder:
        checkpoint = _written(Path(folder), config, arrays)
        for dtype in DTYPES:
            model = load(checkpoint, dtype=dtype)
            ids = sample_ids(model)
            wide = {key: array.astype(np.float64) for key, array in arrays.items()}
            expected = torch.from_numpy(oracle.logits(wide, config, ids.numpy()))
            bound = tolerance if dtype == "float32" else TOLERANCES[dtype]
            ways: dict[str, Tensor] = {"in one pass": model(ids)}
            ways |= {way: path(model, ids) for way, path in paths()}
            for way, ours in ways.items():
                result = compare(ours, expected, bound)
                used = result.tolerance_used
                what = f"{name}, {dtype}, {way}"
                yield Check(dtype, what, result.passed, used, str(bound)), result
            if model.row_exact and model(ids).isfinite().all():
                what = f"{name}, {dtype}, {WRITTEN}"
                yield Check(dtype, what, written_alike(model), None, "exact"), None


def _arrays(config: GPT2Config) -> dict[str, np.ndarray]:
    """Numbers that expose mistakes: no bias is 0, no gain is near 1, and no two rows are alike."""
    numbers = np.random.default_rng(_SEED)
    arrays = {}
    for name, shape in shapes(config).items():
        if len(shape) == 1:
            spread = numbers.uniform(0.4, 2, shape) if "ln_" in name else None
            gain = spread is not None and name.endswith("weight")
            array = spread if gain else numbers.normal(0, 0.3, shape)
        else:
            array = numbers.normal(0, 1 / np.sqrt(config.n_embd), shape)
        arrays[name] = np.asarray(array, np.float32)
    return arrays


def _written(folder: Path, config: GPT2Config, arrays: dict[str, np.ndarray]) -> Checkpoint:
    fields = vars(config) | {"model_type": "gpt2", "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(fields))
    save_file(arrays, folder / "model.safetensors")
    return Checkpoint.open(folder)


def _tokens() -> Check:
    """The bundled vocabulary on the texts whose tokens others published."""
    tokenizer = load_tokenizer(None, None)
    wrong = [
        fact.id
        for fact in read_facts(figures_file(TOKENIZER))
        if tokenizer.encode(fact.data["text"], special=bool(fact.data.get("special")))
        != fact.data["input_ids"]
    ]
    name = f"published tokens differ: {', '.join(wrong)}" if wrong else "published tokens"
    return Check("tokens", name, not wrong, None, "exact")
