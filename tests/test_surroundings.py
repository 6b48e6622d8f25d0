"""What tests run in: no network but this machine, and no setting from outside."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__)

NOWHERE = "192.0.2.1"  # RFC 5737: an address for documentation, which nobody has

REACHES = {
    "a connection": f"socket.socket().connect(({NOWHERE!r}, 9))",
    "a connection that returns its error": f"socket.socket().connect_ex(({NOWHERE!r}, 9))",
    "a connection by name": "socket.create_connection(('example.org', 80), timeout=1)",
    "a datagram": f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ({NOWHERE!r}, 9))",
    "a look-up": "socket.getaddrinfo('example.org', 443)",
    "a look-up of old": "socket.gethostbyname('example.org')",
}

LOOPBACK = (
    "server = socket.create_server(('127.0.0.1', 0)); "
    "socket.create_connection(server.getsockname()).close(); server.close(); "
    "[end.close() for end in socket.socketpair()]"
)


def here(code: str) -> str:
    """What a line of code raises in this process."""
    try:
        exec(code, {"socket": socket})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_a_child(code: str) -> str:
    """The last line that a Python process running the code writes to stderr."""
    command = [sys.executable, "-c", f"import socket; {code}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.stderr.splitlines()[-1] if ran.returncode else ""


where = pytest.mark.parametrize("run", [here, in_a_child])


@where
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("code", REACHES.values(), ids=REACHES)
def test_a_test_that_reaches_for_the_network_fails(code: str, run: Callable[[str], str]) -> None:
    assert "NetworkForbiddenError: a test reached for" in run(code)


@where
def test_this_machine_can_be_reached(run: Callable[[str], str]) -> None:
    assert run(LOOPBACK) == ""


OUTSIDE = {
    "GPT2_MODEL": "austen",
    "GPT2_DEBUG": "1",
    "HF_HOME": "/nowhere",
    "HF_HUB_OFFLINE": "1",
    "HF_TOKEN": "secret",
    "https_proxy": "http://127.0.0.1:9",
    "NO_COLOR": "1",
    "PYTHONUTF8": "0",
}


def test_a_test_sees_no_setting_from_outside() -> None:
    assert not {name for name in OUTSIDE if name in os.environ} - {"HF_HOME"}
    assert Path(os.environ["HF_HOME"]).name.startswith("gpt2cli-tests-")


def test_settings_from_outside_do_not_reach_a_test() -> None:
    test = f"{HERE}::{test_a_test_sees_no_setting_from_outside.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = os.environ | OUTSIDE
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "1 passed" in ran.stdout, ran.stdout
