"""Text ↔ token ids, from the checkpoint's own files or GPT-2's bundled ranks; byte-safe streaming.

`encoding` holds the Tokenizer, `streaming` the TextStream; `vocabulary` reads a folder's files with
`tokenizer_json`, `added` (added tokens) and `merges`.
"""

from .encoding import Tokenizer, has_tokenizer, load_tokenizer, tokenizer_size
from .streaming import TextStream

__all__ = ["TextStream", "Tokenizer", "has_tokenizer", "load_tokenizer", "tokenizer_size"]
