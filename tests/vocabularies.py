"""Small vocabularies made by the tokenizers package's own trainer, and texts to try them on."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
SPECIALS = ["<s>", "<pad>", "</s>", "<|endoftext|>"]

SENTENCES = {
    "english": "It's a truth, universally acknowledged: she'll say 1813 things we've not heard.\n",
    "russian": "Все счастливые семьи похожи друг на друга, 1877.\n",
    "japanese": "吾輩は猫である。名前はまだ無い。１２３\n",
    "code": "def f(x):\n    if x  ==  10:\n\t\treturn [x, 'y']\n\n\n",
    "repeats": "aaaa aaaaaaaa abababab aabaab bbbbbbb ababa aaa  aa   a\n",
    "emoji": "I 🤗 👩‍👩‍👧‍👦 naïve cafés…  ½ ² Ⅷ\u3000\u00a0!?\r\n",
}


def words(seed: int, script: str) -> Iterator[str]:
    """Lines of shuffled pieces of a sentence, so that merges meet in many orders."""
    chance = random.Random(seed)
    pieces = [*SENTENCES[script].split(" "), *SENTENCES["english"].split(" ")[:5]]
    for _ in range(300):
        yield " ".join(
            piece[: chance.randrange(1, len(piece) + 2)]
            for piece in chance.choices(pieces, k=chance.randrange(1, 12))
        )


def trained(
    seed: int,
    script: str = "english",
    size: int = 400,
    specials: tuple[str, ...] = (),
    alphabet: list[str] = ALPHABET,
    prefix_space: bool = False,
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer as the package trains it; special tokens get the first ids."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(specials),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(words(seed, script), trainer)
    return tokenizer


def with_added(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer with added tokens of every kind, some of them beginnings of others."""
    tokenizer.add_tokens(["truth", "<a", AddedToken("<a>>", normalized=False), "she'll say", "  "])
    tokenizer.add_special_tokens(["<a>", AddedToken("<x>", normalized=True), "été"])
    return tokenizer


def permuted(tokenizer: tokenizers.Tokenizer, seed: int) -> tokenizers.Tokenizer:
    """The tokenizer with its ids shuffled, and holes between them."""
    data = json.loads(tokenizer.to_str())
    texts = list(data["model"]["vocab"])
    ids = random.Random(seed).sample(range(len(texts) + 50), len(texts))
    data["model"]["vocab"] = dict(zip(texts, ids, strict=True))
    return tokenizers.Tokenizer.from_str(json.dumps(data))


TRAINED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "plain": lambda: trained(1),
    "special_tokens_first": lambda: trained(2, specials=tuple(SPECIALS)),
    "prefix_space": lambda: trained(3, prefix_space=True),
    "russian": lambda: trained(4, "russian", size=700),
    "japanese": lambda: trained(5, "japanese", size=600, specials=("<|endoftext|>",)),
    "code": lambda: trained(6, "code", size=500),
    "repeats": lambda: trained(7, "repeats", size=320),
    "emoji": lambda: trained(8, "emoji", size=450, specials=tuple(SPECIALS)),
    "added_tokens": lambda: with_added(trained(9, size=380, specials=("<s>",))),
    "permuted_ids": lambda: permuted(trained(10, size=500), 10),
    "large": lambda: trained(11, "russian", size=2000, specials=("<pad>",)),
}


def save(folder: Path, tokenizer: tokenizers.Tokenizer) -> Path:
    """`folder`, with the tokenizer's tokenizer.json in it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def save_pair(folder: Path, tokenizer: tokenizers.Tokenizer) -> Path:
    """`folder`, with the tokenizer's vocab.json and merges.txt in it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(folder))
    return folder


def write_json(path: Path, data: Any) -> None:
    """A JSON file as transformers writes its own."""
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def texts(seed: int, count: int = 40) -> Iterator[str]:
    """Texts of many kinds: sentences cut up and mixed, added tokens, random bytes as text."""
    chance = random.Random(seed)
    pieces = [
        *SENTENCES.values(),
        *SPECIALS,
        "<a>",
        "<a>>",
        "<a",
        "<x>",
        "été",
        "  ",
        "\n\n",
        " \t ",
    ]
    yield ""
    for _ in range(count):
        parts = []
        for _ in range(chance.randrange(1, 8)):
            piece = chance.choice(pieces)
            start = chance.randrange(len(piece))
            parts.append(piece[start : start + chance.randrange(1, 40)])
        yield "".join(parts)
        noise = chance.randbytes(chance.randrange(1, 60))
        yield noise.decode("latin-1")
        yield noise.decode("utf-8", "ignore")
        yield "".join(chr(chance.choice((chance.randrange(0x3000), 0x1F917))) for _ in range(20))
