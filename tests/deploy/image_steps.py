"""Runs the steps of `deploy/Dockerfile` in plain directories, in order, as a container engine would.

Each stage's root is a directory, and the absolute paths of the Dockerfile are paths inside it. The base image is the
Python that runs the tests. `apt-get`, `useradd` and `install` are stand-ins that record their calls, so Debian's
packages and users stay as they are. An instruction that the Dockerfile does not use yet is refused.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from dockerfile_parse import DockerfileParser

from deploy.deployed import DEPLOY, ROOT

SECONDS_MAX = 1800.0
"""Compiling takes fifteen seconds of processor time, and minutes on a busy machine."""
PLACES = ("/source", "/wheels", "/opt/tablestone", "/data", "/var/lib/apt")
"""The absolute paths of the Dockerfile that the steps write to."""
STAND_IN = '#!/bin/sh\necho "${0##*/} $*" >> "$STAND_INS_LOG"\n'
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_PLACE = re.compile(r"(?<![\w./])(?:" + "|".join(PLACES) + r")\b")


@dataclass
class Image:
    """What the steps made: the root of the last stage, and the settings of a container."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    entry_point: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    user: str = ""
    called: list[str] = field(default_factory=list)
    """The calls of the stand-ins."""

    def run(self, words: list[str], **more: str) -> subprocess.Popen[str]:
        """Run the image with this command, in the test's own network."""
        return subprocess.Popen(
            [*self.entry_point, *words],
            cwd=self.root / "data",
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def build(directory: Path) -> Image:
    """Run the steps; raises `AssertionError` if a step is unknown, or fails."""
    parser = DockerfileParser(path=str(DEPLOY / "Dockerfile"))
    stand_ins = directory / "bin"
    stand_ins.mkdir()
    for name in ("apt-get", "useradd", "install"):
        (stand_ins / name).write_text(STAND_IN)
        (stand_ins / name).chmod(0o755)
    for name in ("python", "pip"):
        (stand_ins / name).write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{" -m pip" * (name == "pip")} "$@"\n'
        )
        (stand_ins / name).chmod(0o755)
    image = Image(directory / "root")
    stages: dict[str, Path] = {}
    name, work = "", image.root
    for step in parser.structure:
        kind, value = step["instruction"], step["value"]
        if kind == "FROM":
            if name:
                image.root.rename(directory / name)
                stages[name] = directory / name
            name = value.rpartition(" AS ")[2] if " AS " in value else "last"
            image.root.mkdir()
            image.environment = {
                "PATH": f"{stand_ins}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(directory),
                "STAND_INS_LOG": str(directory / "called"),
            }
            work = image.root
        elif kind == "WORKDIR":
            work = image.root / value.lstrip("/")
            work.mkdir(parents=True, exist_ok=True)
        elif kind == "COPY":
            _copy(value, image.root, work, stages)
        elif kind == "RUN":
            _run(value, work, image)
        elif kind == "ENV":
            for pair in shlex.split(value):
                variable, _, text = pair.partition("=")
                known = image.environment
                text = _VARIABLE.sub(lambda found: known[found[1]], text)  # noqa: B023 - called at once
                image.environment[variable] = _in(image.root, text)
        elif kind == "HEALTHCHECK":
            image.health = json.loads(value[value.index("[") :])
        elif kind in {"ENTRYPOINT", "CMD"}:
            setattr(image, {"ENTRYPOINT": "entry_point", "CMD": "command"}[kind], json.loads(value))
        elif kind == "USER":
            image.user = value
        else:
            assert kind in {"ARG", "LABEL", "VOLUME", "EXPOSE", "STOPSIGNAL", "COMMENT"}, kind
    image.called = (directory / "called").read_text().splitlines()
    image.entry_point[0] = str(shutil.which(image.entry_point[0], path=image.environment["PATH"]))
    return image


def _in(root: Path, text: str) -> str:
    """The text with its absolute paths moved inside the root."""
    return _PLACE.sub(lambda found: f"{root}{found[0]}", text)


def _run(command: str, work: Path, image: Image) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-e", "-c", _in(image.root, command)],
        cwd=work,
        env=image.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, f"RUN {command}\n{ran.stdout}"


def _copy(value: str, root: Path, work: Path, stages: dict[str, Path]) -> None:
    *sources, target = shlex.split(value)
    place = root / target.lstrip("/") if target.startswith("/") else work / target
    if sources[0].startswith("--from="):
        stage = stages[sources.pop(0).partition("=")[2]]
        for source in sources:
            shutil.copytree(stage / source.lstrip("/"), place, symlinks=True)
        return
    for source in sources:
        assert _is_sent(source), f"{source} does not reach the builder"
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, place, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place)


def _is_sent(source: str) -> bool:
    """Whether the ignore file sends a file to the builder: the last rule that matches decides."""
    sent = True
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch(source, line.removeprefix("!")):
            sent = line.startswith("!")
    return sent


def files_below(directory: Path) -> set[str]:
    """The files in the directory, to see whether a container writes one."""
    return {str(Path(place, name)) for place, _, names in os.walk(directory) for name in names}
