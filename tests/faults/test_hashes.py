"""A flipped bit in the Hub's cache: seen by the hash that the Hub told, wherever it is."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, Repository, served
from huggingface_hub import constants
from program import done, refusal

pytestmark = pytest.mark.usefixtures("one_thread")

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hub"
KINDS = {
    "hub-released": "model.safetensors",
    "hub-sharded": "model-00002-of-00002.safetensors",
    "hub-bin": "pytorch_model.bin",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with a repository for each kind of fixture, and an empty cache."""
    with served(monkeypatch, tmp_path / "cache") as server:
        for kind in KINDS:
            files = {path.name: path.read_bytes() for path in (FIXTURES / kind).iterdir()}
            server.repositories[f"owner/{kind}"] = Repository(files)
        yield server


def flip(path: Path, place: float) -> None:
    """Change the lowest bit of the byte that lies so far into the file."""
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.resolve().write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("hub-released", place) for place in (0, 0.01, 0.5, 1)),
        ("hub-sharded", 0.5),
        ("hub-bin", 0.5),
    ],
)
def test_one_flipped_bit_of_the_weights_is_named_by_verify_and_download(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, kind: str, place: float
) -> None:
    model = f"owner/{kind}"
    weights = Path(done("download", model).text[:-1]) / KINDS[kind]
    sound = weights.read_bytes()
    flip(weights, place)
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        for args in (("verify", model), ("verify", model, "--json"), ("download", model)):
            line = refusal(*args)
            assert f"by size or hash: {weights}; `gpt2 download --force {model}@" in line
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    done("download", model, "--force")
    assert weights.read_bytes() == sound
    done("verify", model)


def test_a_flipped_bit_of_the_config_is_named_too(hub: HubServer) -> None:
    folder = Path(done("download", "owner/hub-released").text[:-1])
    flip(folder / "config.json", 0.5)
    assert str(folder / "config.json") in refusal("verify", "owner/hub-released")


def test_verify_says_which_files_have_the_hashes_that_the_hub_told(hub: HubServer) -> None:
    lines = done("verify", "owner/hub-sharded").text.splitlines()
    (row,) = [line.split() for line in lines if line.startswith("  hub_hash")]
    assert row[1:] == ["4", "ok", "exact"]
    found = json.loads(done("verify", "owner/hub-sharded", "--json").text)
    checks = [check for check in found["checks"] if check["kind"] == "hub_hash"]
    assert [check["name"] for check in checks] == [
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        KINDS["hub-sharded"],
    ]
    assert found["checks"][: len(checks)] == checks
    assert {(check["passed"], check["worst"], check["tolerance"]) for check in checks} == {
        (True, None, "exact")
    }


def test_a_cache_without_links_keeps_no_hashes_and_verify_says_so(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    ran = done("verify", "owner/hub-released")
    assert "hub_hash" not in ran.text
    assert "`gpt2 download owner/hub-released` asks the Hub" in ran.err
    assert done("verify", "owner/hub-released", "-q").err == ""
