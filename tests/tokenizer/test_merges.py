"""The check that tiktoken follows a merges list, against running tiktoken's loop, and the files."""

import hashlib
import itertools
import json
import random
from pathlib import Path

import pytest
import tokenizers
import vocabularies
from tokenizers import decoders, models, pre_tokenizers

from gpt2cli.errors import GPT2Error
from gpt2cli.tokenizer import load_tokenizer, merges, vocabulary

FACTS = json.loads((Path(__file__).parents[1] / "fixtures/tokenizer_facts.json").read_bytes())


def last_parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """tiktoken's loop on a token's bytes with the ranks before its own: what is left at the end."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while True:
        due = [
            (ranks[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(parts))
            if ranks.get(a + b, ranks[token]) < ranks[token]
        ]
        if not due:
            return parts
        _, i = min(due)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def random_merges(chance: random.Random) -> list[merges.Pair]:
    """A merges list over three letters whose parts come before their results."""
    tokens, found = [b"a", b"b", b"c"], []
    for _ in range(chance.randrange(2, 8)):
        left, right = chance.choice(tokens), chance.choice(tokens)
        if left + right not in tokens:
            tokens.append(left + right)
            found.append((left, right))
    return found


def ranks_of(found: list[merges.Pair]) -> dict[bytes, int]:
    ranks = {bytes([byte]): byte for byte in range(256)}
    return ranks | {left + right: 256 + i for i, (left, right) in enumerate(found)}


def folder_of(folder: Path, found: list[merges.Pair]) -> tokenizers.Tokenizer:
    """The peer for a merges list, and its files in `folder`."""
    tokens = [*vocabularies.ALPHABET, *(merges.spelled(a + b) for a, b in found)]
    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[(merges.spelled(a), merges.spelled(b)) for a, b in found],
    )
    peer = tokenizers.Tokenizer(model)
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    vocabularies.save(folder, peer)
    return peer


def test_the_check_agrees_with_running_tiktokens_loop_on_every_token():
    chance = random.Random(0)
    verdicts = []
    for _ in range(3000):
        found = random_merges(chance)
        ranks = ranks_of(found)
        wrong = [i for i, (a, b) in enumerate(found) if last_parts(a + b, ranks) != [a, b]]
        assert merges.first_unreached(found, ranks) == (wrong[0] if wrong else None), found
        verdicts.append(bool(wrong))
    assert 500 < sum(verdicts) < 2500  # both answers were tried


def test_merges_that_pass_give_the_peers_ids_on_every_short_text(tmp_path):
    chance = random.Random(1)
    texts = ["".join(t) for n in range(1, 8) for t in itertools.product("abc", repeat=n)]
    tried = 0
    while tried < 12:
        found = random_merges(chance)
        if merges.first_unreached(found, ranks_of(found)) is None and len(found) > 3:
            peer = folder_of(tmp_path / str(tried), found)
            ours = load_tokenizer(tmp_path / str(tried), None)
            ids = [encoding.ids for encoding in peer.encode_batch(texts)]
            assert [ours.encode(text) for text in texts] == ids
            tried += 1


def test_merges_that_tiktoken_would_not_follow_are_refused_by_name(tmp_path):
    found = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    peer = folder_of(tmp_path, found)
    assert [peer.id_to_token(i) for i in peer.encode("abc").ids] == ["a", "bc"]
    with pytest.raises(GPT2Error, match="merge ab c cannot be followed"):
        load_tokenizer(tmp_path, None)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ([(b"a", b"b"), (b"a", b"b")], "a b"),
        ([(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")], "a bc"),
        ([(b"ab", b"c"), (b"a", b"b")], "ab c"),
    ],
    ids=["the same pair twice", "one token by two pairs", "a part made later"],
)
def test_lists_that_no_trainer_writes_are_refused(tmp_path, found, named):
    folder_of(tmp_path, found)
    data = json.loads((tmp_path / "tokenizer.json").read_bytes())
    data["model"]["merges"] = [f"{a.decode()} {b.decode()}" for a, b in found]
    vocabularies.write_json(tmp_path / "tokenizer.json", data)
    with pytest.raises(GPT2Error, match=f"merge {named} cannot be followed"):
        load_tokenizer(tmp_path, None)


@pytest.fixture(scope="module")
def released() -> list[merges.Pair]:
    """GPT-2's merges, from its ranks."""
    ranks = dict(vocabulary.bundled().ranks)
    pairs = []
    for token in list(ranks)[256:]:
        left, right = last_parts(token, ranks)
        pairs.append((left, right))
    return pairs


def test_the_bundled_ranks_give_back_the_published_files_byte_for_byte(released, tmp_path):
    ranks = vocabulary.bundled().ranks
    lines = [f"{merges.spelled(a)} {merges.spelled(b)}\n" for a, b in released]
    bpe = ("#version: 0.2\n" + "".join(lines)).encode()
    strings = {merges.spelled(token): rank for token, rank in ranks.items()}
    encoder = json.dumps(strings | {"<|endoftext|>": 50256}).encode()
    ranks_file = vocabulary.weights_folder() / "gpt2.tiktoken"
    files = {"hash.vocab_bpe": bpe, "hash.encoder_json": encoder}
    files["hash.r50k"] = ranks_file.read_bytes()
    for fact in FACTS["hashes"]:
        data = files[fact["id"]]
        assert hashlib.sha256(data).hexdigest() == fact["sha256"]
        assert len(data) == fact.get("bytes", len(data))
    (tmp_path / "vocab.bpe").write_bytes(bpe)
    (tmp_path / "encoder.json").write_bytes(encoder)
    read = vocabulary.read(tmp_path)
    bundled = vocabulary.bundled()
    assert read is not None
    assert (read.tokens, read.ranks, read.ids) == (bundled.tokens, bundled.ranks, bundled.ids)
    assert read.added == bundled.added


def test_the_released_merges_are_known_by_their_hash_and_would_pass_the_check(released):
    assert merges.are_released(released)
    assert not merges.are_released(released[:-1])
    assert merges.first_unreached(released, vocabulary.bundled().ranks) is None


@pytest.mark.parametrize("name", vocabularies.TRAINED)
def test_what_the_trainer_makes_passes(tmp_path, name):
    vocabularies.save(tmp_path, vocabularies.TRAINED[name]())
    assert vocabulary.read(tmp_path) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#version: 0.2\na b\nab\n", "merges.txt, line 3"),
        ("a b\n\nb c\n", "merges.txt, line 2"),
        ("a b c\n", "merges.txt, line 1"),
        ("a 日\n", "merges.txt, line 1"),
        ("#version: 0.2\nz q\n", "merge z q cannot be followed: zq is not a token"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_merges_file_that_is_no_such_file_is_refused_by_line(tmp_path, text, message):
    vocabularies.save_pair(tmp_path, vocabularies.trained(1, size=270))
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "merges.txt").write_bytes(data)
    with pytest.raises(GPT2Error, match=message):
        load_tokenizer(tmp_path, None)


def test_line_ends_of_another_system_and_a_missing_header_change_nothing(tmp_path):
    peer = vocabularies.trained(1)
    vocabularies.save_pair(tmp_path, peer)
    before = load_tokenizer(tmp_path, None).encode("a truth")
    body = (tmp_path / "merges.txt").read_text().split("\n", 1)[1]
    (tmp_path / "merges.txt").write_bytes(body.replace("\n", "\r\n").encode())
    assert load_tokenizer(tmp_path, None).encode("a truth") == before
