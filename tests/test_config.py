"""Every field of a config is applied, known to be irrelevant, refused, or named as unknown."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpt2cli.config import (
    GPT2Config,
    ParsedConfig,
    note_on_outside,
    note_on_unknown,
    parse_config,
    with_generation_config,
)
from gpt2cli.errors import GPT2Error

FIXTURES = Path(__file__).parent / "fixtures"
SIZES = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}

# openai-community/gpt2's config.json
RELEASED: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def parsed(**changes: Any) -> ParsedConfig:
    return parse_config(SIZES | changes, "config.json")


def config(**changes: Any) -> GPT2Config:
    return parsed(**changes).config


def refusal(**changes: Any) -> str:
    with pytest.raises(GPT2Error) as refused:
        parsed(**changes)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_released_config_is_understood_to_its_last_field() -> None:
    read = parse_config(RELEASED, "config.json")
    assert read.config == GPT2Config(
        **SIZES, bos_token_id=50256, eos_token_id=(50256,), activation_function="gelu_new"
    )
    assert read.unknown == ()
    assert sorted(read.applied + read.irrelevant) == sorted(RELEASED)
    assert {"n_ctx", "activation_function", "model_type"} <= set(read.applied)
    assert {"attn_pdrop", "summary_type", "task_specific_params"} <= set(read.irrelevant)


def test_sizes_alone_are_a_gpt2_with_the_released_defaults() -> None:
    plain = config()
    assert plain.inner == 4 * 768
    assert plain.head_dim == 64
    assert (plain.activation_function, plain.layer_norm_epsilon) == ("gelu_new", 1e-5)
    assert plain.scale_attn_weights
    assert plain.tie_word_embeddings
    assert not plain.scale_attn_by_inverse_layer_idx
    assert not plain.reorder_and_upcast_attn
    assert (plain.bos_token_id, plain.eos_token_id) == (None, ())


def test_defaults_and_names_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Config()
    read = parse_config(json.loads(theirs.to_json_string(use_diff=False)), "config.json")
    assert read.unknown == ()
    assert read.config == parse_config({**RELEASED, "n_ctx": None}, "config.json").config
    for name, alias in transformers.GPT2Config.attribute_map.items():
        spelled = {**SIZES, name: SIZES[alias]}
        del spelled[alias]
        assert parse_config(spelled, "config.json").config == config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_inner", 100),
        ("activation_function", "relu"),
        ("layer_norm_epsilon", 1e-6),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("reorder_and_upcast_attn", True),
        ("tie_word_embeddings", False),
        ("bos_token_id", 0),
    ],
)
def test_a_field_of_the_arithmetic_is_applied(name: str, value: object) -> None:
    read = parsed(**{name: value})
    assert getattr(read.config, name) == value
    assert name in read.applied


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((size, value) for size in SIZES for value in ("12", 12.0, True, 0, -1, [12], 10**12)),
        ("n_layer", 2**12 + 1),
        ("n_inner", 0),
        ("n_inner", "3072"),
        ("activation_function", "gelu_10"),
        ("activation_function", ["gelu"]),
        ("activation_function", 1),
        *(("layer_norm_epsilon", v) for v in (math.nan, math.inf, 0, 1, -1e-5, "1e-5", True)),
        *(("scale_attn_weights", v) for v in (1, "true", math.nan)),
        ("scale_attn_by_inverse_layer_idx", 0),
        ("reorder_and_upcast_attn", "false"),
        ("tie_word_embeddings", 1),
        *(("bos_token_id", v) for v in (-1, 1.0, True, "5", [5])),
        *(("eos_token_id", v) for v in (-1, math.nan, False, "5", [5, -1], [[5]], {})),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused_by_the_fields_name(
    name: str, value: object
) -> None:
    assert f"config.json is no config that can be run: {name}: " in refusal(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "gptj"),
        ("model_type", "llama"),
        ("model_type", ""),
        ("model_type", 2),
        ("add_cross_attention", True),
        ("add_cross_attention", "true"),
        ("is_encoder_decoder", True),
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("pruned_heads", {"0": [1, 2]}),
        ("position_embedding_type", "relative_key"),
        ("rotary_dim", 64),
        ("rotary", True),
        ("rope_theta", 10000.0),
        ("rope_scaling", {"type": "linear"}),
        ("alibi", True),
        ("use_alibi", True),
        ("sliding_window", 4096),
        ("window_size", 256),
        ("attention_window", [512]),
    ],
)
def test_another_architecture_is_refused_by_the_field_that_asks_for_it(
    name: str, value: object
) -> None:
    said = refusal(**{name: value})
    assert f"{name} is " in said
    assert ";" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "gpt2"),
        ("model_type", None),
        ("add_cross_attention", False),
        ("is_encoder_decoder", False),
        ("quantization_config", None),
        ("pruned_heads", {}),
        ("position_embedding_type", "absolute"),
        ("rotary_dim", None),
        ("rotary", False),
        ("alibi", False),
        ("sliding_window", None),
        ("window_size", 0),
        ("n_inner", None),
        ("eos_token_id", None),
    ],
)
def test_a_neutral_value_of_the_same_field_changes_nothing(name: str, value: object) -> None:
    read = parsed(**{name: value})
    assert read.config == config()
    assert name in read.applied
    assert read.unknown == ()


def test_everything_wrong_with_a_config_stands_in_one_line() -> None:
    said = refusal(n_embd="768", n_layer=None, activation_function="x", alibi=True)
    for part in (
        "alibi is true",
        'n_embd: "768"',
        "n_layer is missing",
        'activation_function: "x"',
    ):
        assert part in said


@pytest.mark.parametrize("name", SIZES)
def test_a_missing_size_is_named(name: str) -> None:
    sizes = {key: value for key, value in SIZES.items() if key != name}
    with pytest.raises(GPT2Error, match=f"{name} is missing"):
        parse_config(sizes, "config.json")
    with pytest.raises(GPT2Error, match=f"{name} is missing"):
        parse_config({**sizes, "model_type": "gpt2", name: None}, "config.json")


def test_a_width_that_does_not_divide_into_the_heads_is_refused() -> None:
    assert "n_embd 768 does not divide into n_head 7" in refusal(n_head=7)
    with pytest.raises(ValueError, match="n_embd 10 does not divide into n_head 4"):
        GPT2Config(vocab_size=1, n_positions=1, n_embd=10, n_layer=1, n_head=4)


def test_the_legacy_name_of_the_positions_stands_for_them_or_agrees() -> None:
    legacy = {key: value for key, value in SIZES.items() if key != "n_positions"} | {"n_ctx": 77}
    assert parse_config(legacy, "config.json").config.n_positions == 77
    assert config(n_ctx=1024) == config(n_ctx=None) == config()
    assert "n_positions 1024 and n_ctx 512 contradict each other" in refusal(n_ctx=512)


def test_openais_hparams_are_a_config() -> None:
    hparams = json.loads((FIXTURES / "openai-tf" / "hparams.json").read_text())
    read = parse_config(hparams, "hparams.json")
    assert (read.config.vocab_size, read.config.n_positions) == (320, 64)
    assert read.unknown == ()


def test_unknown_fields_are_named_once_in_order_and_ignored() -> None:
    read = parsed(zeta=[1], my_adapter={"r": 8}, n_inners=5)
    assert read.config == config()
    assert sorted(read.unknown) == ["my_adapter", "n_inners", "zeta"]
    assert note_on_unknown(read, "c.json") == [
        "c.json: ignoring my_adapter, n_inners, zeta, unknown to GPT-2"
    ]
    assert note_on_unknown(parsed(), "c.json") == []
    many = parsed(**{f"field_{n}": n for n in range(30)})
    (note,) = note_on_unknown(many, "c.json")
    assert "field_0, field_1, " in note
    assert "(22 more)" in note


@pytest.mark.parametrize(
    ("data", "bos", "eos"),
    [
        ({}, 1, (2,)),
        ({"eos_token_id": 7}, 1, (7,)),
        ({"eos_token_id": [7, 8]}, 1, (7, 8)),
        ({"eos_token_id": []}, 1, ()),
        ({"eos_token_id": None, "bos_token_id": 5}, 5, (2,)),
        ({"temperature": 0.1, "top_k": 5, "do_sample": True}, 1, (2,)),
    ],
)
def test_a_generation_config_gives_start_and_end_ids_and_nothing_else(
    data: dict[str, Any], bos: int, eos: tuple[int, ...]
) -> None:
    before = parsed(bos_token_id=1, eos_token_id=2)
    after = with_generation_config(before, data, "generation_config.json").config
    assert after == config(bos_token_id=bos, eos_token_id=list(eos))


@pytest.mark.parametrize(
    ("first", "second", "bos", "eos", "outside"),
    [
        ({"eos_token_id": 50256, "bos_token_id": 50256}, {}, None, (), ["bos", "eos"]),
        ({"eos_token_id": [60, 61, 7]}, {}, None, (60, 7), ["eos"]),
        ({"eos_token_id": 7, "bos_token_id": 8}, {"eos_token_id": 50256}, 8, (7,), ["eos"]),
        ({"eos_token_id": 50256}, {"eos_token_id": 50256}, None, (), ["eos"]),
        ({"bos_token_id": 61}, {"bos_token_id": 60}, 60, (), ["bos"]),
    ],
)
def test_an_id_past_the_vocabulary_counts_as_not_given_and_is_noted(
    first: dict[str, Any],
    second: dict[str, Any],
    bos: int | None,
    eos: tuple[int, ...],
    outside: list[str],
) -> None:
    read = with_generation_config(parsed(vocab_size=61, **first), second, "generation_config.json")
    assert (read.config.bos_token_id, read.config.eos_token_id) == (bos, eos)
    assert [each.partition("_")[0] for each in read.outside] == outside
    (note,) = note_on_outside(read, "folder")
    assert note == f"folder: leaving out {', '.join(read.outside)}, as its vocab_size is 61"
    assert note_on_outside(parsed(eos_token_id=50256), "folder") == []


@pytest.mark.parametrize("value", ["7", -1, True, 1.5, [None], {"id": 7}])
def test_an_end_id_that_is_none_is_refused_in_a_generation_config(value: object) -> None:
    with pytest.raises(GPT2Error, match=r"generation_config\.json: eos_token_id: .* token id"):
        with_generation_config(parsed(), {"eos_token_id": value}, "generation_config.json")


@pytest.mark.parametrize(
    ("scaled", "by_layer", "layer", "scale"),
    [(True, False, 11, 1 / 8), (False, False, 11, 1), (True, True, 3, 1 / 32), (False, True, 0, 1)],
)
def test_scores_are_scaled_by_head_width_and_layer_as_the_flags_say(
    scaled: bool, by_layer: bool, layer: int, scale: float
) -> None:
    flags = {"scale_attn_weights": scaled, "scale_attn_by_inverse_layer_idx": by_layer}
    assert config(**flags).attention_scale(layer) == scale  # heads of 64: √64 = 8
