"""``python -m gpt2cli`` is ``gpt2``."""

from gpt2cli.cli import main

main()
