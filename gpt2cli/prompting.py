"""From a prompt, and what is wished of its text, to a request; where texts begin and end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypedDict, get_args

from .arguments import BIGGEST_SEED, Number, check_flag, checked_texts, hold, shown
from .config import GPT2Config
from .errors import GPT2Error
from .presets import DEFAULT_NEW_TOKENS
from .request import Overflow, Request, Step
from .sampling import Sampling
from .tokenizer import TextStream, Tokenizer


def end_ids(config: GPT2Config, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids that end a text: the config's, else ``<|endoftext|>``, else none."""
    end_of_text = tokenizer.end_of_text
    return config.eos_token_id or (() if end_of_text is None else (end_of_text,))


def start_token(config: GPT2Config, tokenizer: Tokenizer) -> int:
    """The id that a text without a prompt starts from: the config's, else the first that ends one.

    Raises GPT2Error when the model has neither.
    """
    ends = end_ids(config, tokenizer)
    starts = [*ends] if config.bos_token_id is None else [config.bos_token_id]
    if starts and starts[0] < config.vocab_size:
        return starts[0]
    raise GPT2Error("this model has no start token for unconditional text; give a prompt")


_COUNT = Number(Integral, 0, optional=True)
_NUMBERS = {
    "max_new_tokens": _COUNT,
    "seed": Number(Integral, 0, BIGGEST_SEED),
    "keep": Number(Integral, 0),
    "logprobs": _COUNT,
    "trace": _COUNT,
}


@dataclass(frozen=True)
class Wishes:
    """What is wished of every text of a run; `request.Request` says what most of it is.

    `max_new_tokens` None is `presets.DEFAULT_NEW_TOKENS`, or what fits. `stops` are texts that end
    a text and are no part of it. `special` lets special tokens in a prompt be those tokens, and
    come out as text; `ignore_eos` goes on past the end of text.
    """

    max_new_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    stops: tuple[str, ...] = ()
    special: bool = False
    ignore_eos: bool = False
    overflow: Overflow = "error"
    keep: int = 0
    logprobs: int | None = None
    trace: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of its range, TypeError for what has none."""
        hold(self, _NUMBERS)
        check_flag("special", self.special)
        check_flag("ignore_eos", self.ignore_eos)
        if self.overflow not in get_args(Overflow):
            raise ValueError(f"overflow is one of {get_args(Overflow)}, not {shown(self.overflow)}")


class Options(TypedDict, total=False):
    """What may be said of a text that is to be written; all of it has a default.

    `max_new_tokens` is 100, or what fits; `seed` 0. `temperature` 0 takes the likeliest token;
    `sampling.Sampling` says what the other filters are, `request.Request` what `overflow` and
    `keep` are, and that `logprobs` asks for log-probabilities. `stop` are texts that end a text
    and are no part of it. `special` lets ``<|endoftext|>`` in a prompt be that token, `ignore_eos`
    goes on past the end of text.
    """

    max_new_tokens: int | None
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


def wishes(options: Options) -> Wishes:
    """What options say; one that is not given has its default.

    Raises ValueError for one that is out of its range, and TypeError for one that is of another
    type or that there is not.
    """
    given: dict[str, Any] = {**options}
    for name in given:
        if name not in Options.__annotations__:
            raise TypeError(f"no option is called {name!r}; {_meant(name)}")
    filters = [each.name for each in fields(Sampling) if each.name in given]
    sampling = Sampling(**{name: given.pop(name) for name in filters})
    return Wishes(sampling=sampling, stops=checked_texts("stop", given.pop("stop", ())), **given)


def _meant(name: str) -> str:
    """What may have been meant by an option that there is not."""
    known = list(Options.__annotations__)
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"they are {', '.join(known)}"


class Prompter:
    """Makes requests, and streams for their texts, of prompts to one model."""

    def __init__(self, config: GPT2Config, tokenizer: Tokenizer, wishes: Wishes) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.wishes = wishes
        ends = () if wishes.ignore_eos else end_ids(config, tokenizer)
        self._end_ids = frozenset(ends)
        self._never = tuple(tokenizer.unknown_ids(config.vocab_size))

    def request(self, prompt: str, sample: int = 0) -> Request:
        """What is asked for text number `sample` of a prompt; "" starts from the start token.

        Raises what `Tokenizer.encode` and `start_token` raise.
        """
        ids = self.tokenizer.encode(prompt, special=self.wishes.special) if prompt else []
        return self.continued(ids or [start_token(self.config, self.tokenizer)], sample)

    def continued(self, ids: Sequence[int], sample: int = 0) -> Request:
        """What is asked for text number `sample` of a prompt's ids."""
        wishes = self.wishes
        return Request(
            prompt=tuple(ids),
            max_new_tokens=self._new_tokens(len(ids)),
            sampling=wishes.sampling,
            seed=wishes.seed,
            sample=sample,
            end_ids=self._end_ids,
            never=self._never,
            overflow=wishes.overflow,
            keep=wishes.keep,
            logprobs=wishes.logprobs,
            trace=wishes.trace,
        )

    def stream(self) -> TextStream:
        """What turns the ids of one text into text."""
        return TextStream(self.tokenizer, self.wishes.stops, self.wishes.special)

    def _new_tokens(self, prompt: int) -> int:
        """As many as are wished, else the default or what fits."""
        if self.wishes.max_new_tokens is not None:
            return self.wishes.max_new_tokens
        if self.wishes.overflow == "slide":
            return DEFAULT_NEW_TOKENS
        return max(0, min(DEFAULT_NEW_TOKENS, self.config.n_positions - prompt))


def feed(step: Step, stream: TextStream) -> bytes:
    """The bytes that a step adds to a text; the text ends where a stop string begins."""
    text = step.continuation
    piece = b"" if step.token is None else stream.push(step.token)
    if stream.stopped:
        text.stop()
    return piece if text.finish_reason is None else piece + stream.finish()
