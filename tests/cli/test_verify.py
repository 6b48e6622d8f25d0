"""``gpt2 verify``: other people's logits, planted faults, and references that are none."""

import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TINY, random_arrays, write
from program import child, done, refusal, run
from safetensors.numpy import load_file, save_file

from gpt2cli.checkpoint import Checkpoint
from gpt2cli.verification import published

FIXTURES = Path(__file__).parents[1] / "fixtures"
FOLDERS = [*sorted(FIXTURES.glob("hub/*")), *sorted(FIXTURES.glob("openai-tf*"))]
RELEASED = FIXTURES / "hub" / "hub-released"

each_fixture = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def report(*args: object, passed: bool) -> dict[str, Any]:
    """The JSON of a run whose exit code says what it says."""
    ran = run("verify", *map(str, args), "--json")
    assert ran.code == (0 if passed else 1), ran
    found = json.loads(ran.out, parse_constant=pytest.fail)
    assert found["passed"] is passed
    return found


def failing(found: dict[str, Any]) -> list[str]:
    """The names of the checks that failed."""
    return [check["name"] for check in found["checks"] if not check["passed"]]


# Other people's logits


@each_fixture
def test_logits_that_other_peoples_code_computed_are_met(folder: Path) -> None:
    expected = folder / "expected.json"
    found = report(folder, "--reference", expected, passed=True)
    rows = json.loads(expected.read_text())["input_ids"]
    assert (found["kind"], found["positions"]) == ("reference", sum(map(len, rows)))
    assert found["argmax_agreement"] == 1
    assert found["tolerance_used"] < 0.1


def config_of(folder: Path) -> Path:
    config = folder / "config.json"
    return config if config.exists() else folder / "hparams.json"


# Those that say their config in a file of its own.
CONFIGURED = [folder for folder in FOLDERS if config_of(folder).exists()]


def concerned(field: str, value: object) -> list[Path]:
    """The fixtures in which a field has this value; OpenAI's have GPT-2's own."""
    return [
        f for f in CONFIGURED if json.loads(config_of(f).read_text()).get(field, value) == value
    ]


PLANTED = [
    (folder, field, wrong)
    for field, right, wrong in (
        ("layer_norm_epsilon", 1e-5, 1e-6),
        ("activation_function", "gelu_new", "gelu"),
    )
    for folder in concerned(field, right)
]


@pytest.mark.parametrize(("folder", "field", "wrong"), PLANTED)
def test_the_wrong_epsilon_and_the_wrong_gelu_fail_wherever_they_apply(
    tmp_path: Path, folder: Path, field: str, wrong: object
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads(config_of(copy).read_text())
    config_of(copy).write_text(json.dumps(config | {field: wrong}))
    report(copy, "--reference", copy / "expected.json", passed=False)


def test_faults_were_planted_in_all_fixtures_but_those_with_another_epsilon_or_activation() -> None:
    kept = {
        field: {f.name for f, planted, _ in PLANTED if planted == field} for _, field, _ in PLANTED
    }
    everywhere = {folder.name for folder in CONFIGURED}
    assert everywhere - kept["layer_norm_epsilon"] == {"variant-inner-erf-eps"}
    assert everywhere - kept["activation_function"] == {
        "variant-inner-erf-eps",
        "variant-relu",
        "variant-silu",
    }


def test_one_changed_weight_fails(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole")
    done("verify", str(whole), "--record", str(tmp_path / "r.json"))
    arrays = random_arrays()
    arrays["h.1.mlp.c_fc.weight"][3, 5] += 0.01
    changed = write(tmp_path / "changed", arrays=arrays)
    report(whole, "--reference", tmp_path / "r.json", passed=True)
    report(changed, "--reference", tmp_path / "r.json", passed=False)


# What is printed


def test_the_json_has_the_promised_keys_and_no_others(tmp_path: Path) -> None:
    keys = {
        *("passed", "kind", "positions", "max_abs_diff", "max_abs_logprob_diff", "mean_kl"),
        *("argmax_agreement", "tolerance_used", "checks", "first_divergence", "causes"),
    }
    for found in (
        report(RELEASED, passed=True),
        report(RELEASED, "--reference", RELEASED / "expected.json", passed=True),
        report(RELEASED, "--reference", other(tmp_path, logits=7), passed=False),
    ):
        assert set(found) == keys
        for check in found["checks"]:
            assert set(check) == {"kind", "name", "passed", "worst", "tolerance"}


def test_figures_are_printed_whether_it_passes_or_not(tmp_path: Path) -> None:
    expected = RELEASED / "expected.json"
    for args, verdict in (((), "PASS"), (("--atol", "0", "--rtol", "0"), "FAIL")):
        ran = run("verify", str(RELEASED), "--reference", str(expected), *args)
        lines = ran.text.splitlines()
        assert lines[0].startswith(f"{RELEASED} against transformers 5.24.0 GPT2LMHeadModel")
        for figure in ("max |Δlogit|", "max |Δlogprob|", "mean KL", "tolerance used"):
            assert sum(line.startswith(f"  {figure} ") for line in lines) == 1
        assert "  positions compared  22" in lines
        assert "  argmax agreement    22 of 22" in lines
        assert lines[-1] == verdict
        assert (ran.code, ran.err) == (0 if verdict == "PASS" else 1, "")


def test_tolerances_are_the_users_and_are_named() -> None:
    def used(*args: object, passed: bool) -> float:
        found = report(RELEASED, "--reference", RELEASED / "expected.json", *args, passed=passed)
        return found["tolerance_used"]

    strict = used("--atol", 1e-9, "--rtol", 0, passed=False)
    # with no relative part a hundred times the tolerance is a hundredth of the share used
    assert used("--atol", 1e-7, "--rtol", 0, passed=False) == pytest.approx(strict / 100)
    assert used("--atol", 1e-4, "--rtol", 0, passed=True) == pytest.approx(strict / 1e5)
    assert used("--atol", 1e-9, "--rtol", 1, passed=True) < 1
    args = ("verify", str(RELEASED), "--reference", str(RELEASED / "expected.json"))
    assert "of 0.0001 + 2e-05·|reference| (float32)" in done(*args).text
    assert "of 0.25 + 0.5·|reference|" in done(*args, "--atol", "0.25", "--rtol", "0.5").text


def test_a_tolerance_of_0_and_one_passed_many_times_over_are_said_plainly(tmp_path: Path) -> None:
    reference = str(other(tmp_path, logits=0.125))

    def used(*args: str) -> str:
        ran = run("verify", str(RELEASED), "--reference", reference, *args)
        assert "not a number" not in ran.text
        (line,) = (line for line in ran.text.splitlines() if line.startswith("  tolerance used "))
        return line.removeprefix("  tolerance used").strip()

    zero = used("--atol", "0", "--rtol", "0")
    assert zero == "a difference where the tolerance is 0: 0 + 0·|reference| (float32)"
    assert used("--atol", "1e-5", "--rtol", "0").startswith("12,5")
    assert used("--atol", "1e-5", "--rtol", "0").endswith(
        " × the tolerance of 1e-05 + 0·|reference| (float32)"
    )
    assert re.match(r"1\.[23]e\+11 × the", used("--atol", "1e-12", "--rtol", "0"))
    assert re.match(r"12\d % of", used("--atol", "0.1", "--rtol", "0"))


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
def test_a_tolerance_that_is_no_number_is_wrong_usage(value: str) -> None:
    assert run("verify", "austen", f"--atol={value}").code == 2


@pytest.mark.parametrize("args", [(), ("--record", "r.json")])
def test_all_parts_need_a_file_that_holds_them(args: tuple[str, ...]) -> None:
    ran = run("verify", "./no/such/model", "--all", *args)
    assert ran.code == 2
    assert "--all belongs to --record FILE.safetensors" in ran.err


def test_what_failed_is_in_the_table_with_where_and_why(
    tmp_path: Path, recordings: dict[str, Path]
) -> None:
    model = write(tmp_path / "model", DEEP | {"activation_function": "gelu"})
    ran = run("verify", str(model), "--reference", str(recordings["parts"]))
    lines = ran.text.splitlines()
    assert (ran.code, ran.err) == (1, "")
    assert [line.split()[:3] for line in lines[7:9]] == [
        ["kind", "checked", "verdict"],
        ["logits", "1", "FAILED"],
    ]
    assert lines[9:] == [
        "  first divergence    h.0.mlp.act",
        "  likely cause        activation: the reference has gelu_new as its activation",
        "FAIL",
    ]
    found = report(model, "--reference", recordings["states"], passed=False)
    assert [cause["id"] for cause in found["causes"]] == ["activation"]
    assert set(found["causes"][0]) == {"id", "description"}


# References that cannot be met


def other(folder: Path, **changes: Any) -> Path:
    """The fixture's reference with other entries; a number adds to all logits, None takes out."""
    reference = json.loads((RELEASED / "expected.json").read_text())
    for name, value in changes.items():
        if name == "logits" and isinstance(value, float | int):
            value = (np.array(reference["logits"]) + value).tolist()
        reference |= {name: value}
        if value is None:
            del reference[name]
    path = folder / "other.json"
    path.write_text(json.dumps(reference))
    return path


def logits(rows: int, columns: int, width: int, fill: float = 0.0) -> list[Any]:
    return np.full((rows, columns, width), fill).tolist()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"logits": float("nan")}, "the reference holds NaN or infinity"),
        ({"logits": float("inf")}, "the reference holds NaN or infinity"),
        ({"logits": float("-inf")}, "the reference holds NaN or infinity"),
        ({"input_ids": [], "logits": []}, "the reference has no positions"),
        ({"input_ids": [[]], "logits": [[]]}, "the reference has no positions"),
        (
            {"input_ids": [[289, 290]], "logits": logits(1, 2, 290)},
            "id 290 is outside the vocabulary, 0 to 289",
        ),
        (
            {"input_ids": [[-1, 0]], "logits": logits(1, 2, 290)},
            "id -1 is outside the vocabulary, 0 to 289",
        ),
        (
            {"input_ids": [[0] * 25], "logits": logits(1, 25, 290)},
            "25 positions are more than the model's 24",
        ),
        (
            {"input_ids": [[1, 2]], "logits": logits(1, 3, 290)},
            "shapes [1, 2] and [1, 3, 290] are not input_ids [B, T] and logits [B, T, 290]",
        ),
        (
            {"input_ids": [[1, 2]], "logits": logits(1, 2, 289)},
            "shapes [1, 2] and [1, 2, 289] are not input_ids [B, T] and logits [B, T, 290]",
        ),
        (
            {"input_ids": [1, 2], "logits": logits(1, 2, 290)[0]},
            "shapes [2] and [2, 290] are not input_ids [B, T] and logits [B, T, 290]",
        ),
    ],
)
def test_a_reference_that_cannot_be_met_fails_by_name(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    reference = other(tmp_path, **changes)
    found = report(RELEASED, "--reference", reference, passed=False)
    assert failing(found) == [said]
    ran = run("verify", str(RELEASED), "--reference", str(reference))
    assert (ran.code, ran.err) == (1, "")
    assert f"  FAILED {said}\n" in ran.text
    assert ran.text.endswith("\nFAIL\n")


def states(count: int, width: int = 24) -> dict[str, np.ndarray]:
    return {f"hidden_states.{n}": np.ones((1, 2, width), np.float32) for n in range(count)}


@pytest.mark.parametrize("held", [states(2), states(4), states(3, 23)])
def test_hidden_states_of_another_shape_fail_by_name(
    tmp_path: Path, held: dict[str, np.ndarray]
) -> None:
    reference = safetensors(tmp_path, logits=np.zeros((1, 2, 61), np.float32), **held)
    found = report(write(tmp_path / "model"), "--reference", reference, passed=False)
    assert failing(found) == ["hidden states are not 3 of [1, 2, 24]"]


def test_a_shift_of_all_logits_alike_fails_though_no_probability_moves(tmp_path: Path) -> None:
    reference = other(tmp_path, logits=0.125)
    found = report(RELEASED, "--reference", reference, passed=False)
    assert found["max_abs_diff"] == pytest.approx(0.125, abs=1e-4)
    assert found["max_abs_logprob_diff"] < 1e-4
    assert found["argmax_agreement"] == 1


@pytest.mark.parametrize("scale", [3e38, 1e30])
def test_a_network_that_computes_nan_or_infinity_fails_by_name(
    tmp_path: Path, scale: float
) -> None:
    folder = write(tmp_path / "sound")
    done("verify", str(folder), "--record", str(tmp_path / "r.json"))
    arrays = random_arrays()
    arrays["ln_f.weight"][:] = scale
    arrays["wte.weight"][0] *= np.float32(1e30)
    folder = write(tmp_path / "model", arrays=arrays)
    found = report(folder, "--reference", tmp_path / "r.json", passed=False)
    assert "the network computes NaN or infinity" in failing(found)
    assert found["max_abs_diff"] is None
    assert found["tolerance_used"] is None
    report(folder, passed=False)


# Files that are no references


def safetensors(folder: Path, ids: type = np.int64, **arrays: np.ndarray) -> Path:
    """A safetensors reference of two positions."""
    path = folder / "r.safetensors"
    save_file({"input_ids": np.array([[1, 2]], ids)} | arrays, path)
    return path


def json_file(text: str) -> Callable[[Path], Path]:
    def written(folder: Path) -> Path:
        path = folder / "r.json"
        path.write_text(text)
        return path

    return written


def cut_off(folder: Path) -> Path:
    path = safetensors(folder, logits=np.zeros((1, 2, 290), np.float32))
    path.write_bytes(path.read_bytes()[:-1])
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda folder: folder / "none.json",
            "none.json: No such file or directory; check the path",
        ),
        (lambda folder: folder, "Is a directory; check the path"),
        (json_file(""), "r.json is no reference: it is empty"),
        (json_file("<!DOCTYPE html>"), "r.json is no reference: it is a web page"),
        (json_file("[1, 2]"), "r.json is no reference: it begins with"),
        (json_file('{"input_ids": [[1]]'), "r.json is not JSON"),
        (json_file("{}"), "r.json has no input_ids"),
        (json_file('{"input_ids": [[1]]}'), "r.json has no logits"),
        (json_file('{"logits": [[[1.0]]]}'), "r.json has no input_ids"),
        (json_file('{"input_ids": [[1, 2], [3]], "logits": []}'), "(expected sequence of length 2"),
        (json_file('{"input_ids": [[1.5]], "logits": []}'), "input_ids are not all whole"),
        (json_file('{"input_ids": [[true]], "logits": []}'), "input_ids are not all whole"),
        (json_file('{"input_ids": [[1, true]], "logits": []}'), "input_ids are not all whole"),
        (json_file(f'{{"input_ids": [[{2**70}]], "logits": []}}'), "(Overflow when"),
        (json_file('{"input_ids": null, "logits": []}'), "input_ids is no block"),
        (json_file('{"input_ids": "1", "logits": []}'), "input_ids is no block"),
        (json_file('{"input_ids": [[1]], "logits": [["a"]]}'), "logits is no block"),
        (json_file('{"input_ids": [[1]], "logits": {"a": 1}}'), "logits is no block"),
        (cut_off, "r.safetensors cannot be read as safetensors"),
        (lambda folder: safetensors(folder), "r.safetensors has no logits"),
        (
            lambda folder: safetensors(folder, np.float32, logits=np.zeros((1, 2, 290), "f")),
            "input_ids are not whole numbers",
        ),
    ],
)
def test_a_file_that_is_no_reference_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    assert said in refusal("verify", str(RELEASED), "--reference", str(make(tmp_path)))


def test_a_reference_is_read_before_the_model_is_fetched(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    assert f"cannot read {missing}: No such file" in refusal(
        "verify", "gpt2", "--reference", str(missing)
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_recording_takes_no_place_of_what_it_is_made_from(tmp_path: Path, name: str) -> None:
    model = write(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    message = refusal("verify", str(model), "--record", str(model / name))
    assert "it is read in this run; name another file" in message
    made = tmp_path / "made.json"
    done("verify", str(model), "--record", str(made))
    args = ("verify", str(model), "--reference", str(made), "--record", str(made))
    assert "it is read in this run" in refusal(*args)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_a_reference_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    model = write(tmp_path / "model")
    for ending, other_name in ((".json", "a.safetensors"), (".safetensors", "b")):
        made, renamed = tmp_path / f"made{ending}", tmp_path / other_name
        done("verify", str(model), "--record", str(made))
        made.rename(renamed)
        report(model, "--reference", renamed, passed=True)


# Recording, and where a difference lies

DEEP = TINY | {"n_layer": 4}

# A weight's part of a block as a report names it.
PARTS = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a model of four blocks computes: the states between blocks, and those inside too."""
    folder = tmp_path_factory.mktemp("recordings")
    model = str(write(folder / "model", DEEP))
    files = {kind: folder / f"{kind}.safetensors" for kind in ("states", "parts")}
    done("verify", model, "--record", str(files["states"]))
    done("verify", model, "--record", str(files["parts"]), "--all")
    return files | {"model": Path(model)}


@pytest.mark.parametrize("kind", ["states", "parts"])
def test_a_recording_is_met_by_the_model_it_was_made_of(
    recordings: dict[str, Path], kind: str
) -> None:
    exact = ("--atol", 0, "--rtol", 0)
    found = report(recordings["model"], "--reference", recordings[kind], *exact, passed=True)
    assert found["first_divergence"] is None
    assert found["max_abs_diff"] == 0


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layer", range(4))
def test_a_changed_weight_is_traced_to_its_block_and_part(
    tmp_path: Path, recordings: dict[str, Path], layer: int, part: str
) -> None:
    arrays = random_arrays(DEEP)
    arrays[f"h.{layer}.{part}.weight"][..., -1] += 0.01
    model = write(tmp_path / "model", DEEP, arrays=arrays)
    for kind, named in (("states", "block"), ("parts", part)):
        found = report(model, "--reference", recordings[kind], passed=False)
        assert found["first_divergence"] == {"block": layer, "part": named}
    ran = run("verify", str(model), "--reference", str(recordings["parts"]))
    assert f"  first divergence    h.{layer}.{part}\n" in ran.text


@pytest.mark.parametrize(
    ("name", "row", "states", "parts"),
    [
        ("wpe.weight", 7, "wpe", "wpe"),
        ("wpe.weight", slice(None), "wpe", "wpe"),
        ("wte.weight", "first", "wte", "wte"),
        ("wte.weight", slice(None), "wte", "wte"),
        ("wte.weight", "unused", "logits", "logits"),
        ("ln_f.weight", slice(None), "ln_f", "ln_f"),
    ],
)
def test_a_change_outside_the_blocks_is_named(
    tmp_path: Path, recordings: dict[str, Path], name: str, row: Any, states: str, parts: str
) -> None:
    ids = used_ids(recordings["states"])
    rows = {"first": ids[0], "unused": next(n for n in range(61) if n not in ids)}
    arrays = random_arrays(DEEP)
    arrays[name][rows.get(row, row) if isinstance(row, str) else row] *= np.float32(1.1)
    model = write(tmp_path / "model", DEEP, arrays=arrays)
    for kind, named in (("states", states), ("parts", parts)):
        found = report(model, "--reference", recordings[kind], passed=False)
        assert found["first_divergence"] == {"block": None, "part": named}


def used_ids(path: Path) -> list[int]:
    return load_file(path)["input_ids"].flatten().tolist()


@pytest.mark.parametrize(
    ("field", "value", "layer", "part"),
    [
        ("activation_function", "gelu", 0, "mlp.act"),
        ("scale_attn_weights", False, 0, "attn"),
        ("scale_attn_by_inverse_layer_idx", True, 1, "attn"),
        ("layer_norm_epsilon", 0.1, 0, "ln_1"),
    ],
)
def test_a_field_that_differs_is_traced_to_what_it_changes(
    tmp_path: Path, recordings: dict[str, Path], field: str, value: object, layer: int, part: str
) -> None:
    model = write(tmp_path / "model", DEEP | {field: value})
    found = report(model, "--reference", recordings["parts"], passed=False)
    assert found["first_divergence"] == {"block": layer, "part": part}


def test_a_recording_with_a_reference_is_of_the_references_ids(tmp_path: Path) -> None:
    expected, made = RELEASED / "expected.json", tmp_path / "made.json"
    done("verify", str(RELEASED), "--reference", str(expected), "--record", str(made))
    ids = [json.loads(path.read_text())["input_ids"] for path in (expected, made)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("ids", [[[290]], [[0] * 25], [[]], [1, 2]])
def test_ids_that_cannot_be_run_are_not_recorded(tmp_path: Path, ids: list[Any]) -> None:
    made = tmp_path / "made.json"
    report(RELEASED, "--reference", other(tmp_path, input_ids=ids), "--record", made, passed=False)
    assert not made.exists()


# Recordings that fail


def on_a_full_disk() -> None:
    """In the process that calls it, no file may grow past a kilobyte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.parametrize("name", ["r.json", "r.safetensors"])
def test_a_recording_that_fails_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    args = ("verify", str(RELEASED), "--record", str(path))
    # nor may Python cut off what it compiles
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    with child(*args, preexec_fn=on_a_full_disk, env=environment) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert f"Error: cannot write {path}: File too large" in err.decode()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["r.json", "r.safetensors"])
def test_a_recording_that_is_interrupted_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_text("old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    ran = run("verify", str(RELEASED), "--record", str(path))
    assert (ran.code, path.read_text()) == (130, "old")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["-", "r", "r.st", "r.bin", "json"])
def test_a_recording_whose_name_does_not_say_its_form_is_wrong_usage(name: str) -> None:
    ran = run("verify", "./no/such/model", "--record", name)
    assert (ran.code, ran.out) == (2, b"")
    assert repr(name) in ran.err


def test_a_recording_goes_to_what_a_link_leads_to_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.json", tmp_path / "there" / "r.json"
    for _ in range(2):  # to nothing yet, then to a file
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        done("verify", str(RELEASED), "--record", str(link))
        assert link.is_symlink()
        assert "input_ids" in json.loads(target.read_text())
        assert list(target.parent.iterdir()) == [target]
        target.write_text("old")


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path) -> None:
    pipe, link, circle = (tmp_path / f"{name}.json" for name in ("pipe", "link", "circle"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    circle.symlink_to(circle)
    for path in (pipe, link, circle):
        before = path.lstat()
        said = refusal("verify", "gpt2", "--record", str(path))
        assert f"cannot write {path}: " in said
        assert path.lstat() == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/r.json", "there is no folder"),
        ("folder.json", "it is a folder"),
        ("file/r.json", "there is no folder"),
        ("x" * 300 + ".json", "File name too long"),
    ],
)
def test_a_recording_that_cannot_be_written_is_refused_before_the_model_is_fetched(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").touch()
    message = refusal("verify", "gpt2", "--record", str(tmp_path / name))
    assert f"cannot write {tmp_path / name}: {said}" in message


# Against another network


def test_a_checkpoint_is_compared_with_another_live(tmp_path: Path) -> None:
    sound = write(tmp_path / "sound", DEEP)
    same = write(tmp_path / "same", DEEP, prefix="transformer.")
    found = report(sound, "--against", same, passed=True)
    assert (found["kind"], found["positions"], found["max_abs_diff"]) == ("against", 2 * 16, 0)
    arrays = random_arrays(DEEP)
    arrays["h.2.mlp.c_fc.weight"] += np.float32(0.01)
    changed = write(tmp_path / "changed", DEEP, arrays=arrays)
    found = report(sound, "--against", changed, passed=False)
    assert found["first_divergence"] == {"block": 2, "part": "mlp.c_fc"}
    assert found["causes"] == []


def test_a_checkpoint_of_other_sizes_fails_by_name(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours")
    theirs = write(tmp_path / "theirs", TINY | {"vocab_size": 50})
    found = report(ours, "--against", theirs, passed=False)
    assert failing(found) == [
        "shapes [2, 16] and [2, 16, 50] are not input_ids [B, T] and logits [B, T, 61]"
    ]


@pytest.mark.parametrize("folder", FOLDERS[::4], ids=lambda folder: folder.name)
def test_transformers_agrees_live(folder: Path) -> None:
    found = report(folder, "--against", "transformers", passed=True)
    assert found["kind"] == "against"
    assert found["tolerance_used"] < 0.1


def test_transformers_is_asked_for_by_name_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = refusal("verify", "gpt2", "--against", "transformers")
    assert "transformers is not installed; pip install 'gpt2cli[verify]'" in said


# llm.c's debug state


def test_llmcs_own_model_meets_its_debug_state() -> None:
    llmc = FIXTURES / "llmc"
    args = (llmc / "model.bin", "--reference", llmc / "debug_state.bin")
    found = report(*args, passed=True)
    assert [check["kind"] for check in found["checks"]] == ["logits", "loss"]
    assert found["tolerance_used"] < 0.1
    said = refusal("verify", "austen", "--reference", str(llmc / "debug_state.bin"))
    assert "is no debug state of this model" in said


# Published figures


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fixture in the place of a release; the file that holds what is published of it."""
    expected = json.loads((RELEASED / "expected.json").read_text())
    common = {"confidence": "one_source", "sources": ["tests"]}
    logits = {
        "id": "some.logits",
        "kind": "logits",
        "input_ids": expected["input_ids"][0],
        "position": 3,
        "indices": [5, 6],
        "values": expected["logits"][0][3][5:7],
        "tolerance": 1e-3,
    }
    config = {"id": "some.config", "kind": "config", "values": {"n_layer": 3}}
    size = {"id": "some.size", "kind": "file_size", "files": {"model.safetensors": 7}}
    path = tmp_path / "gpt2.json"
    path.write_text(json.dumps({"facts": [common | fact for fact in (logits, config, size)]}))
    checkpoint = Checkpoint.open(RELEASED)
    monkeypatch.setattr("gpt2cli.cli.verify_task.fetch", lambda name, **_: RELEASED)
    monkeypatch.setattr("gpt2cli.cli.verify_task.open_weights", lambda name, quiet: checkpoint)
    shipped = published.figures_file
    monkeypatch.setattr(
        published, "figures_file", lambda name: path if name == "gpt2" else shipped(name)
    )
    return path


@pytest.mark.parametrize("name", ["gpt2", "gpt2@main"])
def test_a_released_size_is_checked_against_published_figures(released: Path, name: str) -> None:
    found = report(name, passed=True)
    assert (found["kind"], found["mean_kl"]) == ("published", None)
    kinds = [check["kind"] for check in found["checks"]]
    assert kinds == ["config", "file_size", *["tokens"] * 78, "logits"]
    assert found["checks"][-1]["tolerance"] == "0.001"
    assert found["checks"][1]["name"].startswith("some.size: model.safetensors has ")
    lines = done("verify", name).text.splitlines()
    assert lines[0] == f"{name} against figures that others published"
    table = {line.split()[0]: line.split()[1:3] for line in lines[4:-2]}
    assert table["config"] == ["1", "ok"]
    assert table["file_size"] == ["1", "warning"]
    assert table["tokens"] == ["78", "ok"]
    assert table["logits"] == ["1", "ok"]
    assert lines[-2].startswith("  warning some.size: model.safetensors has ")
    assert lines[-1] == "PASS"


def test_what_follows_a_failed_stage_is_named_and_not_run(released: Path) -> None:
    facts = json.loads(released.read_text())
    facts["facts"][1]["values"]["n_layer"] = 12
    released.write_text(json.dumps(facts))
    ran = run("verify", "gpt2")
    assert ran.code == 1
    assert "  FAILED some.config: n_layer is 3, not 12\n" in ran.text
    assert "  not run, as something before failed: tokens, logits\n" in ran.text
    assert ran.text.endswith("\nFAIL\n")


# The installation


def test_the_selftest_needs_no_files() -> None:
    ran = done("verify", "--selftest")
    assert ran.text.startswith("this installation against float64 arithmetic")
    assert ran.text.endswith("\nPASS\n")
    assert report("--selftest", passed=True)["kind"] == "self"
    assert report("--selftest", "--atol", 0, "--rtol", 0, passed=False)["causes"] == []


@pytest.mark.parametrize(
    "args",
    [
        ("--selftest", "austen"),
        ("--selftest", "-m", "austen"),
        ("--selftest", "--record", "r.json"),
        ("--selftest", "--dtype", "int8"),
        ("--selftest", "--device", "cpu"),
        ("--selftest", "--against", "austen"),
        ("gpt2", "--atol", "1"),
        ("124M@main", "--rtol", "1"),
        ("austen", "--reference", "r.json", "--against", "austen"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(args: tuple[str, ...]) -> None:
    assert run("verify", *args).code == 2


# Without a reference


@pytest.mark.parametrize("model", ["austen", *map(str, FOLDERS)])
def test_a_sound_model_is_consistent_with_itself(model: str) -> None:
    ran = done("verify", model)
    assert ran.text.endswith("\nPASS: self-consistent (nothing outside was compared)\n")
    found = report(model, passed=True)
    assert found["kind"] == "self"
    # where rows are exact, a text with drafts and without is the sixth
    assert [check["kind"] for check in found["checks"]] in (["self"] * 5, ["self"] * 6)
