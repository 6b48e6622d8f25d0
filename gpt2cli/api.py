r"""For programs: load a model, have it write texts, and ask how likely a text is.

>>> import gpt2cli
>>> model = gpt2cli.load("austen")
>>> model.generate("My dear Mr. Bennet,", max_new_tokens=8, temperature=0).text
' I am sure you will be very much'

A text follows from its prompt, seed and options, alone or beside others, as on the command line:

>>> text = model.generate("Emma", max_new_tokens=12, seed=3)
>>> text.text, text.finish_reason
(', talked the same way.\n\n"Qu', 'length')
>>> both = model.generate_many(["Emma", "My dear"], max_new_tokens=12, seed=3)
>>> both[0] == text
True
>>> "".join(model.stream("Emma", max_new_tokens=12, seed=3)) == text.text
True

>>> score = model.score("It is a truth universally acknowledged")
>>> print(f"{score.perplexity:.2f}, {score.bits_per_byte:.3f}")
25.07, 1.345
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Unpack

from .arguments import Number, check_flag, checked_name, checked_text, checked_texts
from .checkpoint import Checkpoint
from .config import GPT2Config
from .errors import GPT2Error
from .generation import MOST_ROWS, Continuation, Request, Step, check, generate
from .hub import DEFAULT, fetch, parse_model, tokenizer_place
from .layout import DTYPES
from .loader import load as load_network
from .loader import pick_device
from .model import GPT2
from .prompting import Options, Prompter, feed, start_token, wishes
from .request import FinishReason
from .sampling import TokenLogprob
from .scoring import Total
from .scoring import score as scores
from .tokenizer import TextStream, Tokenizer, load_tokenizer

__all__ = ["GPT2Error", "Model", "Options", "Score", "Text", "load"]


@dataclass(frozen=True)
class Text:
    """A text that was written: the continuation of `prompt`, alone.

    `tokens` are its ids, `prompt_tokens` those of the prompt; bytes that form no character are
    U+FFFD in `text`. `logprobs` has an entry a token where they were asked for.
    """

    prompt: str
    text: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    sample: int
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Score:
    """How likely a text is, in nats.

    `logprobs` has an entry for each of its `tokens`, None for one that is not scored, as nothing
    stands before it; `bytes` is the length of the text.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    logprob: float
    perplexity: float
    bits_per_byte: float
    bytes: int


def load(
    model: str | os.PathLike[str] = DEFAULT,
    *,
    device: str = "auto",
    dtype: str = "float32",
    n_head: int | None = None,
    progress: bool = False,
) -> "Model":
    """The model that `model` names, as on the command line: a name, a path, or owner/name.

    A `pathlib.Path` is always a path, whatever else is called the same.

    `device` is auto, cpu, cuda or mps, `dtype` what the weights are held in: float32, bfloat16,
    float16 or int8. `n_head` is for a file without a config; `progress` shows a bar on stderr
    while weights are downloaded. Raises GPT2Error for what a user can mend: a name that nothing
    has, a damaged file, a network that cannot be reached; ValueError or TypeError for an argument
    of another type or out of its range.
    """
    check_flag("progress", progress)
    n_head = Number(Integral, 1, optional=True).checked("n_head", n_head)
    if dtype not in DTYPES:
        raise GPT2Error(f"{dtype!r} is no dtype; it is {', '.join(DTYPES)}")
    place = pick_device(device)
    named = parse_model(checked_name("model", model))
    checkpoint = Checkpoint.open(fetch(named, progress=progress), n_head)
    tokenizer = load_tokenizer(tokenizer_place(named), checkpoint.config.vocab_size)
    return Model(load_network(checkpoint, place, dtype), tokenizer)


class Model:
    """A network and its tokenizer.

    `network` takes ids and gives logits (`model.GPT2`), `tokenizer` turns text into ids and back.
    """

    def __init__(self, network: GPT2, tokenizer: Tokenizer) -> None:
        self.network = network
        self.tokenizer = tokenizer

    @property
    def config(self) -> GPT2Config:
        """The sizes and switches of the network."""
        return self.network.config

    def generate(self, prompt: str = "", **options: Unpack[Options]) -> Text:
        """Continue a prompt; "" starts from the start token.

        Raises GPT2Error for a prompt that does not fit and for a logit bias that leaves nothing,
        ValueError for an option that is out of its range or a prompt with a lone surrogate, and
        TypeError for what is of another type and for an option that there is not.
        """
        (text,) = self.generate_many([checked_text("prompt", prompt)], **options)
        return text

    def generate_many(
        self,
        prompts: Iterable[str],
        samples: int = 1,
        batch_size: int = MOST_ROWS,
        **options: Unpack[Options],
    ) -> list[Text]:
        """Continue each prompt `samples` times, `batch_size` texts at a time; raises as `generate`.

        The texts of a prompt stand together, in the order of the prompts. They are those that
        each prompt gives alone, in float32 and int8 on a CPU to the bit.
        """
        samples = Number(Integral, 1).checked("samples", samples)
        batch_size = Number(Integral, 1).checked("batch_size", batch_size)
        writing = self._writing(checked_texts("prompts", prompts), samples, options)
        places = {id(each.request): each for each in writing}
        for step in generate(self.network, [each.request for each in writing], batch_size):
            places[id(step.continuation.request)].take(step)
        return [each.text() for each in writing]

    def stream(self, prompt: str = "", **options: Unpack[Options]) -> Iterator[str]:
        """The text that `generate` gives, in pieces of whole characters as they are written.

        Raises as `generate` when it is called, not when the first piece is asked for.
        """
        (writing,) = self._writing([checked_text("prompt", prompt)], 1, options)
        check([writing.request], self.config)
        return self._pieces(writing)

    def score(
        self,
        text: str | bytes,
        *,
        bos: bool = False,
        window: int | None = None,
        stride: int | None = None,
    ) -> Score:
        """How likely a text is, read in windows of `window` tokens, `stride` apart.

        The defaults are n_positions and half of the window; `scoring.windows` says what they do.
        With `bos` the start token comes before the text, so that its first token is scored too.
        Raises ValueError for a text of which nothing would be scored or that holds a lone
        surrogate, unless 2 ≤ `window` ≤ n_positions and 1 ≤ `stride` ≤ `window`, TypeError for
        what is of another type, and GPT2Error when a logit is NaN or infinite.
        """
        check_flag("bos", bos)
        most = self.config.n_positions
        size = Number(Integral, 2, most).checked("window", most if window is None else window)
        step = Number(Integral, 1, size).checked("stride", size // 2 if stride is None else stride)
        if not isinstance(text, bytes):
            text = checked_text("text", text, "a text (str) or bytes").encode()
        ids = self.tokenizer.encode_bytes(text)
        start = [start_token(self.config, self.tokenizer)] if bos else []
        if len(start + ids) < 2:
            raise ValueError("a text of one token is scored with bos, an empty one not at all")
        found = list(scores(self.network, start + ids, size, step))[len(start) :]
        total = Total.of(found)
        return Score(
            tokens=tuple(ids),
            logprobs=tuple(None if each is None else each.logprob for each in found),
            logprob=total.logprob,
            perplexity=total.perplexity,
            bits_per_byte=total.bits(len(text)),
            bytes=len(text),
        )

    def _writing(self, prompts: Sequence[str], samples: int, options: Options) -> list["_Writing"]:
        prompter = Prompter(self.config, self.tokenizer, wishes(options))
        return [
            _Writing(prompt, prompter.request(prompt, sample), prompter.stream())
            for prompt in prompts
            for sample in range(samples)
        ]

    def _pieces(self, writing: "_Writing") -> Iterator[str]:
        for step in generate(self.network, [writing.request]):
            if piece := writing.take(step):
                yield piece.decode(errors="replace")


@dataclass
class _Writing:
    """A text in the making, and in the end what it became."""

    prompt: str
    request: Request
    stream: TextStream
    continuation: Continuation | None = None

    def take(self, step: Step) -> bytes:
        """The bytes that a step adds."""
        self.continuation = step.continuation
        return feed(step, self.stream)

    def text(self) -> Text:
        """The text, when it has ended."""
        written, request = self.continuation, self.request
        if written is None or written.finish_reason is None:
            raise ValueError("the text has not ended")
        return Text(
            prompt=self.prompt,
            text=self.stream.text,
            prompt_tokens=request.prompt,
            tokens=tuple(written.tokens),
            finish_reason=written.finish_reason,
            seed=request.seed,
            sample=request.sample,
            logprobs=tuple(written.logprobs),
        )
