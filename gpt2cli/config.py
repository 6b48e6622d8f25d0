"""GPT2Config: every field of a GPT-2 config is applied, known to be irrelevant, or refused.

Field names and defaults are those of the released ``config.json`` files and of transformers'
``GPT2Config`` (https://huggingface.co/docs/transformers/model_doc/gpt2#transformers.GPT2Config).
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import GPT2Error, listing

ACTIVATIONS = (
    "gelu_new",
    "gelu",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "quick_gelu",
    "relu",
    "silu",
    "swish",
    "tanh",
)

GIT_LFS = b"version https://git-lfs"  # begins what stands in for a file that git did not fetch

MOST = 2**31 - 1  # of any one size
_MOST_NESTED = 50  # levels of a JSON text, so that whatever walks it need not count

MOST_LAYERS = 2**12  # the tensor table is built before a file is compared with it


@dataclass(frozen=True)
class GPT2Config:
    """The sizes and switches of one GPT-2 network.

    ``n_inner`` is the width of the MLP, ``4 * n_embd`` when None. ``eos_token_id`` holds every id
    that ends a text. Raises ValueError when the width does not divide into the heads.
    """

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd {self.n_embd} does not divide into n_head {self.n_head}")

    @property
    def inner(self) -> int:
        """The width of the MLP."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.n_embd // self.n_head

    def attention_scale(self, layer: int) -> float:
        """What the scores of block `layer` (from 0) are multiplied by before the softmax."""
        scale = 1 / math.sqrt(self.head_dim) if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale


@dataclass(frozen=True)
class ParsedConfig:
    """A config and what became of each field of the file it came from.

    `outside` are start and end ids that the vocabulary does not have, as ``eos_token_id 50256``:
    transformers writes that one into a config of any size, and it counts as not given.
    """

    config: GPT2Config
    applied: tuple[str, ...]
    irrelevant: tuple[str, ...]
    unknown: tuple[str, ...]
    outside: tuple[str, ...] = ()


def lfs_pointer(where: str) -> GPT2Error:
    """The error for a file that git left on its server, and began with GIT_LFS here."""
    return GPT2Error(
        f"{where} is a Git LFS pointer, not the file itself; run git lfs pull where it lies"
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file at `path`; GPT2Error when it is missing or holds no object."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe may never end
            raise GPT2Error(f"{path} is no file; fetch it again")
        data = path.read_bytes()
        if data.startswith(GIT_LFS):
            raise lfs_pointer(str(path))
        value = parse_json(data)
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, MemoryError) as error:
        reason = str(error) or "too large for this machine's memory"
        raise GPT2Error(f"{path} is not JSON ({reason}); fetch the file again") from error
    if not isinstance(value, dict):
        raise GPT2Error(f"{path} holds no JSON object; fetch the file again")
    return value


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text; ValueError where it is none, is deep, or has a name twice."""
    try:
        value = json.loads(data, object_pairs_hook=_without_doubles)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    inner = [value]
    for _ in range(_MOST_NESTED):
        inner = [v for v in inner if isinstance(v, (dict, list))]
        if not inner:
            return value
        inner = [v for held in inner for v in (held.values() if isinstance(held, dict) else held)]
    raise ValueError("nested too deep")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name stands twice")
    return table


def parse_config(data: Mapping[str, Any], where: str) -> ParsedConfig:
    """The GPT2Config that a Hub ``config.json`` describes; `where` names the file in errors.

    Raises GPT2Error for a model of another type, a field with a value that GPT-2 does not know,
    and any field that would change the arithmetic in a way that is not built here.
    """
    problems = _refusals(data)
    values: dict[str, Any] = {}
    sources: list[str] = []
    for name, read in _READERS.items():
        keys = [key for key in (name, *_ALIASES.get(name, ())) if data.get(key) is not None]
        sources += keys
        try:
            found = [read(data[key]) for key in keys]
        except _RefusedError as error:
            problems.append(f"{' or '.join(keys)}: {error}")
            continue
        if len(set(found)) > 1:
            spelled = " and ".join(f"{key} {data[key]}" for key in keys)
            problems.append(f"{spelled} contradict each other")
        elif found:
            values[name] = found[0]
        elif name in _SIZES:
            problems.append(f"{name} is missing")
    if not problems and values["n_embd"] % values["n_head"]:
        problems.append(f"n_embd {values['n_embd']} does not divide into n_head {values['n_head']}")
    if problems:
        raise GPT2Error(f"{where} is no config that can be run: {'; '.join(problems)}")
    outside = _drop_outside(values, values["vocab_size"])
    nulls = [key for key in data if data[key] is None and key in _READERS]
    checked = [key for key in data if key in _CHECKED or _CHANGES_ARITHMETIC.search(key)]
    rest = [key for key in data if key not in {*sources, *nulls, *checked}]
    return ParsedConfig(
        config=GPT2Config(**values),
        applied=tuple(key for key in data if key not in rest),
        irrelevant=tuple(key for key in rest if _irrelevant(key)),
        unknown=tuple(key for key in rest if not _irrelevant(key)),
        outside=outside,
    )


def with_generation_config(
    parsed: ParsedConfig, data: Mapping[str, Any], where: str
) -> ParsedConfig:
    """`parsed` with the start and end ids of a ``generation_config.json``, where it has them.

    Sampling defaults in that file are not applied.
    """
    changes: dict[str, Any] = {}
    for name in ("bos_token_id", "eos_token_id"):
        if data.get(name) is not None:
            try:
                changes[name] = _READERS[name](data[name])
            except _RefusedError as error:
                raise GPT2Error(f"{where}: {name}: {error}") from error
    outside = _drop_outside(changes, parsed.config.vocab_size)
    both = tuple(dict.fromkeys(parsed.outside + outside))
    return replace(parsed, config=replace(parsed.config, **changes), outside=both)


def _drop_outside(values: dict[str, Any], vocab_size: int) -> tuple[str, ...]:
    """Take the start and end ids that are past the vocabulary out of `values`; name them."""
    outside: list[str] = []
    for name in ("bos_token_id", "eos_token_id"):
        found = values.get(name)
        several = found if isinstance(found, tuple) else [] if found is None else [found]
        if far := [token for token in several if token >= vocab_size]:
            outside += [f"{name} {token}" for token in far]
            del values[name]
            if kept := tuple(token for token in several if token < vocab_size):
                values[name] = kept
    return tuple(outside)


def _refusals(data: Mapping[str, Any]) -> list[str]:
    """What in a config asks for another architecture, a sentence each."""
    problems = []
    if data.get("model_type") not in (None, "gpt2"):
        problems.append(f"model_type is {data['model_type']!r}, and only 'gpt2' is read")
    for key, neutral in _CHECKED.items():
        if data.get(key) and data[key] != neutral and key != "model_type":
            problems.append(f"{key} is {_short(data[key])}, which is not built here")
    for key, value in data.items():
        if _CHANGES_ARITHMETIC.search(key) and key not in _CHECKED and value not in _NEUTRAL:
            problems.append(f"{key} is {_short(value)}, which is not built here")
    return problems


class _RefusedError(Exception):
    """A value that its field cannot have; the message says which."""


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def _size(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise _RefusedError(f"{_short(value)} is not a whole number from 1 to {MOST}")
    return value


def _layers(value: object) -> int:
    if _size(value) > MOST_LAYERS:
        raise _RefusedError(f"{_short(value)} is more than {MOST_LAYERS}")
    return _size(value)


def _epsilon(value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 < value < 1:
        raise _RefusedError(f"{_short(value)} is not a number between 0 and 1")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _RefusedError(f"{_short(value)} is neither true nor false")
    return value


def _activation(value: object) -> str:
    if value not in ACTIVATIONS:
        raise _RefusedError(f"{_short(value)} is none of {', '.join(ACTIVATIONS)}")
    return str(value)


def _token_id(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise _RefusedError(f"{_short(value)} is not a token id")
    return value


def _token_ids(value: object) -> tuple[int, ...]:
    return tuple(map(_token_id, value if isinstance(value, list) else [value]))


_SIZES = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")

_READERS: dict[str, Callable[[object], Any]] = {
    "vocab_size": _size,
    "n_positions": _size,
    "n_embd": _size,
    "n_layer": _layers,
    "n_head": _size,
    "n_inner": _size,
    "activation_function": _activation,
    "layer_norm_epsilon": _epsilon,
    "scale_attn_weights": _flag,
    "scale_attn_by_inverse_layer_idx": _flag,
    "reorder_and_upcast_attn": _flag,
    "tie_word_embeddings": _flag,
    "bos_token_id": _token_id,
    "eos_token_id": _token_ids,
}

# Other names of the same fields: n_ctx of the released configs, n_vocab of OpenAI's hparams.json,
# the rest from transformers' GPT2Config.attribute_map.
_ALIASES = {
    "vocab_size": ("n_vocab",),
    "n_positions": ("n_ctx", "max_position_embeddings"),
    "n_embd": ("hidden_size",),
    "n_layer": ("num_hidden_layers",),
    "n_head": ("num_attention_heads",),
}

# Fields that are compared with the one value GPT-2 has.
_CHECKED: dict[str, object] = {
    "model_type": "gpt2",
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "quantization_config": None,
    "pruned_heads": {},
    "position_embedding_type": "absolute",
}

_CHANGES_ARITHMETIC = re.compile(r"(^|_)(rotary|rope|alibi|windows?)(_|$)", re.IGNORECASE)
_NEUTRAL: tuple[object, ...] = (None, False, 0, "", [], {})

_IRRELEVANT = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures
    attn_pdrop auto_map bad_words_ids begin_suppress_tokens chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping embd_pdrop encoder_no_repeat_ngram_size exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label
    initializer_range is_decoder label2id length_penalty max_length min_length n_special
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id
    predict_special_tokens prefix problem_type remove_invalid_values repetition_penalty
    resid_pdrop return_dict return_dict_in_generate sep_token_id suppress_tokens task
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p
    torch_dtype torchscript transformers_version typical_p use_bfloat16 use_cache
    """.split()
)


def _irrelevant(key: str) -> bool:
    """Whether a field says nothing about the forward pass: dropout, training, labels, defaults."""
    return key in _IRRELEVANT or key.startswith("summary_")


def note_on_outside(parsed: ParsedConfig, where: str) -> list[str]:
    """The one line that names the start and end ids which the vocabulary does not have, if any."""
    if not parsed.outside:
        return []
    size = parsed.config.vocab_size
    return [f"{where}: leaving out {listing([*parsed.outside])}, as its vocab_size is {size}"]


def note_on_unknown(parsed: ParsedConfig, where: str) -> list[str]:
    """The one line that names the fields this program has never heard of, if there are any."""
    if not parsed.unknown:
        return []
    names = [n if n.isprintable() else repr(n)[1:-1] for n in sorted(parsed.unknown)]
    return [f"{where}: ignoring {listing(names, 8)}, unknown to GPT-2"]
