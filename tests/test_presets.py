"""The released sizes against the figures that others published for them."""

import json
from dataclasses import replace

import pytest
from program import done

from gpt2cli.config import GPT2Config
from gpt2cli.layout import count, shapes
from gpt2cli.presets import PRESETS, preset, weights_folder

# Parameters in all; without positions, as nanoGPT prints; without embeddings; with an untied head;
# with the vocabulary padded to 50304; float32 cache bytes a token.
PUBLISHED = {
    "gpt2": (124_439_808, 123_653_376, 85_056_000, 163_037_184, 124_475_904, 73_728),
    "gpt2-medium": (354_823_168, 353_774_592, 302_311_424, 406_286_336, 354_871_296, 196_608),
    "gpt2-large": (774_030_080, 772_719_360, 708_390_400, 838_359_040, 774_090_240, 368_640),
    "gpt2-xl": (1_557_611_200, 1_555_972_800, 1_475_561_600, 1_638_022_400, 1_557_686_400, 614_400),
}
NAMES = {
    "124M": "gpt2",
    "355M": "gpt2-medium",
    "774M": "gpt2-large",
    "1558M": "gpt2-xl",
    "117M": "gpt2",
    "345M": "gpt2-medium",
}


def total(config: GPT2Config) -> int:
    return count(shapes(config))


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones(name: str) -> None:
    config = PRESETS[name].config
    table = shapes(config)
    wpe, wte = count(table, "wpe."), count(table, "wte.")
    assert (
        total(config),
        total(config) - wpe,
        total(config) - wpe - wte,
        total(replace(config, tie_word_embeddings=False)),
        total(replace(config, vocab_size=50304)),
    ) == PUBLISHED[name][:5]


@pytest.mark.parametrize("name", [*PUBLISHED, *NAMES])
def test_params_prints_the_published_figures_under_every_name(name: str) -> None:
    figures = PUBLISHED[NAMES.get(name, name)]
    said = json.loads(done("params", name, "--json").out)
    assert said["model"] == name
    assert said["total"] == figures[0]
    assert said["total"] - said["embeddings"] == figures[2]
    assert said["total"] + said["untied_extra"] == figures[3]
    assert said["kv_bytes_per_token"] == figures[5]


def test_the_distilled_model_has_half_the_blocks_of_the_small_one() -> None:
    assert total(PRESETS["distilgpt2"].config) == 81_912_576
    assert total(PRESETS["gpt2"].config) - 81_912_576 == 6 * 7_087_872


def test_the_small_models_parts_are_the_published_ones() -> None:
    said = json.loads(done("params", "gpt2", "--json").out)
    assert (said["embeddings"], said["per_block"], said["untied_extra"]) == (
        39_383_808,
        7_087_872,
        38_597_376,
    )


@pytest.mark.parametrize(("name", "size"), NAMES.items())
def test_openais_names_are_the_hubs_sizes(name: str, size: str) -> None:
    assert preset(name) is preset(size) is PRESETS[size]


@pytest.mark.parametrize("name", ["", "GPT2", "124m", "gpt2-xxl", "openai-community/gpt2"])
def test_another_name_is_no_released_size(name: str) -> None:
    assert preset(name) is None


def test_sizes_come_from_the_repositories_that_published_them() -> None:
    assert {name: known.repository for name, known in PRESETS.items()} == {
        "gpt2": "openai-community/gpt2",
        "gpt2-medium": "openai-community/gpt2-medium",
        "gpt2-large": "openai-community/gpt2-large",
        "gpt2-xl": "openai-community/gpt2-xl",
        "distilgpt2": "distilbert/distilgpt2",
    }


def test_a_released_file_is_as_long_as_its_weights_masks_and_a_header() -> None:
    """Released files hold float32 weights and a [1, 1, 1024, 1024] mask a block.

    The small one's data starts at byte 14,291; a dozen rows a block take 1200 to 1400 bytes.
    """
    for name, known in PRESETS.items():
        masks = known.config.n_layer * 1024 * 1024
        header = known.file_bytes - 4 * (total(known.config) + masks)
        if name == "gpt2":
            assert header == 14_291
        assert 0 < header < 1500 * known.config.n_layer, name


def test_the_files_that_ship_are_where_the_program_looks() -> None:
    assert (weights_folder() / "austen" / "model.safetensors").is_file()
    assert (weights_folder() / "gpt2.tiktoken").is_file()
