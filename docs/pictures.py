"""Make the README's pictures: a terminal, from what real commands print, and a surprisal page.

``python docs/pictures.py`` writes ``docs/terminal.svg`` and, where Chromium is installed,
``docs/surprisal.png``.
"""

import io
import os
import pty
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

DOCS = Path(__file__).parent
TERMINAL = DOCS / "terminal.svg"
PAGE = DOCS / "surprisal.png"
COLUMNS = 80

SENTENCE = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife."
)
COMMANDS = (
    'gpt2 generate -m austen -t 0.8 -k 40 -n 50 -s 7 "It is a truth universally known that"',
    f'gpt2 score -m austen --tokens "{SENTENCE}"',
)
POINTED_AT = 32  # the token whose alternatives the page shows


def shown(command: str) -> str:
    """What a command shows in a terminal, colours and all."""
    reader, writer = pty.openpty()
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
    }
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        ["sh", "-c", command], stdin=writer, stdout=writer, stderr=writer, env=environment
    ):
        os.close(writer)
        pieces = []
        try:
            while piece := os.read(reader, 65536):
                pieces.append(piece)
        except OSError:  # how Linux says that nobody writes any more
            pass
    os.close(reader)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def terminal() -> str:
    """An SVG of a terminal in which the commands were typed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in COMMANDS:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(shown(command)))
    svg = console.export_svg(title="gpt2", theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # which would be fetched


def page(chromium: str, target: Path) -> None:
    """A picture of the surprisal page, with one token pointed at."""
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        command = ["gpt2", "score", "-q", "-m", "austen", "--html", html, SENTENCE]
        scripts = sysconfig.get_path("scripts")
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PATH": scripts}
        )
        before, *tokens = html.read_text().split('tabindex="0"')
        tokens[POINTED_AT] = f" autofocus{tokens[POINTED_AT]}"
        html.write_text('tabindex="0"'.join([before, *tokens]))
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={folder}/profile",
                "--hide-scrollbars",
                "--force-device-scale-factor=1.25",
                "--window-size=840,800",
                f"--screenshot={target}",
                html.as_uri(),
            ],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    TERMINAL.write_text(terminal())
    if chromium := shutil.which("chromium") or shutil.which("google-chrome"):
        page(chromium, PAGE)
