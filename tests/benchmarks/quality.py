"""What each precision costs in truth, on `austen`, on a copy with outlier channels, on fixtures.

    python tests/benchmarks/quality.py [--folder FOLDER]

Against the same weights in float32: mean KL divergence and largest difference of a
log-probability, in nats, and how often the likeliest token is another. llama.cpp's Q8_0 of the
same weights stands beside int8. Then, for the half types, whose rows are not bit-equal in any
company, how many of 20,000 tokens drafts change.
"""

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import models
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.config import GPT2Config
from gpt2cli.generation import Request, generate
from gpt2cli.loader import load
from gpt2cli.model import GPT2
from gpt2cli.packing import DTYPES
from gpt2cli.sampling import Sampling

ROOT = Path(__file__).parents[2]
AUSTEN = ROOT / "weights" / "austen"
FIXTURES = ROOT / "tests" / "fixtures" / "hub"

OUTLIERS, FACTOR = [7, 90, 150], 40.0
TEXTS, SEED = 6, 0
SHORT_TEXT, FLIPS = 400, 20_000


@dataclass
class Loss:
    """What other logits [T, V] lose against exact ones, over all positions so far."""

    positions: int = 0
    divergence: float = 0.0
    largest: float = 0.0
    other_choices: int = 0

    def add(self, exact: Tensor, other: Tensor) -> None:
        one, two = (F.log_softmax(logits.double(), -1) for logits in (exact, other))
        self.positions += len(one)
        self.divergence += float((one.exp() * (one - two)).sum())
        self.largest = max(self.largest, float((one - two).abs().max()))
        self.other_choices += int((one.argmax(-1) != two.argmax(-1)).sum())

    def row(self, name: str) -> str:
        mean = self.divergence / self.positions
        agreed = 1 - self.other_choices / self.positions
        return f"  {name:18} {mean:10.2e} {self.largest:10.3g} {agreed:10.3%} {self.positions:8,}"


def planted(folder: Path) -> Path:
    """`austen` with outlier channels: gains and biases × 40, the rows that read them ÷ 40.

    It is the same function.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(AUSTEN / "config.json", folder)
    state = {
        name: tensor.float() for name, tensor in load_file(AUSTEN / "model.safetensors").items()
    }
    for name, tensor in state.items():
        if ".ln_1." in name or ".ln_2." in name:
            tensor[OUTLIERS] *= FACTOR
        elif name.endswith(("c_attn.weight", "c_fc.weight")):
            tensor[OUTLIERS] /= FACTOR
    save_file(state, folder / "model.safetensors")
    return folder


def texts(model: GPT2, count: int, tokens: int) -> list[list[int]]:
    """What the model writes after its end of text."""
    start = model.config.vocab_size - 1
    requests = [Request((start,), tokens, Sampling(), SEED, sample) for sample in range(count)]
    written: dict[int, list[int]] = {sample: [start] for sample in range(count)}
    for step in generate(model, requests):
        if step.token is not None:
            written[step.continuation.request.sample].append(step.token)
    return [*written.values()]


@torch.inference_mode()
def compare(folder: Path, rows: list[list[int]], *, peer: bool) -> None:
    """Every precision of one checkpoint, on some rows of ids, beside the peer's."""
    exact = load(Checkpoint.open(folder))
    wanted = [exact(torch.tensor([row]))[0] for row in rows]
    for dtype in DTYPES[1:]:
        model, loss = load(Checkpoint.open(folder), dtype=dtype), Loss()
        for row, logits in zip(rows, wanted, strict=True):
            loss.add(logits, model(torch.tensor([row]))[0])
        print(loss.row(dtype))
    if peer:
        loss = Loss()
        for logits, other in zip(wanted, q8_0(exact.config, folder, rows), strict=True):
            loss.add(logits, other)
        print(loss.row("llama.cpp Q8_0"))


def q8_0(config: GPT2Config, folder: Path, rows: list[list[int]]) -> Iterator[Tensor]:
    """The logits of llama.cpp's Q8_0 of a folder's weights, [T, V] for each row."""
    from llama_cpp import Llama

    state = load_file(folder / "model.safetensors").items()
    path = folder.with_suffix(".gguf")
    models.write_gguf(config, {name: t.float().numpy() for name, t in state}, path, "Q8_0")
    longest = max(map(len, rows))
    llama = Llama(str(path), n_ctx=longest, n_batch=longest, logits_all=True, verbose=False)
    for row in rows:
        llama.reset()
        llama.eval(row)
        yield torch.from_numpy(llama.scores[: len(row)].copy())


def flips(dtype: str) -> str:
    """How many tokens drafts change: two texts are compared up to where they part."""
    model = load(Checkpoint.open(AUSTEN), dtype=dtype)
    compared = changed = 0
    for seed in range(FLIPS):
        prompt = (model.config.vocab_size - 1,)
        request = Request(prompt, SHORT_TEXT, Sampling(temperature=0.8, top_k=40), seed)
        plain, drafted = (
            [step.token for step in generate(model, [request], drafts=drafts)]
            for drafts in (False, True)
        )
        parted = [i for i in range(SHORT_TEXT) if plain[: i + 1] != drafted[: i + 1]]
        compared += parted[0] + 1 if parted else SHORT_TEXT
        changed += bool(parted)
        if compared >= FLIPS:
            break
    return f"  {dtype:18} {changed} of {compared:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/quality"))
    folder = parser.parse_args().folder
    austen = load(Checkpoint.open(AUSTEN))
    rows = texts(austen, TEXTS, austen.config.n_positions - 1)
    head = f"  {'weights held in':18} {'mean KL':>10} {'largest':>10} {'agreement':>10} positions"
    shutil.copytree(AUSTEN, folder / "austen", dirs_exist_ok=True)
    for place in (folder / "austen", planted(folder / "planted")):
        print(f"\n{place.name}\n{head}")
        compare(place, rows, peer=True)
    for place in sorted(FIXTURES.iterdir()):
        if (place / "model.safetensors").exists():
            print(f"\n{place.name}\n{head}")
            config = Checkpoint.open(place).config
            numbers = torch.Generator().manual_seed(SEED)
            shape = (TEXTS, min(config.n_positions, 64))
            ids = torch.randint(config.vocab_size, shape, generator=numbers).tolist()
            compare(place, ids, peer=False)
    print("\ntokens of sampled text that drafts change (t 0.8, k 40)")
    for dtype in ("float16", "bfloat16"):
        print(flips(dtype), flush=True)


if __name__ == "__main__":
    main()
