"""The published figures that ship: whole, in range, and each with a source to follow."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpt2cli.errors import GPT2Error
from gpt2cli.presets import ALIASES, PRESETS
from gpt2cli.tokenizer import load_tokenizer
from gpt2cli.verification.comparison import TOLERANCES
from gpt2cli.verification.published import TOKENIZER, Fact, figures_file, read_facts

SOURCE = re.compile(r"(github\.com|huggingface\.co)/[\w.-]+/[\w./-]+")

FACTS = [(name, fact) for name in (*PRESETS, TOKENIZER) for fact in read_facts(figures_file(name))]


def ids_in(fact: Fact) -> list[int]:
    lists = [fact.data.get(key) or [] for key in ("input_ids", "continuation", "tokens")]
    return [token for ids in (*lists, *fact.data.get("contexts", [])) for token in ids]


def test_every_released_size_has_figures_under_all_its_names() -> None:
    for name in (*PRESETS, *ALIASES):
        assert read_facts(figures_file(name))
    assert len({fact.id for _, fact in FACTS}) == len(FACTS)


def test_every_figure_names_a_public_source() -> None:
    for _, fact in FACTS:
        assert fact.sources
        assert [source for source in fact.sources if not SOURCE.match(source)] == []
        assert fact.confidence in ("two_sources", "one_source", "uncertain")
        assert fact.confidence != "two_sources" or len(fact.sources) > 1
        assert fact.dtype in TOLERANCES


def test_every_figure_is_about_its_size() -> None:
    for name, fact in FACTS:
        config = PRESETS[name].config if name in PRESETS else PRESETS["gpt2"].config
        data = fact.data
        assert all(0 <= token < config.vocab_size for token in ids_in(fact)), fact.id
        places = [*data.get("positions", []), *filter(None, [data.get("position")])]
        assert all(0 <= place < len(data["input_ids"]) for place in places), fact.id
        if fact.kind == "config":
            ours = vars(config) | {"n_inner": config.inner}
            assert {key: ours[key] for key in data["values"]} == data["values"]


def test_every_text_is_split_into_the_ids_beside_it() -> None:
    tokenizer = load_tokenizer(None, None)
    compared = 0
    for _, fact in FACTS:
        text, ids = fact.data.get("text"), fact.data.get("input_ids")
        if text is None or ids is None:
            continue
        special = bool(fact.data.get("special", fact.kind != "tokens"))
        assert tokenizer.encode(text, special=special) == ids, fact.id
        compared += 1
    assert compared > 100


def test_what_only_the_same_is_right_for_has_no_tolerance_and_numbers_have_one() -> None:
    exact = "config tensors parameters file_size file_hash tokens argmax is_greedy greedy".split()
    for _, fact in FACTS:
        assert (fact.bound == "exact") is (fact.kind in exact), fact.id


@pytest.mark.parametrize("facts", [None, [], {}, [{"id": "a", "kind": "beam"}]])
def test_a_file_without_figures_that_are_known_is_refused(tmp_path: Path, facts: Any) -> None:
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"facts": facts}))
    with pytest.raises(GPT2Error, match=r"figures\.json"):
        read_facts(path)
