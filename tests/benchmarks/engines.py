"""One program in one process: `python engines.py ENGINE FOLDER THREADS`.

Reads a job a line on stdin, as JSON, and answers with the seconds it took. Token ids in, greedy
ids out, no end of text: every program does the same work.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

Prompts = list[list[int]]


class Ours:
    def __init__(self, folder: Path, threads: int, kind: str, drafts: bool = False) -> None:
        import torch

        from gpt2cli.checkpoint import Checkpoint
        from gpt2cli.loader import load

        torch.set_num_threads(threads)
        self.model = load(Checkpoint.open(folder), dtype=kind)
        self.drafts = drafts

    def run(self, prompts: Prompts, new: int, **sampling: float) -> float:
        from gpt2cli.generation import Request, generate
        from gpt2cli.sampling import Sampling

        choice = Sampling(**{"temperature": 0, **sampling})
        requests = [Request(tuple(prompt), new, choice) for prompt in prompts]
        began = time.perf_counter()
        for _ in generate(self.model, requests, drafts=self.drafts):
            pass
        return time.perf_counter() - began


class Transformers:
    def __init__(self, folder: Path, threads: int) -> None:
        import torch
        from transformers import GPT2LMHeadModel

        torch.set_num_threads(threads)
        self.model = GPT2LMHeadModel.from_pretrained(folder / "hub").eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def run(self, prompts: Prompts, new: int) -> float:
        import torch

        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            began = time.perf_counter()
            self.model.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False)
            return time.perf_counter() - began


class CTranslate2:
    def __init__(self, folder: Path, threads: int, kind: str) -> None:
        import ctranslate2

        self.generator = ctranslate2.Generator(
            str(folder / f"ct2-{kind}"), compute_type=kind, inter_threads=1, intra_threads=threads
        )

    def run(self, prompts: Prompts, new: int) -> float:
        words = [[str(token) for token in prompt] for prompt in prompts]
        began = time.perf_counter()
        results = self.generator.generate_batch(
            words,
            max_length=new,
            min_length=new,
            sampling_topk=1,
            include_prompt_in_result=False,
            max_batch_size=len(words),
        )
        seconds = time.perf_counter() - began
        assert all(len(result.sequences_ids[0]) == new for result in results)
        return seconds


class LlamaCpp:
    def __init__(self, folder: Path, threads: int, kind: str) -> None:
        from llama_cpp import Llama

        self.llama = Llama(
            str(folder / f"{kind}.gguf"),
            n_ctx=1024,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,
            verbose=False,
        )

    def run(self, prompts: Prompts, new: int) -> float:
        from llama_cpp import llama_get_logits_ith

        [prompt] = prompts
        llama, vocab = self.llama, self.llama.n_vocab()
        llama.reset()
        began = time.perf_counter()
        llama.eval(prompt)
        for step in range(new):
            logits = llama_get_logits_ith(llama.ctx, -1)
            token = int(np.ctypeslib.as_array(logits, shape=(vocab,)).argmax())
            if step + 1 < new:
                llama.eval([token])
        return time.perf_counter() - began


HUB = "hub"
AUSTEN_FOLDER = Path(__file__).parents[2] / "weights" / "austen"
ENGINES = {
    "gpt2cli float32": lambda folder, threads: Ours(folder / HUB, threads, "float32"),
    "gpt2cli float16": lambda folder, threads: Ours(folder / HUB, threads, "float16"),
    "gpt2cli int8": lambda folder, threads: Ours(folder / HUB, threads, "int8"),
    "gpt2cli drafted": lambda folder, threads: Ours(folder / HUB, threads, "float32", True),
    "austen": lambda folder, threads: Ours(AUSTEN_FOLDER, threads, "float32"),
    "austen drafted": lambda folder, threads: Ours(AUSTEN_FOLDER, threads, "float32", True),
    "transformers float32": Transformers,
    "CTranslate2 float32": lambda folder, threads: CTranslate2(folder, threads, "float32"),
    "CTranslate2 int8": lambda folder, threads: CTranslate2(folder, threads, "int8"),
    "llama.cpp F32": lambda folder, threads: LlamaCpp(folder, threads, "F32"),
    "llama.cpp F16": lambda folder, threads: LlamaCpp(folder, threads, "F16"),
    "llama.cpp Q8_0": lambda folder, threads: LlamaCpp(folder, threads, "Q8_0"),
}


def main() -> None:
    engine = ENGINES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(engine.run(**job), flush=True)


if __name__ == "__main__":
    main()
