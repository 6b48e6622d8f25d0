"""``python -m gpt2cli`` is ``gpt2``."""

from gpt2cli.start import program

program()
