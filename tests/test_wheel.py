"""The wheel: what it carries, and that it runs alone where the checkout is out of sight."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from test_readme import NOT_NAMED, README, TREE, branches

ROOT = Path(__file__).parents[1]

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def call(*command: object, cwd: Path) -> str:
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(*PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """An environment that holds the wheel, and sees the packages beside it in this one."""
    folder = wheel.parent / "environment"
    call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin" / "python"
    call(*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=wheel.parent)
    (site,) = folder.glob("lib/*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def files_in(folder: str) -> set[str]:
    """The files under a folder of the checkout, as paths inside the package."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_carries_the_package_its_weights_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = archive.infolist()
    names = {member.filename for member in members if ".dist-info/" not in member.filename}
    assert names == files_in("gpt2cli") | {f"gpt2cli/{name}" for name in files_in("weights")}
    assert {"gpt2cli/py.typed", "gpt2cli/weights/austen/model.safetensors"} <= names
    assert {member.external_attr >> 16 & 0o777 for member in members} == {0o644}


def test_what_the_wheel_carries_stands_in_the_readme_or_says_what_it_is(wheel: Path) -> None:
    (tree,) = TREE.findall(README.read_text())
    named = {*branches(tree)} - {"gpt2cli", "weights"}
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
    about = {name.partition(".dist-info/")[2] for name in members if ".dist-info/" in name}
    assert about == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    carried = {
        name.removeprefix("gpt2cli/") if name.startswith("gpt2cli/weights/") else name
        for name in members
        if ".dist-info/" not in name
    }
    tops = {"/".join(name.split("/")[:2]) for name in carried}
    assert {name.split("/")[0] for name in tops} == {"gpt2cli", "weights"}
    assert tops - named - NOT_NAMED == set()


def test_the_wheel_writes_text_with_no_checkout_and_no_network(
    python: Path, tmp_path: Path
) -> None:
    where = "import gpt2cli, gpt2cli.presets as p; print(gpt2cli.__file__, p.weights_folder())"
    for place in call(python, "-c", where, cwd=tmp_path).split():
        assert Path(place).is_relative_to(python.parents[1])
    path = call(python, "-c", "import sys; print(*sys.path, sep='\\n')", cwd=tmp_path).splitlines()
    assert str(ROOT) not in path
    prompt = "My dear Mr. Bennet,"
    gpt2 = python.with_name("gpt2")
    said = call(gpt2, "generate", "-m", "austen", "-t", "0", "-n", "8", prompt, cwd=tmp_path)
    assert said.startswith(prompt)
    assert len(said.strip()) > len(prompt)
