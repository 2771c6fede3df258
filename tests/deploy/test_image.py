"""The image's steps, the server that they make, and the wheel, which has the same bytes when it is built again."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("dockerfile_parse", reason="pip install '.[deploy]'")

from deploy.deployed import ROOT
from deploy.image_steps import SECONDS_MAX, Image, build, files_below
from docs.guides.page_commands import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.network]
WAIT_SECONDS_MAX = 40.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image"))


class Container:
    """A running container that is ready to answer."""

    def __init__(self, image: Image, *words: str) -> None:
        port, admin = free_ports(2)
        self.process = image.run(
            list(words or image.command),
            TABLESTONE_HOST="127.0.0.1",
            TABLESTONE_PORT=str(port),
            TABLESTONE_ADMIN=f"127.0.0.1:{admin}",
        )
        self.admin = str(admin)
        self.printed = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if line.startswith("Connection string: "):
                break
        else:
            raise AssertionError(self.printed)

    def stop(self) -> int:
        self.process.terminate()
        self.printed += self.process.communicate(timeout=WAIT_SECONDS_MAX)[0]
        return self.process.returncode


@pytest.fixture
def started() -> Iterator[list[Container]]:
    containers: list[Container] = []
    yield containers
    for each in containers:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def is_healthy(image: Image, container: Container) -> bool:
    """The result of the image's own health check."""
    program, *words = (word.replace("10003", container.admin) for word in image.health)
    assert program == "python"
    python = image.root / "opt" / "tablestone" / "bin" / "python"
    return subprocess.run([python, *words], capture_output=True, check=False).returncode == 0


def test_the_steps_make_an_image_that_serves(image: Image, started: list[Container]) -> None:
    assert image.user == "10002:10002"
    assert [call.split()[0] for call in image.called] == [
        "apt-get",
        "apt-get",
        "useradd",
        "install",
    ]
    before = files_below(image.root / "opt")
    container = Container(image)
    started.append(container)
    with urlopen(
        f"http://127.0.0.1:{container.admin}/health/ready", timeout=WAIT_SECONDS_MAX
    ) as answer:
        assert answer.status == 200
    assert is_healthy(image, container)
    assert (image.root / "data" / "tablestone.db").exists()
    assert container.stop() == 0, container.printed
    assert not is_healthy(image, container)
    assert files_below(image.root / "opt") == before, "the root file system may be read-only"


IN_A_CONTAINER = re.compile(
    r"^    (?:docker run .* tablestone|docker compose .* exec tablestone tablestone|kubectl .* -- tablestone) (.+)$",
    re.MULTILINE,
)


def test_the_commands_of_the_guide_in_a_container(
    image: Image, started: list[Container], tmp_path: Path
) -> None:
    """Each once, in order; a server without arguments is another test."""
    page = (ROOT / "docs" / "guides" / "containers.md").read_text(encoding="utf-8")
    commands = list(dict.fromkeys(IN_A_CONTAINER.findall(page)))
    assert [command.split()[0] for command in commands] == [
        *("account", "account", "azurite", "backup")
    ]
    for command in commands:
        words = [
            str(tmp_path / Path(word).name) if word.startswith("/") else word
            for word in command.split()
        ]
        if words[0] == "azurite":
            started.append(Container(image, *words))
            assert "data in memory" in started[-1].printed
            assert started[-1].stop() == 0
            continue
        running = image.run(words)
        printed = running.communicate(timeout=WAIT_SECONDS_MAX)[0]
        assert running.returncode == 0, printed
    assert (tmp_path / "tables.db").exists()
    version = image.run(["--version"]).communicate(timeout=WAIT_SECONDS_MAX)[0]
    assert version.endswith(", compiled, filters in C\n")


def copied(directory: Path) -> Path:
    """A copy of the checkout in the directory, without what git ignores."""
    source = directory / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    return source


def built(directory: Path, *words: str, **more: str) -> Path:
    """The file that `python -m build` makes from a copy of the checkout in this directory."""
    source = copied(directory)
    made = subprocess.run(
        [sys.executable, "-m", "build", *words, "--outdir", str(directory / "dist"), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | more,
    )
    assert made.returncode == 0, made.stdout
    (found,) = (directory / "dist").iterdir()
    return found


WAYS = {
    "a": ("-m", "pip", "wheel", "--no-deps", "--wheel-dir=out", "."),
    "b/of-another-length": ("-m", "build", "--outdir=out", "."),
}
"""Two ways to build a wheel, in different directories; the second goes through the sdist, as a release does."""


def test_the_compiled_wheel_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    """Whether the libraries are installed must not matter either: pip's environment shows them to mypy."""
    caches = {place: tmp_path / place / "cache" for place in WAYS}
    builds = {place: wheel_build(tmp_path / place, WAYS[place], caches[place]) for place in WAYS}
    printed = [build.communicate(timeout=SECONDS_MAX)[0] for build in builds.values()]
    assert all("Compiling" in each for each in printed), "each build has compiled"
    first, second = (made_wheel(tmp_path / place) for place in WAYS)
    assert "-cp3" in first.name, "it is compiled"
    assert second.name == first.name
    assert differences(first, second) == []
    assert second.read_bytes() == first.read_bytes()
    again = wheel_build(tmp_path / "again", WAYS["a"], caches["a"])
    printed.append(again.communicate(timeout=SECONDS_MAX)[0])
    assert "are compiled already" in printed[-1], "the third build has not"
    assert made_wheel(tmp_path / "again").read_bytes() == first.read_bytes()


def wheel_build(directory: Path, words: tuple[str, ...], cache: Path) -> subprocess.Popen[str]:
    """Build a copy of the checkout in this directory, with this cache of compiled modules."""
    source = copied(directory)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    own = {"XDG_CACHE_HOME": str(cache), "PIP_NO_CACHE_DIR": "1", "PIP_VERBOSE": "1"}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=source,
        env=kept | own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def made_wheel(directory: Path) -> Path:
    """The wheel of a finished build."""
    (wheel,) = (directory / "source" / "out").glob("*.whl")
    return wheel


def differences(one: Path, other: Path) -> list[str]:
    """The names of the files that differ between two wheels."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = first.namelist()
        assert names == second.namelist()
        return [name for name in names if first.read(name) != second.read(name)]


def test_the_sdist_has_the_same_bytes_and_what_a_wheel_is_made_of(tmp_path: Path) -> None:
    first, second = (built(tmp_path / place, "--sdist") for place in ("a", "b/c"))
    assert second.read_bytes() == first.read_bytes()
    changed = built(tmp_path / "d", "--sdist", SOURCE_DATE_EPOCH="1700000000")
    assert changed.read_bytes() != first.read_bytes(), "the time of the source is in the file"
    shutil.unpack_archive(first, tmp_path / "unpacked")
    (root,) = (tmp_path / "unpacked").iterdir()
    for name in ("hatch_build.py", "pyproject.toml", "LICENSE", "deploy/Dockerfile"):
        assert (root / name).exists(), name
