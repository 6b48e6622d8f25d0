"""Text ↔ token ids, from the checkpoint's own files or GPT-2's bundled ranks; byte-safe streaming.

`encoding` holds the Tokenizer, `streaming` the TextStream; `vocabulary` reads a folder's files with
`tokenizer_json`, `added` (added tokens) and `merges`, `gguf_tokenizer` a GGUF file's metadata,
`characters` nanoGPT's table of characters; `saving` writes files.
"""

from .encoding import Tokenizer, has_tokenizer, load_tokenizer, tokenizer_size
from .saving import tokenizer_files
from .streaming import TextStream

__all__ = [
    "TextStream",
    "Tokenizer",
    "has_tokenizer",
    "load_tokenizer",
    "tokenizer_files",
    "tokenizer_size",
]
