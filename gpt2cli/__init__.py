"""GPT-2 inference from any released-style checkpoint.

`load` is where programs begin; it and what it gives are described in `gpt2cli.api`.
"""

TYPE_CHECKING = False  # `typing` takes long to import, and all that is run begins here

__version__ = "0.1.0"
__all__ = ["GPT2Error", "Model", "Options", "Score", "Text", "__version__", "load"]

if TYPE_CHECKING:
    from .api import GPT2Error, Model, Options, Score, Text, load


def __getattr__(name: str) -> object:
    """What programs use, imported when it is first asked for: it takes torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(".api", __name__), name)
