import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from hub_server import Repository, served
from huggingface_hub import constants

from gpt2cli import hub as module
from gpt2cli import repository as network
from gpt2cli.checkpoint import Checkpoint
from gpt2cli.errors import GPT2Error
from gpt2cli.hub import fetch, open_remote, parse_model, tokenizer_place

ROOT = Path(__file__).parents[1]
FIXTURES = Path(__file__).parent / "fixtures" / "hub"

TOKENIZER = {
    "vocab.json": b'{"a": 0}',
    "merges.txt": b"#version: 0.2\n",
    "tokenizer_config.json": b"{}",
}
NOT_NEEDED = {
    "README.md": b"# A model",
    ".gitattributes": b"*.bin lfs",
    "tf_model.h5": b"keras",
    "pytorch_model.bin": b"pickle",
    "64.tflite": b"tflite",
    "onnx/decoder_model.onnx": b"onnx",
    "onnx/config.json": b"{}",
}
NEEDED = {"config.json", "model.safetensors", "generation_config.json", *TOKENIZER}

MODEL = parse_model("owner/name")


def files_of(fixture):
    """A fixture's files as a repository would hold them."""
    return {
        path.name: path.read_bytes()
        for path in (FIXTURES / fixture).iterdir()
        if path.name != "expected.json"
    }


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub with the repository owner/name, and a client with an empty cache that knows it."""
    with served(monkeypatch, tmp_path / "cache") as server:
        generation = {"generation_config.json": b'{"eos_token_id": 5}'}
        files = files_of("hub-released") | generation | TOKENIZER | NOT_NEEDED
        server.repositories["owner/name"] = Repository(files)
        server.main = server.repositories["owner/name"]
        server.cache = tmp_path / "cache"
        yield server


@pytest.fixture
def no_waiting(monkeypatch):
    """Retries at once."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def refusal(call, *arguments):
    """The one line of the GPT2Error that a call ends with."""
    with pytest.raises(GPT2Error) as caught:
        call(*arguments)
    line = str(caught.value)
    assert "\n" not in line
    return line


# What is fetched, and when


def test_a_first_use_fetches_just_the_files_that_are_needed(hub):
    folder = fetch(MODEL)
    assert hub.fetched() == NEEDED
    assert {path.name for path in folder.iterdir()} == NEEDED
    assert all((folder / name).read_bytes() == hub.main.files[name] for name in NEEDED)
    asked = [r.path for r in hub.requests if r.path.startswith("/api/")]
    sha = hub.main.sha
    assert asked == [f"/api/models/owner/name/{p}" for p in ("revision/main", f"tree/{sha}")]


def test_a_second_use_makes_no_request(hub):
    first = fetch(MODEL)
    hub.requests.clear()
    assert fetch(MODEL) == first
    assert tokenizer_place(MODEL) == first
    assert open_remote(MODEL).folder == first
    assert hub.requests == []


def test_a_repository_without_a_tokenizer_is_known_to_have_none_the_second_time(hub):
    for name in TOKENIZER:
        del hub.main.files[name]
    first = fetch(MODEL)
    hub.requests.clear()
    assert fetch(MODEL) == first
    assert hub.requests == []


def test_one_tokenizer_file_is_a_whole_tokenizer(hub):
    del hub.main.files["merges.txt"]
    hub.main.files["tokenizer.json"] = b'{"version": "1.0"}'
    first = fetch(MODEL)
    assert "tokenizer.json" in hub.fetched()
    hub.requests.clear()
    assert fetch(MODEL) == first
    assert hub.requests == []


def test_of_a_sharded_model_every_shard_is_fetched(hub):
    hub.main.files = files_of("hub-sharded") | TOKENIZER | NOT_NEEDED
    folder = fetch(MODEL)
    shards = {name for name in hub.main.files if name.startswith("model-")}
    assert len(shards) == 2
    assert hub.fetched() == {"config.json", "model.safetensors.index.json", *shards, *TOKENIZER}
    assert Checkpoint.open(folder).matched.tensors.keys()


def test_only_a_missing_shard_is_fetched_again(hub):
    hub.main.files = files_of("hub-sharded") | TOKENIZER
    shard = "model-00002-of-00002.safetensors"
    (fetch(MODEL) / shard).resolve().unlink()
    hub.requests.clear()
    assert (fetch(MODEL) / shard).read_bytes() == hub.main.files[shard]
    assert hub.fetched() == {shard}


def test_for_a_released_size_config_and_weights_are_fetched_and_no_tokenizer(hub):
    hub.repositories["openai-community/gpt2"] = hub.main
    model = parse_model("124M")
    folder = fetch(model)
    assert hub.fetched() == NEEDED - set(TOKENIZER)
    hub.requests.clear()
    assert fetch(model) == folder
    assert tokenizer_place(model) is None
    assert hub.requests == []


def test_for_token_ids_no_weights_are_fetched_and_later_only_they_are(hub):
    folder = tokenizer_place(MODEL)
    assert hub.fetched() == {"config.json", *TOKENIZER}
    hub.requests.clear()
    assert tokenizer_place(MODEL) == folder
    assert hub.requests == []
    assert fetch(MODEL) == folder
    assert hub.fetched() == {"model.safetensors", "generation_config.json"}


def test_without_the_tokenizer_weights_are_fetched_alone_and_later_it_is_added(hub):
    fetch(MODEL, tokenizer=False)
    assert hub.fetched() == NEEDED - set(TOKENIZER)
    hub.requests.clear()
    fetch(MODEL)
    assert hub.fetched() == set(TOKENIZER)


def test_a_local_model_is_its_path_and_a_file_has_its_tokenizer_beside_it(hub, tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    assert fetch(parse_model(str(file))) == file
    assert tokenizer_place(parse_model(str(file))) == file
    assert tokenizer_place(parse_model(str(tmp_path))) == tmp_path
    assert fetch(parse_model("austen")).name == "austen"
    assert hub.requests == []


def test_a_revision_pins_a_branch_a_tag_or_a_commit(hub):
    old = Repository(hub.main.files | {"README.md": b"old", "merges.txt": b"#version: 0.1\n"})
    hub.revisions["owner/name", "v1.0"] = old
    hub.revisions["owner/name", "refs/pr/1"] = old
    for revision in ("v1.0", "refs/pr/1", old.sha):
        model = parse_model(f"owner/name@{revision}")
        folder = fetch(model)
        assert (folder / "merges.txt").read_bytes() == b"#version: 0.1\n"
        hub.requests.clear()
        assert fetch(model) == folder
        assert hub.requests == []
    assert (fetch(MODEL) / "merges.txt").read_bytes() == b"#version: 0.2\n"


# Damage and interruption


def flipped(content):
    """`content` with one bit of its middle byte changed."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("name", ["model.safetensors", "merges.txt", "config.json"])
@pytest.mark.parametrize("links", [True, False])
def test_a_file_with_a_flipped_byte_is_refused_removed_and_fetched_again(
    hub, monkeypatch, name, links
):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", not links)
    hub.main.sent[name] = flipped(hub.main.files[name])
    line = refusal(fetch, MODEL)
    assert f"owner/name/{name} arrived damaged" in line
    assert hub.main.etag(name) in line
    assert flipped(hub.main.files[name]) not in [
        path.read_bytes() for path in hub.cache.rglob("*") if path.is_file()
    ]
    hub.main.sent.clear()
    assert (fetch(MODEL) / name).read_bytes() == hub.main.files[name]


def test_an_unchanged_file_of_a_mirror_with_its_own_etags_is_accepted(hub):
    hub.main.plain_etags = True
    assert (fetch(MODEL) / "merges.txt").read_bytes() == hub.main.files["merges.txt"]


def test_a_run_that_ended_before_its_check_does_not_pass_for_complete(hub, monkeypatch):
    hub.main.sent["model.safetensors"] = flipped(hub.main.files["model.safetensors"])

    def check(commit, name, path):
        if name == "model.safetensors":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(network.Commit, "_check", check)
        with pytest.raises(KeyboardInterrupt):
            fetch(MODEL)
    assert "arrived damaged" in refusal(fetch, MODEL)


def test_a_connection_dropped_in_the_middle_is_taken_up_again_in_the_same_run(hub, no_waiting):
    chunk = constants.DOWNLOAD_CHUNK_SIZE
    weights = bytes(range(256)) * (chunk // 256) + b"the rest, in a second chunk"
    hub.main.files["model.safetensors"] = weights
    hub.main.cut["model.safetensors"] = [chunk + 5]
    assert (fetch(MODEL) / "model.safetensors").read_bytes() == weights
    ranges = [request.range for request in hub.asked("model.safetensors")]
    assert ranges == [None, f"bytes={chunk}-"]


def test_a_connection_that_is_reset_is_tried_again(hub, no_waiting):
    hub.main.reset = True
    hub.main.cut["model.safetensors"] = [1000, 2000]
    weights = hub.main.files["model.safetensors"]
    assert (fetch(MODEL) / "model.safetensors").read_bytes() == weights
    assert len(hub.asked("model.safetensors")) == 3


def test_a_connection_that_is_always_lost_ends_in_one_line(hub, no_waiting):
    hub.main.cut["model.safetensors"] = [1000] * 99
    assert "cannot fetch owner/name" in refusal(fetch, MODEL)
    assert not list(hub.cache.rglob("*.incomplete"))


RUN = """
import signal, sys
from gpt2cli.errors import GPT2Error
from gpt2cli.hub import fetch, parse_model

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print(fetch(parse_model(sys.argv[1])))
except GPT2Error as error:
    sys.exit(f"Error: {error}")
except KeyboardInterrupt:
    sys.exit(130)
"""


def start(hub, model="owner/name", stderr=subprocess.PIPE, **environment):
    """A program of its own that fetches a model, with the Hub that HF_ENDPOINT names."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUN, model],
        cwd=ROOT,
        env=kept
        | {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(hub.cache), "HF_HOME": str(hub.cache.parent)}
        | environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def stop_in_the_middle_of_the_weights(hub, number):
    """Fetch until a part of the weights has arrived, send a signal: exit code, seconds it took."""
    hub.main.stall["model.safetensors"] = 1000
    with start(hub) as process:
        assert hub.stalled.wait(30)
        since = time.monotonic()
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        took = time.monotonic() - since
    assert (output, errors) == ("", "")
    hub.main.stall.clear()
    hub.requests.clear()
    return process.returncode, took


def test_ctrl_c_ends_the_download_within_a_second_and_leaves_no_part(hub):
    code, took = stop_in_the_middle_of_the_weights(hub, signal.SIGINT)
    assert code == 130
    assert took < 1
    assert not list(hub.cache.rglob("*.incomplete"))
    fetch(MODEL)
    assert hub.fetched() == {"model.safetensors"}


def test_after_a_killed_run_files_are_complete_or_absent_and_the_next_completes_the_rest(hub):
    code, _ = stop_in_the_middle_of_the_weights(hub, signal.SIGKILL)
    assert code == -signal.SIGKILL
    here = {path.name: path for path in hub.cache.glob("models--owner--name/snapshots/*/*")}
    assert here.keys() == NEEDED - {"model.safetensors"}
    assert all(path.read_bytes() == hub.main.files[name] for name, path in here.items())
    folder = fetch(MODEL)
    assert hub.fetched() == {"model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == hub.main.files["model.safetensors"]
    assert not list(hub.cache.rglob("*.incomplete"))


# One line for whatever is wrong


@pytest.mark.parametrize("status", [401, 404])
@pytest.mark.parametrize("headers", [{}, {"X-Error-Code": "RepoNotFound"}])
def test_a_wrong_or_private_repository_is_neither_a_file_nor_a_repository(hub, status, headers):
    hub.main.refusal = (status, headers)
    for call in (fetch, tokenizer_place, open_remote):
        line = refusal(call, MODEL)
        assert "neither a file nor a repository has the name owner/name" in line
        assert "HF_TOKEN" in line
    assert "neither a file nor a repository" in refusal(fetch, parse_model("no/such"))


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (403, {"X-Error-Code": "GatedRepo"}, "ask for access at"),
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "access token"),
        (403, {"X-Error-Message": "Access to this resource is disabled."}, "is disabled"),
        (429, {}, "HTTP 429 for owner/name; try again later"),
        (503, {"X-Error-Message": "down for\tmaintenance"}, "HTTP 503, down for maintenance"),
    ],
)
def test_any_other_refusal_of_the_hub_is_one_line(hub, status, headers, words):
    hub.main.refusal = (status, headers)
    assert words in refusal(fetch, MODEL)


def test_an_unknown_revision_is_named(hub):
    assert "no branch, tag or commit v9" in refusal(fetch, parse_model("owner/name@v9"))


def test_a_model_of_another_type_is_refused_before_its_weights_are_fetched(hub):
    config = json.loads(hub.main.files["config.json"]) | {"model_type": "bert"}
    hub.main.files["config.json"] = json.dumps(config).encode()
    for call in (fetch, tokenizer_place, open_remote):
        line = refusal(call, MODEL)
        assert "owner/name/config.json" in line
        assert "model_type is 'bert'" in line
    assert hub.fetched() == {"config.json"}


def test_a_repository_of_another_form_is_refused_by_what_it_lacks(hub):
    del hub.main.files["model.safetensors"]
    del hub.main.files["pytorch_model.bin"]
    assert "only tf_model.h5, a Keras file" in refusal(fetch, MODEL)
    assert hub.fetched() == {"config.json"}
    del hub.main.files["tf_model.h5"]
    assert "no model.safetensors" in refusal(fetch, MODEL)
    del hub.main.files["config.json"]
    assert "no config.json" in refusal(fetch, MODEL)


@pytest.mark.parametrize("call", [fetch, open_remote])
def test_a_pickle_is_fetched_where_there_is_no_safetensors_file(hub, call):
    del hub.main.files["model.safetensors"]
    pickle = (FIXTURES / "hub-bin" / "pytorch_model.bin").read_bytes()
    hub.main.files["pytorch_model.bin"] = pickle
    hub.main.files["config.json"] = (FIXTURES / "hub-bin" / "config.json").read_bytes()
    found = call(MODEL)
    assert "pytorch_model.bin" in hub.fetched()
    assert "tf_model.h5" not in hub.fetched()
    opened = found if call is open_remote else Checkpoint.open(found)
    assert (opened.dialect, opened.file_bytes) == ("pickle", len(pickle))
    hub.requests.clear()
    call(MODEL)
    assert hub.requests == []


def test_pickles_in_shards_are_fetched_with_their_index(hub):
    del hub.main.files["model.safetensors"]
    del hub.main.files["pytorch_model.bin"]
    index = {"weight_map": {"a": "one.bin", "b": "two.bin"}}
    hub.main.files["pytorch_model.bin.index.json"] = json.dumps(index).encode()
    hub.main.files |= {"one.bin": b"1", "two.bin": b"2", "three.bin": b"3"}
    fetch(MODEL, tokenizer=False)
    assert {name for name in hub.fetched() if ".bin" in name} == {
        "pytorch_model.bin.index.json",
        "one.bin",
        "two.bin",
    }


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", ".."])
def test_an_index_that_names_files_outside_is_refused(hub, shard):
    index = json.dumps({"weight_map": {"wte.weight": shard}}).encode()
    hub.main.files["model.safetensors.index.json"] = index
    del hub.main.files["model.safetensors"]
    for call in (fetch, open_remote):
        assert "no file of its own folder" in refusal(call, MODEL)


def test_an_index_that_names_a_shard_which_is_not_there_is_refused(hub):
    hub.main.files = files_of("hub-sharded")
    del hub.main.files["model-00002-of-00002.safetensors"]
    assert "model-00002-of-00002.safetensors" in refusal(fetch, MODEL)


def test_without_network_and_copy_the_error_says_so_and_names_austen(hub, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
        for call in (fetch, tokenizer_place, open_remote):
            line = refusal(call, MODEL)
            assert "no complete copy is cached" in line
            assert "-m austen" in line


def test_offline_a_cached_copy_is_used_and_without_one_the_error_names_austen(hub, monkeypatch):
    folder = fetch(MODEL)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(MODEL) == folder
    line = refusal(fetch, parse_model("gpt2-xl"))
    assert "HF_HUB_OFFLINE" in line
    assert "-m austen" in line
    assert hub.requests == []


def test_a_login_page_in_place_of_the_hub_is_one_line(hub):
    hub.page = b"<html>\n<body>Welcome to our network</body>\n</html>"
    assert "does not answer as the Hub does" in refusal(fetch, MODEL)


def test_a_disk_without_room_is_an_error_before_the_download(hub, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    line = refusal(fetch, MODEL)
    assert "Not enough free disk space" in line
    assert "HF_HOME" in line
    assert hub.fetched() == set()


def test_a_cache_that_cannot_be_written_is_one_line(hub, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    assert f"cache in {tmp_path}/file/cache cannot be used" in refusal(fetch, MODEL)


# Counting from headers


@pytest.mark.parametrize("fixture", ["hub-released", "hub-sharded"])
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("head_bytes", [64, module.HEAD_BYTES])
def test_for_counting_only_config_and_headers_are_fetched(
    hub, monkeypatch, fixture, ranges, head_bytes
):
    monkeypatch.setattr(module, "HEAD_BYTES", head_bytes)
    hub.main.files = files_of(fixture) | TOKENIZER
    hub.ranges = ranges
    remote, local = open_remote(MODEL), Checkpoint.open(FIXTURES / fixture)
    assert remote.config == local.config
    assert remote.matched.tensors.keys() == local.matched.tensors.keys()
    assert [t.nbytes for t in remote.matched.tensors.values()] == [
        t.nbytes for t in local.matched.tensors.values()
    ]
    assert not list(hub.cache.rglob("*.safetensors"))
    wanted = [r for r in hub.requests if r.path.endswith(".safetensors") and "/cdn/" in r.path]
    assert all(request.range for request in wanted)
    if ranges and head_bytes == 64:
        sizes = sum(len(v) for k, v in hub.main.files.items() if k.endswith(".safetensors"))
        assert hub.sent < sizes / 2


def test_a_file_that_is_no_safetensors_is_refused_by_its_header(hub):
    hub.main.files["model.safetensors"] = b"<html>not found</html>"
    assert "owner/name/model.safetensors" in refusal(open_remote, MODEL)


# What the user sees


def test_a_first_use_is_silent_where_stderr_is_no_terminal_and_a_second_needs_no_network(hub):
    with start(hub) as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert (Path(output.strip()) / "model.safetensors").exists()
    assert hub.fetched() == NEEDED
    hub.requests.clear()
    with start(hub, HF_HUB_OFFLINE="1") as process:
        assert process.communicate(timeout=60) == (output, "")
    assert hub.requests == []


def on_a_terminal(hub):
    """What a first use writes to a terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    with start(hub, stderr=slave) as process:
        os.close(slave)
        process.communicate(timeout=60)
    text = b""
    while select.select([master], [], [], 0)[0]:
        try:
            text += os.read(master, 2**16)
        except OSError:  # Linux says so when nobody holds the other end
            break
    os.close(master)
    return text.decode()


def test_on_a_terminal_the_weights_have_a_progress_bar(hub):
    seen = on_a_terminal(hub)
    assert "model.safetensors: 100%" in seen
    assert "config.json" not in seen


def test_the_bar_can_be_left_out(hub, monkeypatch):
    shown = []

    def download(self, name, attempts, fetch_one=network.Commit._fetch):
        shown.append(not huggingface_hub.utils.are_progress_bars_disabled("huggingface_hub.x"))
        return fetch_one(self, name, attempts)

    monkeypatch.setattr(network.Commit, "_fetch", download)
    fetch(MODEL, progress=False)
    assert not any(shown)
    assert not huggingface_hub.utils.are_progress_bars_disabled("huggingface_hub.x")


def test_names_paths_and_help_do_not_load_the_hubs_client():
    code = """
import sys
from gpt2cli.hub import fetch, parse_model
parse_model("gpt2-xl"), fetch(parse_model("."))
print({"huggingface_hub", "numpy", "torch"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
