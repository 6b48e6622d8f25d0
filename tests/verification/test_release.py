"""Published figures on a made-up release: sound, and with one fault of each kind planted."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import TINY, random_arrays, write

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.loader import load
from gpt2cli.presets import PRESETS
from gpt2cli.tokenizer import load_tokenizer
from gpt2cli.verification.comparison import Report
from gpt2cli.verification.published import (
    KINDS,
    STAGES,
    TOKENIZER,
    figures_file,
    read_facts,
)
from gpt2cli.verification.release import Release, check_release

CONFIG = TINY | {"vocab_size": 50257, "n_embd": 12, "n_positions": 32}
TEXT = "Hello, I am"
IDS = [15496, 11, 314, 716]
LONGER = [15496, 11, 314, 716, 317, 13, 198, 220, 464, 3290, 373]

Data = dict[str, Any]


class Oracle:
    """transformers on the same weights, in float64."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        fields = {name: value for name, value in CONFIG.items() if name != "model_type"}
        config = transformers.GPT2Config(**fields, attn_implementation="eager")
        self.model = transformers.GPT2LMHeadModel(config).double().eval()
        state = {f"transformer.{name}": torch.tensor(array) for name, array in arrays.items()}
        state["lm_head.weight"] = state["transformer.wte.weight"]
        self.model.load_state_dict({name: t.double() for name, t in state.items()})

    @torch.no_grad()
    def __call__(self, ids: list[int]) -> Any:
        return self.model(torch.tensor([ids]), output_hidden_states=True, use_cache=True)

    def logits(self, ids: list[int]) -> torch.Tensor:
        return self(ids).logits[0]

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        return self.logits(ids).log_softmax(-1)

    def greedy(self, ids: list[int], count: int) -> list[int]:
        path = list(ids)
        for _ in range(count):
            path.append(int(self.logits(path)[-1].argmax()))
        return path[len(ids) :]

    @torch.no_grad()
    def ablated_loss(self, layer: int, head: int) -> float:
        """The loss with one head's values zeroed, by way of its weights."""
        changed = copy.deepcopy(self.model)
        c_attn = changed.transformer.h[layer].attn.c_attn
        width = CONFIG["n_embd"] // CONFIG["n_head"]
        start = 2 * CONFIG["n_embd"] + head * width
        c_attn.weight[:, start : start + width] = 0
        c_attn.bias[start : start + width] = 0
        logprobs = changed(torch.tensor([IDS])).logits[0].log_softmax(-1)
        return -float(logprobs[range(3), IDS[1:]].mean())


def made_up(oracle: Oracle, folder: Path, arrays: dict[str, np.ndarray]) -> list[Data]:
    """Facts of every kind, as another program tells them."""
    out, logits, logprobs = oracle(IDS), oracle.logits(IDS), oracle.logprobs(IDS)
    inner = oracle.model.transformer
    steps = oracle.greedy(IDS, 4)
    path = oracle.logprobs([*IDS, *steps])[len(IDS) - 1 : -1]
    longer = oracle.logprobs(LONGER)
    halves = [oracle.logprobs(LONGER[:5]), oracle.logprobs(LONGER[5:10])]
    row_losses = [
        -float(rows[range(5), LONGER[n + 1 : n + 6]].mean())
        for n, rows in zip((0, 5), halves, strict=True)
    ]
    top = logprobs[-1].topk(3)
    with torch.no_grad():
        rows = inner.wte(torch.tensor([IDS]))
        c_fc = inner.h[0].mlp.c_fc(rows)[0, 1, [0, 2]]
    before_ln_f = seen(oracle, inner.ln_f)
    file = folder / "model.safetensors"
    shapes = {name: [*array.shape] for name, array in arrays.items()}
    cache = out.past_key_values.layers
    embeddings = CONFIG["vocab_size"] * 12, 32 * 12
    block = sum(np.prod(s) for n, s in shapes.items() if n.startswith("h.0."))
    total = int(sum(np.prod(shape) for shape in shapes.values()))
    return [
        {"kind": "config", "values": {"n_layer": 2, "n_head": 3, "n_inner": 48}},
        {
            "kind": "tensors",
            "tensors": {n: s for n, s in shapes.items() if not n.startswith("h.")},
            "block_tensors": {n[4:]: s for n, s in shapes.items() if n.startswith("h.0.")},
        },
        {
            "kind": "parameters",
            "values": {
                "total": total,
                "wte": embeddings[0],
                "wpe": embeddings[1],
                "per_block": int(block),
                "ln_f": 24,
                "non_embedding": total - sum(embeddings),
                "tensors": len(shapes),
            },
        },
        {"kind": "file_size", "files": {file.name: file.stat().st_size}},
        {"kind": "file_size", "files": {"absent.bin": 1}},
        {
            "kind": "file_hash",
            "file": file.name,
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        },
        {
            "kind": "weight",
            "tensor": "wte.weight",
            "row": 9,
            "columns": [0, 1, 11],
            "values": arrays["wte.weight"][9, [0, 1, 11]].tolist(),
        },
        {
            "kind": "weight",
            "tensor": "ln_f.weight",
            "columns": [3],
            "values": [float(arrays["ln_f.weight"][3])],
        },
        {
            "kind": "weight_derived",
            "tokens": [11, 314],
            "values": [
                float(arrays["ln_f.bias"] @ (arrays["wte.weight"][11] - arrays["wte.weight"][314]))
            ],
        },
        {"kind": "tokens", "text": TEXT, "input_ids": IDS},
        {"kind": "tokens", "text": "<|endoftext|>", "input_ids": [50256], "special": True},
        {
            "kind": "intermediate",
            "part": "h.0.mlp.c_fc",
            "position": 1,
            "indices": [0, 2],
            "values": c_fc.tolist(),
        },
        {
            "kind": "kv_mean",
            "of": "keys",
            "values": [float(layer.keys.mean()) for layer in cache],
        },
        {
            "kind": "kv_mean",
            "of": "values",
            "values": [float(layer.values.mean()) for layer in cache],
        },
        {
            "kind": "last_hidden_state",
            "positions": [0, 2],
            "indices": [1, 5],
            "values": out.hidden_states[-1][0, [0, 2]][:, [1, 5]].tolist(),
        },
        {
            "kind": "final_ln_std",
            "position": 3,
            "values": [float((before_ln_f[3].var(correction=0) + 1e-5).sqrt())],
        },
        {
            "kind": "logits",
            "position": 2,
            "indices": [0, 11, 50256],
            "values": logits[2, [0, 11, 50256]].tolist(),
        },
        {"kind": "logits_mean", "positions": [0, 3], "values": [float(logits[[0, 3]].mean())]},
        {
            "kind": "logit_difference",
            "position": 1,
            "indices": [11, 314],
            "values": [float(logits[1, 11] - logits[1, 314])],
        },
        {"kind": "argmax", "positions": [0, 3], "values": logits[[0, 3]].argmax(-1).tolist()},
        {
            "kind": "probs",
            "position": 0,
            "indices": [11, 0],
            "values": logprobs[0, [11, 0]].exp().tolist(),
            "tolerance": 1e-7,
        },
        {
            "kind": "top_probs",
            "position": 3,
            "indices": top.indices.tolist(),
            "values": top.values.exp().tolist(),
            "tolerance": 1e-6,
        },
        {
            "kind": "token_logprobs",
            "positions": [0, 1, 2],
            "indices": IDS[1:],
            "values": logprobs[range(3), IDS[1:]].tolist(),
        },
        {
            "kind": "token_logprobs",
            "contexts": [IDS[:1], IDS[1:3]],
            "indices": [11, 716],
            "values": [
                float(oracle.logprobs(IDS[:1])[-1, 11]),
                float(oracle.logprobs(IDS[1:3])[-1, 716]),
            ],
        },
        {"kind": "sequence_logprob", "values": [float(logprobs[range(3), IDS[1:]].sum())]},
        {
            "kind": "continuation_logprob",
            "input_ids": LONGER[:4],
            "continuation": LONGER[4:],
            "values": [float(longer[range(3, 10), LONGER[4:]].sum())],
            "relative_tolerance": 1e-5,
        },
        {"kind": "is_greedy", "continuation": steps, "values": [True]},
        {"kind": "is_greedy", "continuation": [*steps[:3], 0], "values": [False]},
        {"kind": "loss", "values": [-float(logprobs[range(3), IDS[1:]].mean())]},
        {"kind": "loss", "input_ids": LONGER, "row_length": 5, "values": [np.mean(row_losses)]},
        {
            "kind": "loss",
            "zeroed_values": {"layer": 1, "head": 2},
            "values": [oracle.ablated_loss(1, 2)],
        },
        {
            "kind": "greedy_step_logits",
            "values": oracle.logits([*IDS, *steps])[3:7].amax(-1).tolist(),
        },
        {"kind": "greedy_step_logprobs", "values": path[range(4), steps].tolist()},
        {
            "kind": "greedy_step_logprobs",
            "indices": steps,
            "values": path[range(4), steps].tolist(),
        },
        {"kind": "greedy", "continuation": steps},
        {"kind": "greedy", "text": TEXT, "input_ids": None, "continuation": steps},
    ]


def seen(oracle: Oracle, module: torch.nn.Module) -> torch.Tensor:
    """What goes into a module for IDS, [T, C]."""
    inputs: list[torch.Tensor] = []
    hook = module.register_forward_hook(lambda _, args, out: inputs.append(args[0][0]))
    oracle(IDS)
    hook.remove()
    return inputs[0]


EXACT = ("config", "tensors", "parameters", "file_size", "file_hash", "tokens", "argmax", "greedy")


def whole(number: int, data: Data) -> Data:
    """A fact with what all have; exact kinds have no tolerance."""
    tolerance = {} if data["kind"] in EXACT or "relative_tolerance" in data else {"tolerance": 1e-4}
    ids = {} if data["kind"] in (*EXACT[:6], "weight", "weight_derived") else {"input_ids": IDS}
    about = {"id": f"{data['kind']}.{number}", "confidence": "one_source", "sources": ["tests"]}
    return about | tolerance | ids | data


def other_numbers(data: Data) -> None:
    first = data["values"][0]
    bound = data.get("tolerance", 0) + data.get("relative_tolerance", 0) * abs(first or 0)
    data["values"][0] = first + 1.5 * bound


def other_token(data: Data) -> None:
    data["continuation" if data["kind"] == "greedy" else "values"][-1] = 7


def entry(key: str, name: str, value: Any) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        data[key][name] = value

    return change


def other_rows(data: Data) -> None:
    data["values"][0][1] += 2e-4


# What is changed in the first fact of each kind.
FAULTS: dict[str, Callable[[Data], Any]] = {
    "config": entry("values", "n_head", 4),
    "tensors": entry("tensors", "wpe.weight", [31, 12]),
    "parameters": entry("values", "per_block", 5),
    "file_size": entry("files", "model.safetensors", 5),
    "file_hash": lambda data: data.update(sha256="0" * 64),
    "tokens": lambda data: data.update(input_ids=[15496, 11, 314]),
    "last_hidden_state": other_rows,
    "argmax": other_token,
    "greedy": other_token,
    "top_probs": lambda data: data.update(indices=data["indices"][::-1]),
    "is_greedy": lambda data: data.update(values=[False]),
} | dict.fromkeys(
    (
        *("weight", "weight_derived", "intermediate", "kv_mean", "final_ln_std", "logits"),
        *("logits_mean", "logit_difference", "probs", "token_logprobs", "sequence_logprob"),
        *("continuation_logprob", "loss", "greedy_step_logits", "greedy_step_logprobs"),
    ),
    other_numbers,
)

WARNED = ("file_size", "file_hash")  # a re-saved file differs, and may still hold the release


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("release"), CONFIG, arrays=random_arrays(CONFIG))


@pytest.fixture(scope="module")
def figures(folder: Path) -> list[Data]:
    arrays = random_arrays(CONFIG)
    facts = made_up(Oracle(arrays), folder, arrays)
    return [whole(number, data) for number, data in enumerate(facts)]


def opened(folder: Path, dtype: str = "float32") -> Release:
    checkpoint = Checkpoint.open(folder)
    return Release(
        checkpoint,
        load_tokenizer(None, None),
        lambda: load(checkpoint, dtype=dtype),
        lambda: load(checkpoint, packed=False),
    )


@pytest.fixture(scope="module")
def release(folder: Path) -> Release:
    """The sound one; what it computes is kept from test to test."""
    return opened(folder)


def check(tmp_path: Path, release: Release, figures: list[Data], dtype: str = "float32") -> Report:
    """The report of a release on facts that lie in a file."""
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"model": "made up", "facts": figures}))
    return check_release(release, "made up", read_facts(path), dtype)


def apart(figures: list[Data]) -> list[Data]:
    """A copy in which no two facts share a list."""
    copied: list[Data] = json.loads(json.dumps(figures))
    return copied


def failing(report: Report) -> list[str]:
    return [found.name for found in report.checks if not found.passed]


def test_a_sound_release_passes_on_every_kind(
    tmp_path: Path, release: Release, figures: list[Data]
) -> None:
    report = check(tmp_path, release, figures)
    assert (report.passed, report.kind, report.skipped, report.causes) == (
        True,
        "published",
        (),
        (),
    )
    assert [found.name for found in report.checks if found.warning] == []
    assert {found.kind for found in report.checks} == set(KINDS)
    # the file that is not there was not checked
    assert len(report.checks) == len(figures) - 1
    assert report.comparison.argmax_agreement == 1
    assert 0 < report.comparison.max_abs_diff < 1e-4
    assert 0 < report.comparison.tolerance_used < 1


def test_the_made_up_release_has_the_kinds_of_the_real_ones_and_a_fault_for_each(
    figures: list[Data],
) -> None:
    real = {fact.kind for name in (*PRESETS, TOKENIZER) for fact in read_facts(figures_file(name))}
    assert real == {data["kind"] for data in figures} == set(FAULTS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_that_is_not_met_fails_by_its_kind_alone(
    tmp_path: Path, release: Release, figures: list[Data], kind: str
) -> None:
    changed = apart(figures)
    fact = next(data for data in changed if data["kind"] == kind)
    FAULTS[kind](fact)
    report = check(tmp_path, release, changed)
    assert failing(report) == ([] if kind in WARNED else [fact["id"]])
    assert [found.name for found in report.checks if found.warning] == [fact["id"]]
    stage = next(n for n, kinds in enumerate(STAGES) if kind in kinds)
    after = () if kind in WARNED else tuple(k for kinds in STAGES[stage + 1 :] for k in kinds)
    assert report.skipped == after


def test_an_uncertain_figure_only_warns(
    tmp_path: Path, release: Release, figures: list[Data]
) -> None:
    changed = apart(figures)
    fact = next(data for data in changed if data["kind"] == "logits")
    other_numbers(fact)
    fact["confidence"] = "uncertain"
    report = check(tmp_path, release, changed)
    assert report.passed
    assert [found.name for found in report.checks if found.warning] == [fact["id"]]


@pytest.mark.parametrize(
    ("gap", "passed", "said"),
    [(1e-4, True, "a near-tie"), (1.0, False, "not what was published")],
)
def test_a_near_tie_that_goes_the_other_way_warns_and_shows_the_gap(
    tmp_path: Path, gap: float, passed: bool, said: str
) -> None:
    arrays = random_arrays(CONFIG)
    out = Oracle(arrays)(IDS)
    state, likeliest = out.hidden_states[-1][0, -1].numpy(), int(out.logits[0, -1].argmax())
    rival = (likeliest + 1) % 50257
    step = gap * state / (state @ state)
    arrays["wte.weight"][rival] = arrays["wte.weight"][likeliest] - step
    folder = write(tmp_path / "tied", CONFIG, arrays=arrays)
    fact = whole(0, {"kind": "greedy", "continuation": [rival]})
    report = check(tmp_path, opened(folder), [fact])
    (found,) = report.checks
    what, _, apart_by = found.warning.rpartition(", ")
    assert (report.passed, found.passed) == (passed, passed)
    assert what == f"token 1 of 1 is {said}: {likeliest} here, {rival} published"
    assert float(apart_by.split()[0]) == pytest.approx(gap, rel=0.05)


@pytest.mark.parametrize(
    ("name", "place", "kinds"),
    [
        ("wte.weight", (9, 1), {"weight"}),
        ("ln_f.bias", (2,), {"weight_derived"}),
        ("h.1.mlp.c_fc.weight", (3, 5), {"logits", "last_hidden_state", "final_ln_std"}),
    ],
)
def test_a_changed_weight_of_a_release_is_seen(
    tmp_path: Path, figures: list[Data], name: str, place: tuple[int, ...], kinds: set[str]
) -> None:
    arrays = random_arrays(CONFIG)
    arrays[name][place] += 0.5
    folder = write(tmp_path / "changed", CONFIG, arrays=arrays)
    report = check(tmp_path, opened(folder), figures)
    assert not report.passed
    assert kinds <= {found.kind for found in report.checks if not found.passed}
    assert next(found.kind for found in report.checks if found.warning) == "file_hash"
    assert report.causes == ()


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("activation_function", "gelu", "activation"),
        ("layer_norm_epsilon", 1e-3, "epsilon"),
        ("scale_attn_weights", False, "attention_scale"),
        ("scale_attn_by_inverse_layer_idx", True, "inverse_layer_scale"),
    ],
)
def test_the_cause_is_named_by_published_figures(
    tmp_path: Path, figures: list[Data], field: str, value: object, cause: str
) -> None:
    folder = write(tmp_path / "changed", CONFIG | {field: value}, arrays=random_arrays(CONFIG))
    told = [data for data in figures if data["kind"] in STAGES[2]]
    report = check(tmp_path, opened(folder), told)
    assert [found.id for found in report.causes] == [cause]


def test_half_types_are_met_within_their_own_tolerance(
    tmp_path: Path, folder: Path, figures: list[Data]
) -> None:
    numbers = [data for data in figures if data["kind"] in ("logits", "loss", "token_logprobs")]
    report = check(tmp_path, opened(folder, "float16"), numbers, "float16")
    assert report.passed
    assert {found.tolerance for found in report.checks} == {"0.0201 + 0.001·|published|"}
    assert not check(tmp_path, opened(folder, "float16"), numbers).passed
