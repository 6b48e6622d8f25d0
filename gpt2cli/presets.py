"""The released sizes, their names, defaults, and where the files that ship with the program lie."""

from dataclasses import dataclass
from pathlib import Path

from .config import GPT2Config
from .errors import GPT2Error

EMBEDDED = "austen"
DEFAULT_NEW_TOKENS = 100


@dataclass(frozen=True)
class Preset:
    """A released checkpoint: its repository on the Hub, its config, its safetensors' size.

    Sizes in bytes are those that the repository's file listing shows.
    """

    repository: str
    config: GPT2Config
    file_bytes: int


def _released(repository: str, n_layer: int, n_head: int, n_embd: int, file_bytes: int) -> Preset:
    config = GPT2Config(
        vocab_size=50257,
        n_positions=1024,
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=n_head,
        bos_token_id=50256,
        eos_token_id=(50256,),
    )
    return Preset(repository, config, file_bytes)


PRESETS = {
    "gpt2": _released("openai-community/gpt2", 12, 12, 768, 548_105_171),
    "gpt2-medium": _released("openai-community/gpt2-medium", 24, 16, 1024, 1_519_984_962),
    "gpt2-large": _released("openai-community/gpt2-large", 36, 20, 1280, 3_247_159_078),
    "gpt2-xl": _released("openai-community/gpt2-xl", 48, 25, 1600, 6_431_829_964),
    "distilgpt2": _released("distilbert/distilgpt2", 6, 12, 768, 352_824_413),
}

# OpenAI's names: by the true number of parameters, and by the count first printed in 2019.
ALIASES = {
    "124M": "gpt2",
    "355M": "gpt2-medium",
    "774M": "gpt2-large",
    "1558M": "gpt2-xl",
    "117M": "gpt2",
    "345M": "gpt2-medium",
}


def preset(name: str) -> Preset | None:
    """The released size called `name`, by its Hub name or one of OpenAI's; None for another."""
    return PRESETS.get(ALIASES.get(name, name))


def weights_folder() -> Path:
    """The folder of files that ship with the program.

    A wheel carries it inside the package; in a checkout it lies beside the package. Raises
    GPT2Error when neither is there.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "weights", package.parent / "weights"):
        if folder.is_dir():
            return folder
    raise GPT2Error(f"the weights folder is missing beside {package}; install gpt2cli again")
