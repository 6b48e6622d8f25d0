"""TextStream: whole characters only, stops never shown, nothing lost."""

import random

import pytest
import vocabularies

from gpt2cli.tokenizer import TextStream, Tokenizer, load_tokenizer


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return load_tokenizer(None, 50257)


def run(stream: TextStream, ids: list[int]) -> list[bytes]:
    """What each id brings out, and at the end what was held."""
    chunks = []
    for token_id in ids:
        chunks.append(stream.push(token_id))
        if stream.stopped:
            break
    return [*chunks, stream.finish()]


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """A token for every byte."""
    return [i for byte in text.encode() for i in tokenizer.encode_bytes(bytes([byte]))]


def test_a_character_of_three_tokens_comes_out_when_it_is_whole(gpt2):
    stream = TextStream(gpt2)
    assert run(stream, [12520, 97, 245]) == [b" ", b"", "🤗".encode(), b""]
    assert stream.text == " 🤗"


def test_an_unfinished_character_at_the_end_is_its_bytes_and_a_replacement_in_the_text(gpt2):
    stream = TextStream(gpt2)
    assert run(stream, [12520, 97]) == [b" ", b"", b"\xf0\x9f\xa4"]
    assert stream.text == " \ufffd"


def test_bytes_that_can_never_be_a_character_come_out_as_they_are(gpt2):
    ids = gpt2.encode_bytes(b"a\xff\xf0\x9fb")
    stream = TextStream(gpt2)
    assert b"".join(run(stream, ids)) == b"a\xff\xf0\x9fb"
    assert stream.text == "a\ufffd\ufffdb"


def test_streamed_text_is_the_whole_text_and_never_a_replacement(gpt2):
    for text in vocabularies.texts(5):
        stream = TextStream(gpt2)
        for token_id in gpt2.encode(text):
            stream.push(token_id).decode()  # whole characters
            assert text.startswith(stream.text)
        assert stream.finish() == b""
        assert stream.text == text


@pytest.mark.parametrize(
    ("stops", "text", "before"),
    [
        (["AB"], "xAAB", "xA"),
        (["AAB"], "AAAB!", "A"),
        (["ABABC"], "ABABABC", "AB"),
        (["b c"], "ab cd", "a"),
        (["🤗"], "hi 🤗 there", "hi "),
        (["nd", "end"], "the end", "the "),
        (["ended", "the e"], "in the ended", "in "),
        (["\n\n"], "a\nb\n\nc", "a\nb"),
        (["a"], "a", ""),
    ],
)
def test_a_stop_is_found_wherever_it_begins_and_never_shown(gpt2, stops, text, before):
    for ids in (gpt2.encode(text), letters(gpt2, text)):
        stream = TextStream(gpt2, stops)
        assert b"".join(run(stream, ids)) == before.encode()
        assert stream.stopped
        assert stream.text == before


def test_only_what_could_begin_a_stop_is_held_and_it_comes_out_at_the_end(gpt2):
    stream = TextStream(gpt2, ["STOP"])
    assert run(stream, letters(gpt2, "a STO")) == [b"a", b" ", b"", b"", b"", b"STO"]
    assert not stream.stopped
    stream = TextStream(gpt2, ["STOP"])
    assert run(stream, letters(gpt2, "STSTX"))[-2:] == [b"STX", b""]


def test_random_streams_end_where_a_plain_search_ends(gpt2):
    chance = random.Random(0)
    stopped = 0
    for _ in range(2000):
        text = "".join(chance.choices("ab é", k=chance.randrange(1, 14)))
        stops = [
            "".join(chance.choices("ab é", k=chance.randrange(1, 5)))
            for _ in range(chance.randrange(3))
        ]
        data = text.encode()
        ends = [
            (data.find(stop.encode()) + len(stop.encode()), -len(stop.encode()))
            for stop in stops
            if stop.encode() in data
        ]
        expected = data[: sum(min(ends))] if ends else data
        stream = TextStream(gpt2, stops)
        shown = run(stream, chance.choice((gpt2.encode(text), letters(gpt2, text))))
        assert b"".join(shown) == expected, (text, stops)
        assert stream.stopped == bool(ends)
        assert stream.text == expected.decode()
        stopped += stream.stopped
    assert 300 < stopped < 1700


def test_an_unfinished_character_before_a_stop_comes_out(gpt2):
    stream = TextStream(gpt2, ["END"])
    assert b"".join(run(stream, gpt2.encode_bytes(b"x\xf0\x9fEND"))) == b"x\xf0\x9f"
    assert stream.text == "x\ufffd"


def test_special_tokens_contribute_nothing_unless_asked_for(gpt2):
    ids = [64, 50256, 65]
    assert b"".join(run(TextStream(gpt2), ids)) == b"ab"
    assert b"".join(run(TextStream(gpt2, special=True), ids)) == b"a<|endoftext|>b"
    assert b"".join(run(TextStream(gpt2, ["ab"]), ids)) == b""


def test_after_a_stop_nothing_more_comes_out(gpt2):
    stream = TextStream(gpt2, ["a"])
    assert [stream.push(i) for i in (64, 65, 65)] == [b"", b"", b""]
    assert stream.finish() == b""


def test_what_no_caller_may_ask_for_is_a_value_error(gpt2):
    with pytest.raises(ValueError, match="token id 50257 stands for nothing"):
        TextStream(gpt2).push(50257)
    with pytest.raises(ValueError, match="empty stop"):
        TextStream(gpt2, [""])
