"""A sound file of every kind that is read, where it may be damaged, and what reads it."""

import io
import json
import pickle
import pickletools
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import checkpoints as hub
import gguf_files
import tf_writer as tf
import torch
import vocabularies
from gguf import GGMLQuantizationType

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.tokenizer import load_tokenizer
from gpt2cli.verification.debug_state import DebugState
from gpt2cli.verification.reference import Reference

FIXTURES = Path(__file__).parents[1] / "fixtures"

Numbers = dict[str, torch.Tensor]

TEXT = "It's a <a> truth, <s>universally  acknowledged: été 猫🤗\n"


@dataclass(frozen=True)
class Seed:
    """`sound` is what is damaged; `write` puts it, sound or not, into a folder; `read` reads that.

    `exact` says that no damage may change a number unnoticed.
    """

    sound: bytes
    write: Callable[[Path, bytes], None]
    read: Callable[[Path], Numbers]
    marks: tuple[int, ...] = ()
    is_json: bool = False
    exact: bool = False


def read_checkpoint(name: str, folder: Path, n_head: int | None = None) -> Numbers:
    """Every tensor of a checkpoint, as its numbers are used."""
    checkpoint = Checkpoint.open(folder / name, n_head)
    checkpoint.check_copies()
    numbers = {}
    for released in checkpoint.matched.tensors:
        numbers[released] = checkpoint.read(released).clone()
        checkpoint.release(released)
    return numbers


def read_tokenizer(name: str, folder: Path) -> Numbers:
    tokenizer = load_tokenizer(folder / name, None)
    tokenizer.decode(tokenizer.encode(TEXT))
    tokenizer.unknown_ids(400)
    return {}


def read_reference(name: str, folder: Path) -> Numbers:
    Reference.read(folder / name)
    return {}


def read_debug_state(name: str, folder: Path) -> Numbers:
    DebugState.read(folder / name).reference(Checkpoint.open(FIXTURES / "llmc/model.bin").config)
    return {}


def beside(source: Path | None, name: str, folder: Path, data: bytes) -> None:
    """The damaged file `name`, and all that lies beside it in `source`."""
    if source is not None:
        for path in source.iterdir():
            if path.name not in (name, "expected.json") and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
    (folder / name).write_bytes(data)


def _file(
    name: str,
    source: Path,
    read: Callable[[str, Path], Numbers] = read_checkpoint,
    *,
    opened: str | None = None,
    marks: Callable[[bytes], tuple[int, ...]] = lambda _: (),
    is_json: bool = False,
    exact: bool = False,
) -> Seed:
    sound = (source / name).read_bytes()
    reader = partial(read, name if opened is None else opened)
    write = partial(beside, source, name)
    return Seed(sound, write, reader, marks(sound), is_json=is_json, exact=exact)


# Where a format's parts begin


def header_marks(data: bytes) -> tuple[int, ...]:
    """Of a safetensors file: its length, each character of syntax, and the data."""
    end = 8 + int.from_bytes(data[:8], "little")
    syntax = [n for n in range(8, end) if data[n : n + 1] in b'{}[],:"']
    return (0, *syntax, end, len(data) - 1)


def zip_marks(data: bytes) -> tuple[int, ...]:
    """Of a zip archive: every record's header, and the opcodes of its pickle."""
    found = [n for magic in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for n in _all(data, magic)]
    start = data.index(b"\x80\x02")
    return (*(n + field for n in found for field in (0, 8, 18, 26, 42)), *_opcodes(data, start))


def legacy_marks(data: bytes) -> tuple[int, ...]:
    """Of the form before zip: the opcodes of five pickles, and the first storages."""
    marks, stream = [], io.BytesIO(data)
    for _ in range(5):
        start = stream.tell()
        marks += [start + place for _, _, place in pickletools.genops(stream)]
    return (*marks[:600], *range(stream.tell(), stream.tell() + 64, 8))


def _opcodes(data: bytes, start: int) -> tuple[int, ...]:
    return tuple(start + place for _, _, place in pickletools.genops(data[start:]))


def _all(data: bytes, part: bytes) -> Iterator[int]:
    place = data.find(part)
    while place >= 0:
        yield place
        place = data.find(part, place + 1)


def words(upto: int) -> Callable[[bytes], tuple[int, ...]]:
    """Every fourth byte up to `upto`, for headers of numbers."""
    return lambda data: tuple(range(0, min(upto, len(data)), 4))


# Files that the fixtures have only in part


def _legacy(folder: Path, _name: str = "") -> Path:
    state = {name: torch.from_numpy(array) for name, array in hub.random_arrays().items()}
    (folder / "config.json").write_text(json.dumps(hub.TINY))
    torch.save(state, folder / "m.bin", _use_new_zipfile_serialization=False)
    return folder


def rezipped(source: Path, name: str, folder: Path, data: bytes) -> None:
    """A zip archive whose pickle is `data` and whose checksums fit."""
    beside(source, name, folder, b"")
    with zipfile.ZipFile(source / name) as sound, zipfile.ZipFile(folder / name, "w") as archive:
        for record in sound.namelist():
            archive.writestr(record, data if record.endswith("data.pkl") else sound.read(record))


def pickled(source: Path, name: str) -> bytes:
    with zipfile.ZipFile(source / name) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))


def rows(source: Path) -> dict[bytes, bytes]:
    """The rows of the index of a fixture, which is small enough to be one block without a rest."""
    from gpt2cli.checkpoint.leveldb_table import read_table

    return read_table(source / "model.ckpt.index")


def write_row(source: Path, key: bytes, folder: Path, data: bytes) -> None:
    """An index with one damaged row and checksums that fit."""
    beside(source, "model.ckpt.index", folder, tf.table(rows(source) | {key: data}))


def write_block(source: Path, folder: Path, data: bytes) -> None:
    """An index whose one block of rows is damaged, and its checksum fits."""
    trailer = b"\0"
    block = data + trailer + tf.crc(data + trailer).to_bytes(4, "little")
    handle = tf.varint(0) + tf.varint(len(data))
    index = tf.block([(b"\xff", handle)], restart_every=1)
    index_block = index + trailer + tf.crc(index + trailer).to_bytes(4, "little")
    footer = tf.varint(0) + tf.varint(0) + tf.varint(len(block)) + tf.varint(len(index))
    beside(
        source, "model.ckpt.index", folder, block + index_block + footer.ljust(40, b"\0") + tf.MAGIC
    )


def _gguf(folder: Path) -> Path:
    peer = vocabularies.trained(3, size=300, specials=("<|endoftext|>",))
    vocab = sorted(peer.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(peer.to_str())["model"]["merges"]
    config = hub.TINY | {"vocab_size": len(vocab), "n_embd": 64, "n_head": 4, "n_layer": 1}
    gguf_files.write(
        folder / "m.gguf",
        config,
        hub.random_arrays(config),
        GGMLQuantizationType.Q8_0,
        tokens=[(text, 3 if text == "<|endoftext|>" else 1) for text, _ in vocab],
        merges=[" ".join(merge) for merge in merges],
    )
    return folder


def _gguf_marks(data: bytes) -> tuple[int, ...]:
    texts = (b"gpt2.", b"tokenizer.", b"general.", b"blk.", b"token_embd", b"output")
    return (
        *range(0, 32, 4),
        *(n + d for text in texts for n in _all(data, text) for d in (-8, 20)),
    )


def _tokenizers(folder: Path) -> Path:
    peer = vocabularies.with_added(vocabularies.trained(9, size=380, specials=("<s>",)))
    vocabularies.save(folder / "json", peer)
    vocabularies.save_pair(folder / "pair", peer)
    added = {"<a>": 390, "<x>": 391}
    (folder / "pair/added_tokens.json").write_text(json.dumps(added))
    tokens = {"392": {"content": "<b>", "special": True, "lstrip": False}}
    settings = {"added_tokens_decoder": tokens, "eos_token": "<a>", "add_prefix_space": False}
    (folder / "pair/tokenizer_config.json").write_text(json.dumps(settings))
    roles = {"bos_token": {"content": "<s>", "rstrip": False}, "additional_special_tokens": ["<x>"]}
    (folder / "pair/special_tokens_map.json").write_text(json.dumps(roles))
    characters = sorted({*TEXT})
    meta = {"stoi": {c: n for n, c in enumerate(characters)}, "itos": dict(enumerate(characters))}
    (folder / "meta").mkdir()
    (folder / "meta/meta.pkl").write_bytes(pickle.dumps(meta))
    return folder


def _references(folder: Path) -> Path:
    numbers = torch.randn(1, 3, 5)
    states = tuple(torch.randn(1, 3, 4) for _ in range(2))
    reference = Reference("a source", torch.tensor([[0, 1, 2]]), numbers, states)
    reference.write(folder / "r.json")
    reference.write(folder / "r.safetensors")
    return folder


@cache
def seeds(made: Path) -> dict[str, Seed]:
    """Every seed by name; `made` is an empty folder for the files that no fixture has."""
    for name in ("legacy", "gguf", "tokenizers", "references"):
        (made / name).mkdir()
    legacy, gguf = _legacy(made / "legacy"), _gguf(made / "gguf")
    kinds, references = _tokenizers(made / "tokenizers"), _references(made / "references")
    released, sharded = FIXTURES / "hub/hub-released", FIXTURES / "hub/hub-sharded"
    binary, nano = FIXTURES / "hub/hub-bin", FIXTURES / "hub/nanogpt"
    openai, llmc = FIXTURES / "openai-tf", FIXTURES / "llmc"
    bundle = partial(_file, source=openai, opened="model.ckpt.index", exact=True)
    table = rows(openai)
    key = next(key for key in table if key.endswith(b"h1/attn/c_attn/w"))
    sound_header = (released / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(sound_header[:8], "little")

    def headed(folder: Path, header: bytes) -> None:
        data = len(header).to_bytes(8, "little") + header + sound_header[end:]
        beside(released, "model.safetensors", folder, data)

    def tf_seed(sound: bytes, write: Callable[[Path, bytes], None]) -> Seed:
        read = partial(read_checkpoint, "model.ckpt.index")
        return Seed(sound, write, read, tuple(range(len(sound))), exact=True)

    def pickle_seed(source: Path, name: str) -> Seed:
        sound = pickled(source, name)
        write = partial(rezipped, source, name)
        return Seed(sound, write, partial(read_checkpoint, name), _opcodes(sound, 0))

    pair, json_kind = partial(_file, source=kinds / "pair"), partial(_file, is_json=True)
    tokenizer = {"read": read_tokenizer, "opened": ""}
    return {
        "safetensors": _file("model.safetensors", released, marks=header_marks),
        "safetensors header": Seed(
            sound_header[8:end],
            headed,
            partial(read_checkpoint, "model.safetensors"),
            is_json=True,
        ),
        "config.json": json_kind("config.json", released, opened=""),
        "index.json": json_kind("model.safetensors.index.json", sharded, opened=""),
        "zip": _file("pytorch_model.bin", binary, marks=zip_marks),
        "zip pickle": pickle_seed(binary, "pytorch_model.bin"),
        "legacy pickle": _file("m.bin", legacy, marks=legacy_marks),
        "nanogpt": pickle_seed(nano, "ckpt.pt"),
        "llmc": _file("model.bin", llmc, marks=words(32)),
        "gguf": _file("m.gguf", gguf, marks=_gguf_marks),
        "gguf tokenizer": _file("m.gguf", gguf, read_tokenizer, marks=_gguf_marks),
        "tf index": bundle("model.ckpt.index", marks=words(2000)),
        "tf block": tf_seed(tf.block(sorted(table.items())), partial(write_block, openai)),
        "tf header": tf_seed(table[b""], partial(write_row, openai, b"")),
        "tf row": tf_seed(table[key], partial(write_row, openai, key)),
        "tf data": bundle("model.ckpt.data-00000-of-00001"),
        "tf checkpoint file": _file("checkpoint", openai, opened="", exact=True),
        "hparams.json": bundle("hparams.json", is_json=True),
        "tokenizer.json": json_kind("tokenizer.json", kinds / "json", **tokenizer),
        "vocab.json": pair("vocab.json", is_json=True, **tokenizer),
        "merges.txt": pair("merges.txt", **tokenizer),
        "added_tokens.json": pair("added_tokens.json", is_json=True, **tokenizer),
        "tokenizer_config.json": pair("tokenizer_config.json", is_json=True, **tokenizer),
        "special_tokens_map.json": pair("special_tokens_map.json", is_json=True, **tokenizer),
        "meta.pkl": _file("meta.pkl", kinds / "meta", read_tokenizer, opened=""),
        "reference.json": json_kind("r.json", references, read_reference),
        "reference.safetensors": _file(
            "r.safetensors", references, read_reference, marks=header_marks
        ),
        "debug state": _file("debug_state.bin", llmc, read_debug_state, marks=words(64)),
    }
