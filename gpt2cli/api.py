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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypedDict, Unpack

from .checkpoint import Checkpoint
from .config import GPT2Config
from .errors import GPT2Error
from .generation import MOST_ROWS, Continuation, Request, Step, generate
from .hub import DEFAULT, fetch, parse_model, tokenizer_place
from .layout import DTYPES
from .loader import load as load_network
from .loader import pick_device
from .model import GPT2
from .prompting import Prompter, Wishes, feed, start_token
from .request import FinishReason, Overflow
from .sampling import Sampling, TokenLogprob
from .scoring import Total
from .scoring import score as scores
from .tokenizer import TextStream, Tokenizer, load_tokenizer

__all__ = ["GPT2Error", "Model", "Options", "Score", "Text", "load"]


class Options(TypedDict, total=False):
    """What may be said of a text that is to be written; all of it has a default.

    `max_new_tokens` is 100, or what fits; `seed` 0. `temperature` 0 takes the likeliest token;
    `sampling.Sampling` says what the other filters are, `request.Request` what `overflow` and
    `keep` are, and that `logprobs` asks for log-probabilities. `stop` are texts that end a text
    and are no part of it. `special` lets ``<|endoftext|>`` in a prompt be that token, `ignore_eos`
    goes on past the end of text.
    """

    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float]
    seed: int
    stop: Iterable[str]
    special: bool
    ignore_eos: bool
    overflow: Overflow
    keep: int
    logprobs: int | None


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
    model: str = DEFAULT,
    *,
    device: str = "auto",
    dtype: str = "float32",
    n_head: int | None = None,
    progress: bool = False,
) -> "Model":
    """The model that `model` names, as on the command line: a name, a path, or owner/name.

    `device` is auto, cpu, cuda or mps, `dtype` what the weights are held in: float32, bfloat16,
    float16 or int8. `n_head` is for a file without a config; `progress` shows a bar on stderr
    while weights are downloaded. Raises GPT2Error for what a user can mend: a name that nothing
    has, a damaged file, a network that cannot be reached.
    """
    if dtype not in DTYPES:
        raise GPT2Error(f"{dtype!r} is no dtype; it is {', '.join(DTYPES)}")
    place = pick_device(device)
    named = parse_model(model)
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

        Raises GPT2Error for a prompt that does not fit, and ValueError for an option that is out
        of its range.
        """
        (text,) = self.generate_many([prompt], **options)
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
        writing = self._writing(prompts, samples, options)
        places = {id(each.request): each for each in writing}
        for step in generate(self.network, [each.request for each in writing], batch_size):
            places[id(step.continuation.request)].take(step)
        return [each.text() for each in writing]

    def stream(self, prompt: str = "", **options: Unpack[Options]) -> Iterator[str]:
        """The text that `generate` gives, in pieces of whole characters as they are written."""
        (writing,) = self._writing([prompt], 1, options)
        for step in generate(self.network, [writing.request]):
            if piece := writing.take(step):
                yield piece.decode(errors="replace")

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
        Raises ValueError for a text of which nothing would be scored, and as `scoring.score` does.
        """
        data = text.encode() if isinstance(text, str) else text
        ids = self.tokenizer.encode_bytes(data)
        start = [start_token(self.config, self.tokenizer)] if bos else []
        if len(start + ids) < 2:
            raise ValueError("a text of one token is scored with bos, an empty one not at all")
        size = self.config.n_positions if window is None else window
        step = size // 2 if stride is None else stride
        found = list(scores(self.network, start + ids, size, step))[len(start) :]
        total = Total.of(found)
        return Score(
            tokens=tuple(ids),
            logprobs=tuple(None if each is None else each.logprob for each in found),
            logprob=total.logprob,
            perplexity=total.perplexity,
            bits_per_byte=total.bits(len(data)),
            bytes=len(data),
        )

    def _writing(self, prompts: Iterable[str], samples: int, options: Options) -> list["_Writing"]:
        prompter = Prompter(self.config, self.tokenizer, _wishes(**options))
        return [
            _Writing(prompt, prompter.request(prompt, sample), prompter.stream())
            for prompt in prompts
            for sample in range(samples)
        ]


def _wishes(
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] = MappingProxyType({}),
    seed: int = 0,
    stop: Iterable[str] = (),
    special: bool = False,
    ignore_eos: bool = False,
    overflow: Overflow = "error",
    keep: int = 0,
    logprobs: int | None = None,
) -> Wishes:
    """What `Options` say, each with its default."""
    filters = (temperature, top_k, top_p, min_p, repetition_penalty, logit_bias)
    return Wishes(
        max_new_tokens=max_new_tokens,
        sampling=Sampling(*filters),
        seed=seed,
        stops=tuple(stop),
        special=special,
        ignore_eos=ignore_eos,
        overflow=overflow,
        keep=keep,
        logprobs=logprobs,
    )


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
