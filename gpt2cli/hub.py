"""Model → a local folder or file: the Hub client's cache first, the network only for what it lacks.

A run over the network fetches the files of one commit, checks each, and only then has the client
note that the branch or tag stands for this commit. So a run that was cut off never passes for a
complete one, and the next run fetches the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .checkpoint import Checkpoint, safetensors, torch_pickle
from .checkpoint.index import read_index
from .config import parse_config, read_json
from .errors import GPT2Error, listing
from .naming import DEFAULT, Model, parse_model
from .repository import Commit, hub_client

__all__ = ["DEFAULT", "Model", "fetch", "open_remote", "parse_model", "tokenizer_place"]

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"

# What holds weights, the one to take first: a file, or the index of shards.
WEIGHTS = (*safetensors.WEIGHTS, *torch_pickle.WEIGHTS)
INDEX = (safetensors.INDEX_SUFFIX, torch_pickle.INDEX_SUFFIX)

# What holds weights that are not read here.
UNREAD = {
    "tf_model.h5": "a Keras file",
    "flax_model.msgpack": "a Flax file",
}

# The first alone, or the other two, are a tokenizer; the rest say more about it.
TOKENIZER = ("tokenizer.json", "vocab.json", "merges.txt")
ABOUT_TOKENIZER = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")

HEAD_BYTES = 2**17  # asked for at once; gpt2-xl's header takes less


@dataclass(frozen=True)
class Wanted:
    """What is needed of a repository, besides its config."""

    weights: bool
    tokenizer: bool


def fetch(model: Model, *, tokenizer: bool = True, progress: bool = True) -> Path:
    """The local folder or file of a model; what is missing is downloaded and checked first.

    `tokenizer` asks for the tokenizer's files too; for a released size they are built in.
    `progress` shows a bar for the weights on stderr if that is a terminal. No request is made
    when the client's cache holds everything. Raises GPT2Error for a repository that is not there
    or not open to the user, that holds no GPT-2 or no weights that are read here, for a file that
    arrives damaged, and when network or disk fail.
    """
    if model.repository is None:
        return _local(model)
    wanted = Wanted(weights=True, tokenizer=tokenizer and model.preset is None)
    return _fetch(model.repository, model.revision, wanted, progress)


def tokenizer_place(model: Model) -> Path | None:
    """Where a model's tokenizer is: a folder, or a file that it is in or beside; None if built in.

    Of a repository only these files and the config are fetched. Raises GPT2Error as `fetch` does.
    """
    if model.repository is None:
        return _local(model)
    if model.preset is not None:
        return None
    wanted = Wanted(weights=False, tokenizer=True)
    return _fetch(model.repository, model.revision, wanted, progress=False)


def open_remote(model: Model) -> Checkpoint:
    """The checkpoint of a model, to be counted: where its weights are not here, no weight comes.

    Of safetensors files that are not in the cache only the headers are fetched; pickles have no
    header, and are fetched whole. Raises GPT2Error as `fetch` and `Checkpoint.open` do.
    """
    if model.repository is None:
        return Checkpoint.open(_local(model))
    with hub_client(model.repository, model.revision) as api:
        cached = cached_folder(
            model.repository, model.revision, Wanted(weights=True, tokenizer=False)
        )
        if cached is not None:
            return Checkpoint.open(cached)
        commit = Commit.resolve(api, model.repository, model.revision)
        config = _config(commit)
        names = [name for name in _weights(commit) if not name.endswith(INDEX)]
        if not names[0].endswith(".safetensors"):
            return Checkpoint.open(fetch(model, tokenizer=False))
        headers = {name: (_head(commit, name), commit.sizes[name]) for name in names}
    return Checkpoint.from_headers(config.parent, headers)


def _local(model: Model) -> Path:
    if model.path is None:
        raise ValueError(f"{model} is neither a path nor a repository")
    return model.path


def _fetch(repository: str, revision: str | None, wanted: Wanted, progress: bool) -> Path:
    """The client's folder with everything wanted in it, by way of the network if need be."""
    with hub_client(repository, revision) as api:
        if (cached := cached_folder(repository, revision, wanted)) is not None:
            return cached
        commit = Commit.resolve(api, repository, revision)
        for name, large in needed(commit, wanted).items():
            folder = commit.get(name, bar=progress and large).parent
        settle(commit, revision, wanted, folder)
    return folder


def needed(commit: Commit, wanted: Wanted) -> dict[str, bool]:
    """The names of the files wanted, the small ones first, and whether each is of weights.

    The config, and the index of shards if there is one, are fetched to know it. Raises GPT2Error
    for a repository that holds no GPT-2 or no weights that are read here.
    """
    _config(commit)
    weights = _weights(commit) if wanted.weights else []
    small = [GENERATION_CONFIG] if wanted.weights else []
    small += [*ABOUT_TOKENIZER, *TOKENIZER] if wanted.tokenizer else []
    here = [name for name in small if name in commit.sizes]
    return dict.fromkeys([CONFIG, *here], False) | dict.fromkeys(weights, True)


def settle(commit: Commit, revision: str | None, wanted: Wanted, folder: Path) -> None:
    """Have the cache note that `revision` is `commit`: everything wanted is in `folder`."""
    if wanted.tokenizer and not _has_tokenizer(commit.repository, revision, folder):
        commit.note_absent(name for name in TOKENIZER if name not in commit.sizes)
    commit.note_revision(revision, CONFIG)


def cached_folder(repository: str, revision: str | None, wanted: Wanted) -> Path | None:
    """The client's folder for this revision if it holds everything wanted; asks no network."""
    config, _ = _look_up(repository, revision, CONFIG)
    if config is None:
        return None
    if wanted.weights and not has_weights(config.parent):
        return None
    if wanted.tokenizer and not _has_tokenizer(repository, revision, config.parent):
        return None
    return config.parent


def has_weights(folder: Path) -> bool:
    """Whether the file that holds the weights is there, or every shard of the index."""
    names = weight_files(folder)
    return bool(names) and all((folder / name).exists() for name in names)


def weight_files(folder: Path) -> list[str]:
    """The file in `folder` that holds the weights, or the index and each of its shards; or none."""
    taken = next((name for name in WEIGHTS if (folder / name).exists()), None)
    if taken is None:
        return []
    shards = read_index(folder / taken).values() if taken.endswith(INDEX) else ()
    return [taken, *sorted(set(shards))]


def _has_tokenizer(repository: str, revision: str | None, folder: Path) -> bool:
    """Whether a tokenizer is there, or the cache knows that the repository has none."""
    whole, vocabulary, merges = ((folder / name).exists() for name in TOKENIZER)
    if whole or (vocabulary and merges):
        return True
    return all(
        (folder / name).exists() or _look_up(repository, revision, name)[1] for name in TOKENIZER
    )


def _look_up(repository: str, revision: str | None, name: str) -> tuple[Path | None, bool]:
    """Where the cache holds a file, and whether it knows that the repository has no such file."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, name, revision=revision)
    return (Path(found), False) if isinstance(found, str) else (None, found is not None)


def _config(commit: Commit) -> Path:
    """The config, in the cache; a model of another type is refused before its weights come."""
    if CONFIG not in commit.sizes:
        raise GPT2Error(f"{commit.repository} has no {CONFIG}, so it holds no model to read")
    path = commit.get(CONFIG)
    parse_config(read_json(path), f"{commit.repository}/{CONFIG}")
    return path


def _weights(commit: Commit) -> list[str]:
    """The files that hold the weights, after the index of shards if there is one."""
    taken = next((name for name in WEIGHTS if name in commit.sizes), None)
    if taken is None:
        raise GPT2Error(f"{commit.repository} {_no_weights(commit)}")
    if not taken.endswith(INDEX):
        return [taken]
    shards = sorted(set(read_index(commit.get(taken)).values()))
    if missing := [shard for shard in shards if shard not in commit.sizes]:
        raise GPT2Error(f"{commit.repository}/{taken} names {listing(missing)}, which is not there")
    return [taken, *shards]


def _no_weights(commit: Commit) -> str:
    unread = next((name for name in UNREAD if name in commit.sizes), None)
    if unread is None:
        return f"has no {WEIGHTS[0]}, nor weights in another form that is read here"
    return (
        f"has only {unread}, {UNREAD[unread]}, which this version does not read; use a repository "
        "that has safetensors"
    )


def _head(commit: Commit, name: str) -> bytes:
    """A safetensors file up to its data: one request, or two if the header is long."""
    size = commit.sizes[name]
    head = commit.read(name, 0, min(HEAD_BYTES, size))
    end = min(safetensors.header_length(head, f"{commit.repository}/{name}"), size)
    return head[:end] if end <= len(head) else head + commit.read(name, len(head), end)
