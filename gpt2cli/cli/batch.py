"""The texts that a file of prompts asks for: which they are, which are there, and the rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..checkpoint import Checkpoint
from ..errors import GPT2Error
from .batch_output import Output, parsed
from .output import json_line
from .prompt_file import Prompt
from .writing import facts

if TYPE_CHECKING:
    from ..generation import Meter, Request, Step
    from ..model import GPT2
    from ..prompting import Prompter
    from ..tokenizer import TextStream

BLOCK = 8  # batches whose texts are sorted by length, so that few wait for one before them


def fingerprint(checkpoint: Checkpoint, dtype: str) -> str:
    """Of the weights, wherever their files lie, and of what is computed with them."""
    hashes = []
    for path in {stored.file for stored in checkpoint.matched.tensors.values()}:
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return json.dumps([sorted(hashes), asdict(checkpoint.config), dtype], sort_keys=True)


@dataclass(frozen=True)
class Texts:
    """All samples of the first prompt, then of the next; `fingerprint` is their network's."""

    prompts: Sequence[Prompt]
    samples: int
    prompter: Prompter
    fingerprint: str

    def __len__(self) -> int:
        return len(self.prompts) * self.samples

    def prompt(self, number: int) -> Prompt:
        """What text `number` goes on from."""
        return self.prompts[number // self.samples]

    def request(self, number: int) -> Request:
        """What is asked for by text `number`."""
        request = self.prompter.request(self.prompt(number).text)
        return replace(request, sample=number % self.samples)

    def given(self, number: int) -> dict[str, Any]:
        """What the line of text `number` begins with."""
        prompt = self.prompt(number)
        return {"prompt": prompt.text} | ({} if prompt.id is None else {"id": prompt.id})

    def digest(self, number: int) -> str:
        """Of everything that the line of text `number` follows from."""
        wishes, request = self.prompter.wishes, self.request(number)
        told = [self.fingerprint, self.given(number), wishes.stops, wishes.special, asdict(request)]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=sorted).encode()).hexdigest()


def resume(texts: Texts, output: Output) -> int:
    """How many texts are in the output; its `end` is after them, before what is left of a line.

    Raises GPT2Error, by line, when it holds anything else.
    """
    count = 0
    for line in output.lines():
        where = f"{output.path}: line {count + 1}"
        if count == len(texts):
            raise GPT2Error(f"{where} is one more than was asked for; start over with --force")
        if not line.endswith(b"\n"):
            begun = json_line(texts.given(count)).removesuffix(b"}\n")
            if not (line.startswith(begun) or begun.startswith(line)):
                raise GPT2Error(
                    f"{where} is no beginning of what was asked for; name another file with -o, or "
                    "start over with --force"
                )
            break
        _compare(parsed(line), texts, count, where)
        output.end += len(line)
        count += 1
    return count


def _compare(row: dict[str, Any], texts: Texts, number: int, where: str) -> None:
    """Raise GPT2Error unless a line is that of text `number`."""
    if row.get("digest") == texts.digest(number):
        return
    seed, wanted = row.get("seed"), texts.prompter.wishes.seed
    if "digest" in row and seed != wanted:
        raise GPT2Error(
            f"{where} has the seed {seed}, and {wanted} was asked for; go on without -s, or start "
            "over with --force"
        )
    given = texts.given(number)
    alike = all(row.get(name) == given.get(name) for name in ("prompt", "id"))
    other = "has another model or other options" if alike else "is the text of another prompt"
    raise GPT2Error(
        f"{where} {other} than what was asked for (line {texts.prompt(number).line} of the "
        "prompts); repeat what it was written with to go on, or start over with --force"
    )


class Writing:
    """Writes the texts from number `first` on, each as soon as those before it are written."""

    def __init__(self, texts: Texts, first: int, output: Output) -> None:
        self.texts = texts
        self.next = first
        self._output = output
        self._begun: dict[int, tuple[int, TextStream]] = {}  # by its request, number and stream
        self._ended: dict[int, bytes] = {}

    def steps(self, gpt2: GPT2, rows: int, *, drafts: bool, meter: Meter) -> Iterator[Step]:
        """Generate block after block; in one, the longest prompts come first."""
        from ..generation import by_room, generate

        numbers = range(self.next, len(self.texts))
        for start in range(0, len(numbers), BLOCK * rows):
            requests = []
            for number in numbers[start : start + BLOCK * rows]:
                requests.append(self.texts.request(number))
                self._begun[id(requests[-1])] = number, self.texts.prompter.stream()
            for group in by_room(gpt2.config, requests, rows):
                yield from generate(gpt2, group, rows, drafts=drafts, meter=meter)

    def write(self, steps: Iterator[Step], model: str, *, exact: bool) -> None:
        """Take the steps and write a line for each text that ends."""
        from ..prompting import feed

        for step in steps:
            text = step.continuation
            number, stream = self._begun[id(text.request)]
            feed(step, stream)
            if text.finish_reason is None:
                continue
            del self._begun[id(text.request)]
            row = facts(text, stream, self.texts.prompter.tokenizer)
            row |= {"model": model, "exact": exact, "digest": self.texts.digest(number)}
            self._ended[number] = json_line(self.texts.given(number) | row)
            self._write_ended()

    def _write_ended(self) -> None:
        lines = []
        while self.next in self._ended:
            lines.append(self._ended.pop(self.next))
            self.next += 1
        if lines:
            self._output.append(b"".join(lines))
