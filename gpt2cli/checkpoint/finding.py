"""Which files hold a checkpoint, and which reader each is for: by name, else by first bytes."""

from pathlib import Path

from ..config import GIT_LFS, lfs_pointer
from ..errors import GPT2Error, listing
from . import gguf, llmc, nanogpt, safetensors, tf_bundle, torch_pickle
from .stored import Source

_READ = (
    "safetensors, pytorch_model.bin, OpenAI's TF checkpoints, nanoGPT's ckpt.pt, llm.c's model "
    "files and GGUF are read"
)

# How other files begin that people take for a model.
_OTHERS = (
    (b"<", "it is a web page or XML"),
    (b"\x89HDF", "it is HDF5, as Keras writes it"),
    (b"\x93NUMPY", "it is a numpy array"),
    (b"\x1f\x8b", "it is compressed by gzip"),
    (b"ggjt", "it is a GGML file from before GGUF"),
    (b"lmgg", "it is a GGML file from before GGUF"),
    (b"tjgg", "it is a GGML file from before GGUF"),
    (b"{", "it is JSON"),
)


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the one to take first.

    Raises GPT2Error where there is none, and where the first are several TF checkpoints and none
    of them is named.
    """
    weights = safetensors.find_weights(folder)
    weights += [folder / name for name in torch_pickle.WEIGHTS if (folder / name).exists()]
    bundles = tf_bundle.find_indexes(folder)
    if bundles and not weights:
        taken = tf_bundle.find_prefix(folder)
        bundles.sort(key=lambda index: index.with_suffix("") != taken)
    saved = [path for path in [folder / nanogpt.FILE] if path.exists()]
    if found := weights + bundles + saved:
        return found
    raise GPT2Error(f"{folder} holds no checkpoint: {_what_is_there(folder)}")


def open_file(path: Path, n_head: int | None) -> Source:
    """What the reader of a file finds in it. Raises GPT2Error where no reader knows the file."""
    if path.name.endswith((".safetensors", safetensors.INDEX_SUFFIX)):
        return safetensors.open_file(path, n_head)
    if path.name.endswith(torch_pickle.INDEX_SUFFIX):
        return torch_pickle.open_index(path, n_head)
    if path.name.endswith(tf_bundle.INDEX_SUFFIX):
        return tf_bundle.open_bundle(path.with_suffix(""), n_head)
    head = _head(path)
    if head.startswith(GIT_LFS):
        raise lfs_pointer(str(path))
    if torch_pickle.is_pickle(head):
        return _open_pickle(path, n_head)
    if head.startswith(gguf.MAGIC):
        return gguf.open_file(path)
    if llmc.magic_of(head) == llmc.MAGIC:
        return llmc.open_file(path)
    if head[8:10] == b'{"':
        return safetensors.open_file(path, n_head)
    raise GPT2Error(f"{path} is no checkpoint: {_looks_like(path, head)}; {_READ}")


def holds_pickle(path: Path) -> bool:
    """Whether opening the file at `path` takes torch, as pickles do."""
    indexed = path.name.endswith(torch_pickle.INDEX_SUFFIX)
    return indexed or torch_pickle.is_pickle(_head(path))


def _open_pickle(path: Path, n_head: int | None) -> Source:
    """The checkpoint in a pickle: nanoGPT's, else a state dict in the Hub's names."""
    unpickled = torch_pickle.unpickle(path)
    if nanogpt.holds(unpickled.value):
        return nanogpt.open_checkpoint(path, unpickled)
    return torch_pickle.open_state(path, unpickled, n_head)


def _head(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe, say, which may never end
            raise GPT2Error(f"{path} is no file; name the checkpoint's own files")
        with path.open("rb") as file:
            return file.read(32)
    except OSError as error:
        raise GPT2Error(f"cannot read {path}: {error.strerror}") from error


def _looks_like(path: Path, head: bytes) -> str:
    """What a file is, by its name and first bytes."""
    if ".data-" in path.name:
        index = path.name.partition(".data-")[0] + tf_bundle.INDEX_SUFFIX
        return f"it is a part of a TF checkpoint, whose {index} is to be named"
    if not head:
        return "it is empty"
    if other := llmc.other_file(head):
        return f"it is {other}"
    begin = head.lstrip()
    known = next((what for magic, what in _OTHERS if begin.startswith(magic)), None)
    return known or f"it begins with {head[:16]!r}"


def _what_is_there(folder: Path) -> str:
    """Files that may be checkpoints and have no name by which a folder's is found."""
    suffixes = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(suffixes))
    if names:
        return f"name the file itself ({listing(names)})"
    if index := next(folder.glob(f"?*{tf_bundle.INDEX_SUFFIX}"), None):
        return f"{index.name} is no TF checkpoint without {index.stem}.data-00000-of-00001"
    return (
        "neither model.safetensors, nor pytorch_model.bin, nor an index of their shards, "
        "nor a TF checkpoint, nor ckpt.pt; name the folder of the model, or its file"
    )
