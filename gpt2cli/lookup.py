"""Drafts of the next tokens, looked up in the text itself.

Where the last few tokens occurred before, what followed them then is a fair guess at what follows
now (prompt lookup decoding, https://github.com/apoorvumang/prompt-lookup-decoding). Every guess is
scored against the token that came, whether or not it was run, so a text that does not repeat
itself soon gets no drafts at all.
"""

from collections.abc import Iterable

MOST_DRAFTED = 15

_LONGEST, _SHORTEST = 3, 2  # tokens that must have occurred together
_MEMORY = 0.05  # what one guess weighs in the share of right ones
_LENGTHS = 16  # longer matches are counted with those of this length


class Lookup:
    """A text so far, and where each run of tokens was last followed by what."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self.followed: dict[tuple[int, ...], int] = {}
        self.source: int | None = None  # place of the token that is guessed to come next
        self.matched = 0  # how many tokens before it are known to be the same
        # share of right guesses, by `matched`; the longer the match, the better the guess
        self.right = [length / (length + 2) for length in range(_LENGTHS + 1)]
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """The text grew by `token`. Takes the same time however long the text is."""
        if self.source is not None:
            self._score(self.source, self.tokens[self.source] == token)
        self.tokens.append(token)
        for length in range(_LONGEST, _SHORTEST - 1, -1):
            run = tuple(self.tokens[-length:])
            if self.source is None and run in self.followed:
                self.source, self.matched = self.followed[run], length
            if len(run) == length:
                self.followed[run] = len(self.tokens)

    def draft(self, most: int, price: float) -> list[int]:
        """Up to `most` tokens that may come next, as many as are worth running.

        `price` is what one more token adds to a pass, as a share of a pass over one.
        """
        if self.source is None:
            return []
        share = self.right[min(self.matched, _LENGTHS)]
        best, count = 1.0, 0
        expected = chance = 1.0
        for drafted in range(1, min(most, MOST_DRAFTED) + 1):
            chance *= share
            expected += chance
            if expected / (1 + price * drafted) > best:
                best, count = expected / (1 + price * drafted), drafted
        period = len(self.tokens) - self.source  # past its end a text is taken to go in circles
        return [self.tokens[self.source + place % period] for place in range(count)]

    def _score(self, source: int, right: bool) -> None:
        bucket = min(self.matched, _LENGTHS)
        self.right[bucket] += (right - self.right[bucket]) * _MEMORY
        self.source = source + 1 if right else None
        self.matched += 1
