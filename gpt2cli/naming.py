"""MODEL: what a name, a path or a repository on the command line stands for. No network."""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import GPT2Error
from .presets import ALIASES, EMBEDDED, PRESETS, Preset, preset, weights_folder

DEFAULT = "gpt2"

_PATH_STARTS = ("/", "./", "../", "~")
_PATH_ENDS = (".safetensors", ".bin", ".pt", ".gguf", ".index", ".json")

# huggingface_hub's own rule for a repository, narrowed to ASCII.
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*(?<=\w)/[A-Za-z0-9_][\w.-]*(?<=\w)", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][\w./+-]*(?<=[\w+-])", re.ASCII)


@dataclass(frozen=True)
class Model:
    """Where a checkpoint is to be found; whether it is there is another question.

    `name` is as the user wrote it. `preset` is set for a released size. Either `path` is set, a
    local folder or file, or `repository`, an ``owner/name`` on the Hub. `revision` is a branch,
    tag or commit there, None for the main branch.
    """

    name: str
    preset: Preset | None = None
    path: Path | None = None
    repository: str | None = None
    revision: str | None = None


def parse_model(text: str) -> Model:
    """The Model that `text` names: a known name, a path that exists, or ``owner/name[@revision]``.

    Raises GPT2Error for a path that is missing and for text that has none of these shapes.
    """
    if not text:
        raise GPT2Error("MODEL is empty; give a name, a path, or owner/name")
    name, at, revision = text.partition("@")
    if name == EMBEDDED or preset(name):
        return _known(text, name, _revision(text, revision) if at else None)
    path = os.path.expanduser(text)  # noqa: PTH111  Path's raises where there is no such user
    if os.path.exists(path):  # noqa: PTH110  Path's raises for names that no file can have
        return Model(text, path=_checkpoint(Path(path)))
    if _is_path(text, name):
        raise GPT2Error(f"there is no file or folder {text}; check the path")
    if not _is_repository(name):
        raise GPT2Error(f"no model, file or folder is called {text!r}; {_advice(name)}")
    return Model(text, repository=name, revision=_revision(text, revision) if at else None)


def names() -> list[str]:
    """Every name that is known without asking the Hub."""
    return [EMBEDDED, *PRESETS, *ALIASES]


def _checkpoint(path: Path) -> Path:
    """`path`, unless it is one of the small files beside a checkpoint."""
    if path.name.endswith(".json") and not path.name.endswith(".index.json") and path.is_file():
        raise GPT2Error(f"{path} is JSON and no checkpoint; give its folder, {path.parent}")
    return path


def _is_path(text: str, name: str) -> bool:
    """Whether `text` can only be a path: by its beginning, its ending, or its many folders."""
    if text.startswith(_PATH_STARTS) or text.lower().endswith(_PATH_ENDS):
        return True
    return "://" not in text and (name.count("/") > 1 or name.endswith("/"))


def _advice(name: str) -> str:
    """What may have been meant by a name that nothing has."""
    alike = {known.lower(): known for known in names()}
    if close := difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.7):
        return f"did you mean {alike[close[0]]}?"
    return f"known names are {', '.join(names())}, and a repository is owner/name"


def _known(text: str, name: str, revision: str | None) -> Model:
    """The model that ships with the program, or a released size."""
    released = preset(name)
    if released is not None:
        return Model(text, released, repository=released.repository, revision=revision)
    if revision is not None:
        raise GPT2Error(
            f"{name} ships with the program and has no revision {revision}; leave it out"
        )
    return Model(text, path=weights_folder() / EMBEDDED)


def _is_repository(name: str) -> bool:
    """Whether `name` is an ``owner/name`` that the Hub could hold."""
    if not _REPOSITORY.fullmatch(name) or len(name) > 96:
        return False
    return not any(part in name for part in ("--", "..")) and not name.endswith(".git")


def _revision(text: str, revision: str) -> str:
    """`revision` if git could have a branch, tag or commit of this name."""
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        raise GPT2Error(
            f"{text!r}: {revision!r} is no name of a branch, tag or commit; write name@revision"
        )
    return revision
