"""What lies in a checkpoint's folder: which files are taken, and what is refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import vocabularies
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from gpt2cli.errors import GPT2Error
from gpt2cli.tokenizer import has_tokenizer, load_tokenizer, vocabulary


@pytest.fixture
def peer() -> Tokenizer:
    return vocabularies.trained(1, size=300)


def pair_with(folder: Path, peer: Tokenizer, **files: Any) -> Path:
    """vocab.json and merges.txt, and a JSON file for each keyword."""
    vocabularies.save_pair(folder, peer)
    for name, data in files.items():
        vocabularies.write_json(folder / f"{name}.json", data)
    return folder


def edited(folder: Path, peer: Tokenizer, path: str, value: Any) -> Path:
    """tokenizer.json with the value at a dotted path replaced."""
    data = json.loads(peer.to_str())
    place = data
    *parents, last = path.split(".")
    for key in parents:
        place = place[key]
    place[last] = value
    vocabularies.write_json(folder / "tokenizer.json", data)
    return folder


def test_no_folder_is_gpt2s_own_vocabulary():
    ours = load_tokenizer(None, 50257)
    assert (ours.n_vocab, ours.end_of_text) == (50257, 50256)


def test_a_folder_without_files_gets_it_when_the_size_fits_or_is_padded(tmp_path):
    for size in (50257, 50304, 51200):
        assert load_tokenizer(tmp_path, size).n_vocab == 50257
    assert not has_tokenizer(tmp_path)


@pytest.mark.parametrize("size", [50256, 51201, 65, None])
def test_a_folder_without_files_and_another_size_is_refused_with_what_was_looked_for(
    tmp_path, size
):
    with pytest.raises(GPT2Error, match=r"tokenizer\.json, vocab\.json with merges\.txt, encoder"):
        load_tokenizer(tmp_path, size)


def test_damaged_ranks_are_refused(monkeypatch, tmp_path):
    data = (vocabulary.weights_folder() / "gpt2.tiktoken").read_bytes()
    (tmp_path / "gpt2.tiktoken").write_bytes(data.replace(b"IQ== 0", b"IQ== 1"))
    monkeypatch.setattr(vocabulary, "weights_folder", lambda: tmp_path)
    with pytest.raises(GPT2Error, match="is damaged: its SHA-256 is wrong"):
        load_tokenizer(None, 50257)


def test_shipped_ranks_are_readable_by_everyone():
    assert (vocabulary.weights_folder() / "gpt2.tiktoken").stat().st_mode & 0o777 == 0o644


def test_the_embedded_checkpoint_has_its_own_vocabulary_with_an_end_of_text():
    folder = vocabulary.weights_folder() / "austen"
    ours = load_tokenizer(folder, 4096)
    assert has_tokenizer(folder)
    assert (ours.n_vocab, ours.end_of_text) == (4096, 4095)
    assert ours.encode("<|endoftext|>", special=True) == [4095]
    assert ours.is_special(4095)


def test_openais_file_names_are_read_too(tmp_path, peer):
    vocabularies.save_pair(tmp_path, peer)
    shutil.move(tmp_path / "vocab.json", tmp_path / "encoder.json")
    shutil.move(tmp_path / "merges.txt", tmp_path / "vocab.bpe")
    assert has_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path, None).encode("a truth") == peer.encode("a truth").ids


def test_tokenizer_json_goes_before_the_pair_of_files(tmp_path, peer):
    vocabularies.save_pair(tmp_path, vocabularies.trained(2, "russian", size=290))
    vocabularies.save(tmp_path, peer)
    assert load_tokenizer(tmp_path, None).n_vocab == peer.get_vocab_size()


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_half_a_pair_is_refused_and_never_replaced_by_gpt2s_own(tmp_path, peer, name):
    vocabularies.save_pair(tmp_path, peer)
    (tmp_path / name).unlink()
    with pytest.raises(GPT2Error, match=f"lies without its {name}"):
        load_tokenizer(tmp_path, 50257)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vocab.txt", "BERT"),
        ("spiece.model", "SentencePiece"),
        ("tokenizer.model", "SentencePiece"),
    ],
)
def test_files_of_another_tokenizer_are_refused_by_name(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(GPT2Error, match=f"{name} is a vocabulary of another kind, {kind}"):
        load_tokenizer(tmp_path, 50257)


@pytest.mark.parametrize("file", ["config", "tokenizer_config"])
def test_a_tokenizer_class_of_another_kind_is_refused_by_name(tmp_path, peer, file):
    pair_with(tmp_path, peer, **{file: {"tokenizer_class": "BertTokenizerFast"}})
    with pytest.raises(GPT2Error, match=f"{file}.json names a BertTokenizerFast"):
        load_tokenizer(tmp_path, None)


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "GPT2TokenizerFast", "PreTrainedTokenizerFast"])
def test_gpt2s_own_classes_are_read(tmp_path, peer, name):
    pair_with(tmp_path, peer, tokenizer_config={"tokenizer_class": name})
    assert load_tokenizer(tmp_path, None).encode("a truth") == peer.encode("a truth").ids


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model", None, "has no model, so it is no tokenizer"),
        ("model.type", "WordPiece", "is a WordPiece tokenizer"),
        ("model.type", "Unigram", "is a Unigram tokenizer"),
        ("model.dropout", 0.1, "dropout 0.1 is not built"),
        ("model.continuing_subword_prefix", "##", "continuing_subword_prefix '##'"),
        ("model.end_of_word_suffix", "</w>", "end_of_word_suffix '</w>'"),
        ("model.byte_fallback", True, "byte_fallback True"),
        ("model.merges", None, "holds no vocab and merges"),
        ("model.vocab", {"a": "b"}, "the id of token 'a' is 'b'"),
        ("model.vocab", {"a": 1, "b": 1}, "id 1 is both 'a' and 'b'"),
        ("model.vocab", {"a": -1}, "the id of token 'a' is -1"),
        ("normalizer", {"type": "NFC"}, "normalizer NFC"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}, "Lowercase"),
        ("pre_tokenizer", None, "a pre_tokenizer of 0 parts"),
        ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer Whitespace"),
        ("pre_tokenizer.use_regex", False, "use_regex false"),
        ("decoder", {"type": "WordPiece"}, "decoder WordPiece"),
        ("added_tokens", [{"id": 1}], "is no added token"),
        ("added_tokens", [{"id": 1, "content": "<m>", "lstrip": True}], "'<m>' has lstrip"),
        ("added_tokens", [{"id": 1, "content": "<m>", "rstrip": True}], "'<m>' has rstrip"),
        ("added_tokens", [{"id": 1, "content": "<m>", "single_word": True}], "has single_word"),
        ("added_tokens", [{"id": 1, "content": "<m>"}], "id 1 is both token"),
        ("added_tokens", [{"id": 900, "content": "a"}], "'a' has two ids"),
    ],
)
def test_what_would_change_the_ids_is_refused_by_name(tmp_path, peer, path, value, message):
    edited(tmp_path, peer, path, value)
    with pytest.raises(GPT2Error, match=message):
        load_tokenizer(tmp_path, None)


def test_digits_before_the_byte_level_are_refused(tmp_path, peer):
    peer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    vocabularies.save(tmp_path, peer)
    with pytest.raises(GPT2Error, match="pre_tokenizer Digits"):
        load_tokenizer(tmp_path, None)


def test_a_frame_of_tokens_around_every_text_is_refused(tmp_path):
    peer = vocabularies.trained(1, specials=("<s>",))
    peer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    vocabularies.save(tmp_path, peer)
    with pytest.raises(GPT2Error, match="post_processor TemplateProcessing, which adds tokens"):
        load_tokenizer(tmp_path, None)
    pair_with(tmp_path / "pair", peer, tokenizer_config={"add_bos_token": True})
    with pytest.raises(GPT2Error, match="add_bos_token"):
        load_tokenizer(tmp_path / "pair", None)


def test_parts_that_change_nothing_are_read(tmp_path, peer):
    peer.normalizer = normalizers.Sequence([])
    peer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing("$A")]
    )
    peer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    vocabularies.save(tmp_path, peer)
    assert load_tokenizer(tmp_path, None).encode("It's 1 é") == peer.encode("It's 1 é").ids


def test_ignore_merges_is_read_where_it_has_no_effect_and_refused_where_it_has(tmp_path, peer):
    edited(tmp_path, peer, "model.ignore_merges", True)
    other = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path, None).encode("the truth") == other.encode("the truth").ids
    data = json.loads((tmp_path / "tokenizer.json").read_bytes())
    data["model"]["vocab"]["zqz"] = len(data["model"]["vocab"])
    vocabularies.write_json(tmp_path / "tokenizer.json", data)
    assert len(Tokenizer.from_str(json.dumps(data)).encode("zqz").ids) == 1
    with pytest.raises(GPT2Error, match="ignore_merges with 'zqz'"):
        load_tokenizer(tmp_path, None)


def test_the_config_decides_on_the_prefix_space_where_it_says_something(tmp_path):
    peer = vocabularies.trained(1, prefix_space=True)
    vocabularies.save(tmp_path, peer)
    assert load_tokenizer(tmp_path, None).encode("truth") == peer.encode("truth").ids
    vocabularies.write_json(tmp_path / "tokenizer_config.json", {"add_prefix_space": False})
    ours = load_tokenizer(tmp_path, None)
    assert ours.decode(ours.encode("truth")) == "truth"


def test_added_tokens_of_every_file_are_found_and_special_ones_need_to_be_asked_for(tmp_path, peer):
    size = peer.get_vocab_size()
    pair_with(
        tmp_path,
        peer,
        added_tokens={"<user>": size, "<pad>": size + 1},
        special_tokens_map={"pad_token": {"content": "<pad>", "lstrip": False}},
        tokenizer_config={
            "added_tokens_decoder": {str(size + 2): {"content": "<bot>", "special": True}},
            "additional_special_tokens": ["<bot>", "<nowhere>"],
        },
    )
    ours = load_tokenizer(tmp_path, size + 3)
    assert ours.encode("<user><pad><bot>", special=True) == [size, size + 1, size + 2]
    plain = ours.encode("<user><pad><bot>")
    assert plain[0] == size
    assert not {size + 1, size + 2} & set(plain)
    assert [ours.is_special(size + i) for i in range(3)] == [False, True, True]
    assert ours.decode([size, size + 2]) == "<user><bot>"


def test_the_longest_added_token_wins(tmp_path, peer):
    for text in ("<a", "<a><b>", "<a>"):
        peer.add_tokens([AddedToken(text, normalized=False)])
    ours = load_tokenizer(vocabularies.save(tmp_path, peer), None)
    for text in ("<a><b><a>", "<a><<a", "x<a><b"):
        assert ours.encode(text) == peer.encode(text).ids


def test_tokens_past_the_models_table_are_refused_by_name(tmp_path, peer):
    size = peer.get_vocab_size()
    pair_with(tmp_path, peer, added_tokens={"<user>": size})
    assert load_tokenizer(tmp_path, size + 1).n_vocab == size + 1
    with pytest.raises(GPT2Error, match=f"token '<user>' has id {size}, and the model has ids"):
        load_tokenizer(tmp_path, size)


def test_a_token_that_no_merge_makes_is_decoded_and_never_encoded(tmp_path, peer):
    pair_with(tmp_path, peer)
    strings = json.loads((tmp_path / "vocab.json").read_bytes())
    size = len(strings)
    vocabularies.write_json(tmp_path / "vocab.json", strings | {"Ġzqz": size, "<日>": size + 1})
    ours = load_tokenizer(tmp_path, None)
    assert ours.decode([size, size + 1]) == " zqz<日>"
    assert ours.encode("a zqz") == peer.encode("a zqz").ids


def test_an_added_text_on_the_id_of_another_byte_is_refused(tmp_path, peer):
    # as a token of the file, é spells the byte 0xE9
    peer.add_special_tokens(["é"])
    vocabularies.save(tmp_path, peer)
    with pytest.raises(GPT2Error, match="is both token 'é' and added token 'é'"):
        load_tokenizer(tmp_path, None)
