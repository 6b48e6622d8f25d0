"""Train `austen`, the small GPT-2 that lies beside this script, or one like it on any text.

    python train.py TEXT_FOLDER OUT [--minutes 60 | --steps N]

TEXT_FOLDER holds the text as UTF-8 files ``*.txt``. OUT becomes a folder as the Hub has it
(config.json, vocab.json, merges.txt, model.safetensors in float16), which
``gpt2 generate -m OUT`` reads; until the run is over, the best so far lies in OUT.partial.
Needs torch, tiktoken and safetensors.

`austen` itself was trained on Jane Austen's six novels, which are in the public domain: the text
of Project Gutenberg as Debian's package r-cran-janeaustenr ships it
(usr/lib/R/site-library/janeaustenr/data/Rdata.rdb, read with the PyPI package rdata; six vectors
of lines, one file each, joined with newlines; 4,025,022 characters). The defaults are its recipe:
an hour on two cores.

Method: matrices of the blocks by Muon (https://kellerjordan.github.io/posts/muon/), the rest by
AdamW; a warm-up of 100 steps, then constant until 40 % of the run, then linear to 1 %.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tiktoken
import torch
import torch.nn.functional as F  # noqa: N812 - as everyone calls it
from safetensors.torch import save_file
from torch import Tensor, nn

END = "<|endoftext|>"

# GPT-2's split of a text into words (OpenAI's src/encoder.py), with possessive quantifiers.
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

SHORTEST = 400  # characters: a title page or a list of contents is less, a chapter more
VALIDATION = 0.03  # the last part of the text
VALIDATION_BATCHES = 8
WARM_UP = 100  # steps


@dataclass(frozen=True)
class Sizes:
    """What the network and its batches measure; `vocabulary` counts the end token."""

    vocabulary: int
    positions: int
    width: int
    heads: int
    layers: int
    batch: int
    dropout: float


# Vocabulary: the 256 bytes in GPT-2's order, a merge each, and the end token last.


def byte_characters() -> dict[int, str]:
    """Byte → the printable character that spells it in vocab.json, in the order of GPT-2's ids."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    return table | {byte: chr(256 + n) for n, byte in enumerate(rest)}


def read_merges(path: Path, vocabulary: int | None) -> list[str]:
    """The merges of a merges.txt in order, only as many as make `vocabulary` tokens if given."""
    lines = path.read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    if vocabulary is None:
        return merges
    if not 257 <= vocabulary <= len(merges) + 257:
        raise SystemExit(f"Error: {path} makes 257 to {len(merges) + 257} tokens, not {vocabulary}")
    return merges[: vocabulary - 257]


def token_ranks(merges: list[str]) -> dict[bytes, int]:
    """Each token's bytes and its id: the bytes alone, then what each merge joins."""
    characters = byte_characters()
    byte_of = {character: byte for byte, character in characters.items()}
    ranks = {bytes([byte]): rank for rank, byte in enumerate(characters)}
    for merge in merges:
        joined = bytes(byte_of[character] for character in merge.replace(" ", ""))
        ranks[joined] = len(ranks)
    return ranks


# Text: a chapter is a document, a paragraph is one line.


def chapters(text: str) -> Iterator[str]:
    """Yield the chapters of a book, their headings dropped and their paragraphs unwrapped."""
    text = text.replace("\r", "").replace("_", "").replace("--", " -- ")
    found: list[str] = []
    for raw in re.split(r"\n{2,}", text):
        paragraph = re.sub(r" {2,}", " ", re.sub(r"\s*\n\s*", " ", raw)).strip()
        if re.match(r"(?i)(chapter|volume)\b", paragraph) and len(paragraph) < 40:
            yield "\n\n".join(found)
            found = []
        elif len(paragraph) > 1:
            found.append(paragraph)
    yield "\n\n".join(found)


def read_tokens(folder: Path, encoding: tiktoken.Encoding) -> Tensor:
    """The ids of all text in a folder, int64 [N]; the end token follows each chapter."""
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise SystemExit(f"Error: {folder} holds no .txt files")
    ids: list[int] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SystemExit(f"Error: {path} is not UTF-8; convert it first") from error
        for chapter in chapters(text):
            if len(chapter) > SHORTEST:
                ids += [*encoding.encode_ordinary(chapter), encoding.eot_token]
    return torch.tensor(ids, dtype=torch.int64)


def split(tokens: Tensor, window: int, folder: Path) -> tuple[Tensor, Tensor]:
    """Text to train on and text to validate on, each of more than a window."""
    held_out = max(round(len(tokens) * VALIDATION), window + 2)
    if len(tokens) < held_out + window + 2:
        raise SystemExit(
            f"Error: {folder} makes {len(tokens)} tokens in chapters of more than {SHORTEST} "
            f"characters, and {2 * (window + 2)} are needed; use more text or fewer --positions"
        )
    return tokens[:-held_out], tokens[-held_out:]


# Network: attributes carry the released names.


class Attention(nn.Module):
    """Causal self-attention over [B, T, C]."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.c_attn = nn.Linear(sizes.width, 3 * sizes.width)
        self.c_proj = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position with those before it."""
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Two dense layers, four times as wide between them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.c_fc = nn.Linear(sizes.width, 4 * sizes.width)
        self.c_proj = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map each position of [B, T, C] alone."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One pre-norm block."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(sizes.width), Attention(sizes)
        self.ln_2, self.mlp = nn.LayerNorm(sizes.width), MLP(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add what attention and MLP find to [B, T, C]."""
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class Network(nn.Module):
    """GPT-2 with its head tied to `wte`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.wte = nn.Embedding(sizes.vocabulary, sizes.width)
        self.wpe = nn.Embedding(sizes.positions, sizes.width)
        self.h = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=self._deviation(name, sizes.layers))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @staticmethod
    def _deviation(name: str, layers: int) -> float:
        if name.endswith("c_proj.weight"):  # two additions a block to the residual stream
            return 0.02 / math.sqrt(2 * layers)
        return 0.01 if name == "wpe.weight" else 0.02

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy, in nats, of `targets` [B, T] after `ids` [B, T]."""
        x = self.dropout(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# Training.


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five Newton-Schulz steps, for matrices.

    In float32: bfloat16 products are slow on a CPU.
    """

    def __init__(
        self, matrices: Iterable[Tensor], lr: float, weight_decay: float, momentum: float
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every matrix once along its gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                average = self.state[matrix].setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]))
                tall = max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * tall)


def orthogonal(matrix: Tensor) -> Tensor:
    """Roughly the nearest matrix whose singular values are all one."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def optimizers(network: Network) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embeddings, norms and biases."""
    matrices = [parameter for parameter in network.h.parameters() if parameter.ndim == 2]
    chosen = {id(parameter) for parameter in matrices}
    rest = [parameter for parameter in network.parameters() if id(parameter) not in chosen]
    return [
        Muon(matrices, lr=0.02, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def rate(step: int, done: float) -> float:
    """The share of the full learning rate at a step, with a share `done` of the run behind it."""
    return max(0.01, min(1, step / WARM_UP) * min(1, (1 - done) / 0.6))


def draw(tokens: Tensor, sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows from anywhere in `tokens`, and the tokens one further on; int64 [B, T] each."""
    last = len(tokens) - sizes.positions - 1
    starts = torch.randint(last, (sizes.batch, 1), generator=generator)
    places = starts + torch.arange(sizes.positions)
    return tokens[places], tokens[places + 1]


@torch.no_grad()
def validate(network: Network, tokens: Tensor, sizes: Sizes) -> float:
    """The mean loss on windows of `tokens`, the same ones each time, in nats a token."""
    network.eval()
    generator = torch.Generator().manual_seed(0)
    losses = [network(*draw(tokens, sizes, generator)) for _ in range(VALIDATION_BATCHES)]
    network.train()
    return torch.stack(losses).mean().item()


def clock(minutes: float, steps: int | None) -> Iterator[tuple[int, float]]:
    """Yield the number of each step and the share of the run before it, until the run is over."""
    start, step = time.monotonic(), 0
    while True:
        done = step / steps if steps else (time.monotonic() - start) / (60 * minutes)
        if done >= 1:
            return
        yield step, done
        step += 1


def run_steps(
    network: Network, tokens: Tensor, sizes: Sizes, args: argparse.Namespace
) -> Iterator[tuple[int, float]]:
    """Train on `tokens`, and yield after each step how many are done and its loss."""
    generator = torch.Generator().manual_seed(args.seed)
    chosen = optimizers(network)
    groups = [group for optimizer in chosen for group in optimizer.param_groups]
    full = [group["lr"] for group in groups]
    for step, done in clock(args.minutes, args.steps):
        for group, lr in zip(groups, full, strict=True):
            group["lr"] = lr * rate(step, done)
        loss = network(*draw(tokens, sizes, generator))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield step + 1, loss.item()


def train(
    network: Network,
    parts: tuple[Tensor, Tensor],
    sizes: Sizes,
    args: argparse.Namespace,
    save: Callable[[], None],
) -> None:
    """Run the recipe; `save` is called whenever the validation loss is the best so far."""
    best, start = math.inf, time.monotonic()

    def check(label: str) -> None:
        nonlocal best
        loss = validate(network, parts[1], sizes)
        print(f"{label}, {time.monotonic() - start:.0f} s, validation {loss:.3f}", flush=True)
        if loss < best:
            best = loss
            save()

    for step, loss in run_steps(network, parts[0], sizes, args):
        if step % args.every == 0:
            check(f"step {step}, train {loss:.3f}")
    check("end")
    if best == math.inf:
        raise SystemExit("Error: the loss is not finite; try another --seed or more text")


# Output.


def write_vocabulary(folder: Path, merges: list[str]) -> None:
    """Write vocab.json and merges.txt."""
    characters = byte_characters()
    ids = {
        "".join(characters[byte] for byte in token): rank
        for token, rank in token_ranks(merges).items()
    }
    ids[END] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    text = "#version: 0.2\n" + "".join(merge + "\n" for merge in merges)
    (folder / "merges.txt").write_text(text, encoding="utf-8")


def write_config(folder: Path, sizes: Sizes) -> None:
    """Write config.json."""
    config = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "bos_token_id": sizes.vocabulary - 1,
        "eos_token_id": sizes.vocabulary - 1,
        "layer_norm_epsilon": 1e-5,
        "model_type": "gpt2",
        "n_ctx": sizes.positions,
        "n_embd": sizes.width,
        "n_head": sizes.heads,
        "n_layer": sizes.layers,
        "n_positions": sizes.positions,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "vocab_size": sizes.vocabulary,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_weights(folder: Path, network: Network) -> None:
    """Write model.safetensors under the released names, dense weights as [in, out]."""
    tensors = {
        name: (tensor.T if ".c_" in name and tensor.ndim == 2 else tensor).half().contiguous()
        for name, tensor in network.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


# Command line.


def parse_arguments() -> argparse.Namespace:
    """Read the command line; the defaults are the recipe of `austen`."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(
        description=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("text", type=Path, help="folder of UTF-8 .txt files")
    parser.add_argument("out", type=Path, help="folder to make; must not be there, or be empty")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=positive_number, default=60.0, help="train this long")
    length.add_argument("--steps", type=positive, help="train this many steps instead")
    parser.add_argument("--seed", type=int, default=1811, help="of weights, windows and dropout")
    parser.add_argument("--layers", type=positive, default=6)
    parser.add_argument("--heads", type=positive, default=6)
    parser.add_argument("--width", type=positive, default=192)
    parser.add_argument("--positions", type=positive, default=512, help="length of a window")
    parser.add_argument("--batch", type=positive, default=8, help="windows a step")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--vocabulary", type=positive, help="tokens; less than the merges make")
    parser.add_argument("--every", type=positive, default=200, help="validate after so many steps")
    args = parser.parse_args()
    if args.width % args.heads:
        parser.error(f"--width {args.width} does not divide into --heads {args.heads}")
    if not 0 <= args.dropout < 1:
        parser.error(f"--dropout {args.dropout} is not from 0 to below 1")
    return args


def positive(text: str) -> int:
    """A whole number from 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def positive_number(text: str) -> float:
    """A finite number above 0."""
    if not 0 < float(text) < math.inf:
        raise ValueError
    return float(text)


def make_partial(out: Path) -> Path:
    """The folder beside `out` that becomes it when the run is over."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SystemExit(f"Error: {out} is there already; name another folder")
    partial = out.with_name(out.name + ".partial")
    if (partial / "model.safetensors").exists():
        raise SystemExit(
            f"Error: {partial} holds the best of a run that was interrupted; move it away"
        )
    partial.mkdir(parents=True, exist_ok=True)
    return partial


def main() -> None:
    """Train and write what came out best."""
    args = parse_arguments()
    merges = read_merges(Path(__file__).with_name("merges.txt"), args.vocabulary)
    ranks = token_ranks(merges)
    encoding = tiktoken.Encoding(
        "austen", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={END: len(ranks)}
    )
    sizes = Sizes(
        vocabulary=len(ranks) + 1,
        positions=args.positions,
        width=args.width,
        heads=args.heads,
        layers=args.layers,
        batch=args.batch,
        dropout=args.dropout,
    )
    tokens = read_tokens(args.text, encoding)
    parts = split(tokens, sizes.positions, args.text)
    partial = make_partial(args.out)
    torch.manual_seed(args.seed)
    network = Network(sizes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(f"{len(tokens)} tokens, {parameters} parameters", flush=True)

    write_vocabulary(partial, merges)
    write_config(partial, sizes)
    train(network, parts, sizes, args, lambda: write_weights(partial, network))
    partial.replace(args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
