"""gpt2cli beside its peers: one random GPT-2 of 124M parameters, one session, in alternation.

    python tests/benchmarks/bench.py [--rounds N] [--threads N] [--folder FOLDER] [--only ROW]

Builds the models in FOLDER, runs every row's programs in turn for some rounds, prints medians and
ratios, and writes FOLDER/results.json. Nothing else should run meanwhile.
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import models

HERE = Path(__file__).parent
PAUSE = 0.3  # seconds in which a program's threads go to sleep before the next one's turn


@dataclass(frozen=True)
class Row:
    """One job for several programs: tokens/s, or seconds where `tokens` is 0."""

    name: str
    engines: tuple[str, ...]
    prompts: list[list[int]]
    new: int
    tokens: int
    after_prompt: bool = True  # leave out what the prompt and the first token take
    sampling: dict[str, float] = field(default_factory=dict)


def ids(count: int, vocabulary: int = 50000) -> list[int]:
    return random.Random(count).choices(range(vocabulary), k=count)


PEERS = ("transformers float32", "CTranslate2 float32", "llama.cpp F32")
DRAFTS = ("gpt2cli float32", "gpt2cli drafted")
OWN = ("austen", "austen drafted")
UNIFORM = {"temperature": 1e9}

ROWS = [
    Row("decode float32", ("gpt2cli float32", *PEERS), [ids(64)], 129, 128),
    Row("decode float16", ("gpt2cli float16", "llama.cpp F16"), [ids(64)], 129, 128),
    Row(
        "decode int8",
        ("gpt2cli int8", "CTranslate2 int8", "llama.cpp Q8_0"),
        [ids(64)],
        129,
        128,
    ),
    Row(
        "batch of 32 float32",
        ("gpt2cli float32", "transformers float32", "CTranslate2 float32"),
        [ids(32 + i)[:32] for i in range(32)],
        32,
        1024,
        after_prompt=False,
    ),
    Row(
        "batch of 32 int8",
        ("gpt2cli int8", "CTranslate2 int8"),
        [ids(32 + i)[:32] for i in range(32)],
        32,
        1024,
        after_prompt=False,
    ),
    Row("prefill of 1000", ("gpt2cli float32", *PEERS), [ids(1000)], 1, 0, after_prompt=False),
    Row("decode at 50", ("gpt2cli float32",), [ids(34)], 33, 32),
    Row("decode at 1000", ("gpt2cli float32",), [ids(984)], 33, 32),
    Row("drafts, looping text", DRAFTS, [[1, 2, 3, 4, 5, 6, 7, 8] * 16], 257, 256),
    Row("drafts, uniform tokens", DRAFTS, [ids(64)], 129, 128, sampling=UNIFORM),
    Row("drafts, austen greedy", OWN, [ids(16, 4000)], 401, 400),
    Row(
        "drafts, austen t 0.8 k 40",
        OWN,
        [ids(16, 4000)],
        401,
        400,
        sampling={"temperature": 0.8, "top_k": 40},
    ),
]


class Engine:
    """A program that waits in its own process for jobs."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        command = [sys.executable, HERE / "engines.py", name, folder, str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready", f"{name} did not start"

    def seconds(self, row: Row, new: int) -> float:
        job = {"prompts": row.prompts, "new": new, **row.sampling}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        seconds = float(self._line())
        time.sleep(PAUSE)
        return seconds

    def measure(self, row: Row) -> float:
        """Tokens/s, or seconds."""
        seconds = self.seconds(row, row.new)
        if row.after_prompt:
            seconds -= self.seconds(row, 1)
        return row.tokens / seconds if row.tokens else seconds

    def close(self) -> None:
        self.process.communicate()

    def _line(self) -> str:
        return self.process.stdout.readline().strip()


def run_row(row: Row, folder: Path, threads: int, rounds: int) -> dict[str, list[float]]:
    engines = {name: Engine(name, folder, threads) for name in row.engines}
    for engine in engines.values():
        engine.measure(row)
    figures: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            figures[name].append(engine.measure(row))
    for engine in engines.values():
        engine.close()
    return figures


# Whole processes


TRANSFORMERS = """
from transformers import GPT2LMHeadModel
import torch
model = GPT2LMHeadModel.from_pretrained(FOLDER)
model.generation_config.eos_token_id = None
ids = torch.tensor([[15496, 995]])
model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
"""


def processes(folder: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Rows of commands to run as whole processes."""
    hub = str(folder / "hub")
    python = [sys.executable, "-c"]
    gpt2 = [str(Path(sys.executable).with_name("gpt2"))]
    generate = [*gpt2, "generate", "-m", hub, "-t", "0", "Hello world", "-n"]
    transformers = TRANSFORMERS.replace("FOLDER", repr(hub))
    torch = {"import torch": [*python, "import torch"]}
    yield (
        "to the first token",
        torch
        | {
            "gpt2cli float32": [*generate, "1"],
            "gpt2cli int8": [*generate, "1", "--dtype", "int8"],
            "transformers float32": [*python, transformers.replace("NEW", "1")],
        },
    )
    yield (
        "memory",
        torch
        | {
            "gpt2cli float32": [*generate, "50"],
            "gpt2cli float16": [*generate, "50", "--dtype", "float16"],
            "gpt2cli int8": [*generate, "50", "--dtype", "int8"],
            "transformers float32": [*python, transformers.replace("NEW", "50")],
        },
    )
    yield (
        "without torch",
        {
            "import click": [*python, "import click"],
            "gpt2 --help": [*gpt2, "--help"],
            "gpt2 params gpt2-xl": [*gpt2, "params", "gpt2-xl"],
        },
    )


def run_process(command: list[str]) -> tuple[float, float]:
    """Seconds, and the largest resident memory in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return time.perf_counter() - began, usage.ru_maxrss / 1000


def run_processes(commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    for round_ in range(rounds + 1):
        for name, command in commands.items():
            seconds, megabytes = run_process(command)
            if round_:  # the first one warms the caches
                figures.setdefault(f"{name} s", []).append(seconds)
                figures.setdefault(f"{name} MB", []).append(megabytes)
    return figures


def apart(call, *arguments):
    """A call's result from a process of its own: a child's peak memory begins at its parent's."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def machine(threads: int) -> dict[str, float]:
    """What this machine can do at best."""
    import torch

    torch.set_num_threads(threads)
    big, square = torch.ones(2**28), torch.ones(2048, 2048)

    def best(call) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return min(times)

    return {
        "read GB/s": 4 * 2**28 / best(big.sum) / 1e9,
        "float32 GFLOP/s": 2 * 2048**3 / best(lambda: square @ square) / 1e9,
    }


def table(name: str, figures: dict[str, list[float]]) -> None:
    medians = {key: statistics.median(values) for key, values in figures.items()}
    first = next(iter(medians.values()))
    print(f"\n{name}")
    for key, median in medians.items():
        spread = f"{min(figures[key]):.4g} to {max(figures[key]):.4g}"
        print(
            f"  {key:28} {median:10.4g}   {median / first:6.3f} × the first   {spread}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--only", default="", help="rows whose name begins so")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    apart(models.build, options.folder)
    results: dict[str, object] = {
        "machine": {"platform": platform.platform(), **apart(machine, options.threads)},
        "threads": options.threads,
    }
    print(results)
    for row in ROWS:
        if row.name.startswith(options.only):
            figures = run_row(row, options.folder, options.threads, options.rounds)
            results[row.name] = figures
            table(f"{row.name} ({'tokens/s' if row.tokens else 's'})", figures)
    for name, commands in processes(options.folder):
        if name.startswith(options.only):
            results[name] = figures = run_processes(commands, options.rounds)
            table(f"{name} (whole processes)", figures)
    (options.folder / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
