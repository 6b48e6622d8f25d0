"""TextStream: token ids in, bytes out as soon as they are whole characters and no stop text."""

import codecs
from collections.abc import Sequence

from .encoding import Tokenizer


class TextStream:
    """Token ids in, bytes out as soon as they form whole characters; stop texts never come out.

    Special tokens contribute nothing unless `special`. `stopped` tells that a stop was completed;
    it and everything after it is dropped. Where several are completed by the same byte the one
    that begins first counts. Raises ValueError for an empty stop.
    """

    stopped: bool

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str] = (), special: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = [_Stop(stop.encode("utf-8", "surrogateescape")) for stop in stops]
        self._contributes_special = special
        self._held = b""  # could still begin a stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text: list[str] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """What came out so far; bytes that are no UTF-8 are U+FFFD."""
        return "".join(self._text)

    def push(self, token_id: int) -> bytes:
        """The bytes that are safe to print now that this token has come.

        Raises ValueError for an id that stands for nothing.
        """
        if not self._tokenizer.known(token_id):
            raise ValueError(f"token id {token_id} stands for nothing")
        if self.stopped or (self._tokenizer.is_special(token_id) and not self._contributes_special):
            return b""
        data = self._tokenizer.token_bytes(token_id)
        before = self._held
        for count, byte in enumerate(data, 1):
            completed = [stop.length for stop in self._stops if stop.feed(byte)]
            if completed:
                self.stopped = True
                self._held = b""
                return self._out((before + data[:count])[: -max(completed)], final=True)
        pending = before + data
        safe = len(pending) - max((stop.matched for stop in self._stops), default=0)
        self._held = pending[safe:]
        return self._out(pending[:safe])

    def finish(self) -> bytes:
        """What was held back when the text ends here: begun stops and an unfinished character."""
        held, self._held = self._held, b""
        return self._out(held, final=True)

    def _out(self, data: bytes, final: bool = False) -> bytes:
        """`data` and the begun character before it, less a begun character at its end."""
        data = self._decoder.getstate()[0] + data
        self._decoder.reset()
        self._text.append(self._decoder.decode(data, final))
        return data.removesuffix(self._decoder.getstate()[0])


class _Stop:
    """A stop text and how much of it the bytes so far end with: Knuth, Morris and Pratt's search.

    https://doi.org/10.1137/0206024
    """

    def __init__(self, stop: bytes) -> None:
        if not stop:
            raise ValueError("an empty stop would end every text")
        self._stop = stop
        self.length = len(stop)
        self.matched = 0
        # borders[n]: the longest proper prefix of the stop's first n bytes that also ends them
        self._borders = [0, 0]
        for byte in stop[1:]:
            self._borders.append(self._longer(self._borders[-1], byte))

    def feed(self, byte: int) -> bool:
        """Take the next byte of the text; True when the stop is complete."""
        self.matched = self._longer(self.matched, byte)
        return self.matched == self.length

    def _longer(self, matched: int, byte: int) -> int:
        """How much of the stop is matched when `byte` follows `matched` bytes of it."""
        while matched and self._stop[matched] != byte:
            matched = self._borders[matched]
        return matched + (self._stop[matched] == byte)
