"""Does a network compute what GPT-2 computes: references, comparisons, and where they part."""
