"""Long runs of the parsers, each in a process, with coverage guidance where atheris is installed.

A file records the progress after each parser, so an interrupted run continues where it was. `guided` and `unguided`
judge what happens.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from stress.fuzz import kept_inputs
from stress.fuzz.covered import fewest
from stress.fuzz.parsers import PARSERS
from stress.fuzz.resources import Resources, of_this_process
from stress.fuzz.unguided import findings

GUIDED: Final = Path(__file__).with_name("guided.py")
ROUND_INPUTS: Final = 100_000
"""The most inputs of a process. The corpus goes from one to the next."""
GROWTH_KIB_MAX: Final = 64 * 1024
"""A process that grows by more after its first tenth leaks; libFuzzer's own corpus grows too."""
_RESOURCES = re.compile(
    r"resources Resources\(memory_kib=(\d+), descriptors=(\d+)\) "
    r"Resources\(memory_kib=(\d+), descriptors=(\d+)\)"
)


def is_guided() -> bool:
    """Whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


class Progress:
    """How many inputs each parser has had, in a file or, without one, in memory only."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.done: dict[str, int] = {}
        if file is not None and file.exists():
            self.done = json.loads(file.read_text())

    def add(self, name: str, inputs: int) -> None:
        self.done[name] = self.done.get(name, 0) + inputs
        if self._file is not None:
            self._file.write_text(json.dumps(self.done, indent=1))

    @property
    def total(self) -> int:
        return sum(self.done.values())


def run(inputs: int, seed: int, progress: Progress, *, keeps: bool) -> Iterator[str]:
    """Run so many inputs, shared by all parsers; returns the problems. With `keeps`, findings go into the project."""
    share = -(-inputs // len(PARSERS))
    run_one = _guided if is_guided() else _unguided
    while names := [name for name in PARSERS if progress.done.get(name, 0) < share]:
        for name in names:
            count = min(ROUND_INPUTS, share - progress.done.get(name, 0))
            yield from run_one(name, count, seed + progress.done.get(name, 0), keeps=keeps)
            progress.add(name, count)
            print(f"{progress.total:,} inputs: {name}", flush=True)


def _guided(name: str, count: int, seed: int, *, keeps: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as place:
        corpus, artifacts = Path(place) / "corpus", Path(place) / "found"
        corpus.mkdir()
        artifacts.mkdir()
        for number, content in enumerate(kept_inputs.kept(name)):
            (corpus / f"kept-{number}").write_bytes(content)
        command = [sys.executable, str(GUIDED), name, str(corpus), str(artifacts)]
        ended = subprocess.run(
            [*command, str(count), str(seed)],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        for found in sorted(artifacts.glob("*-*")):
            content = found.read_bytes()
            if keeps:
                kept_inputs.add_crash(name, content)
            yield f"{name}: {found.name.partition('-')[0]}: {content[:300]!r}\n{_traceback(ended.stderr)}"
        used = _RESOURCES.search(ended.stdout)
        if used is not None:
            early, late = (
                Resources(*map(int, used.groups()[:2])),
                Resources(*map(int, used.groups()[2:])),
            )
            yield from leaks(name, early, late)
        elif ended.returncode == 0:
            yield f"{name}: the run did not say what it used\n{ended.stderr[-2000:]}"
        if keeps:
            reached = fewest(PARSERS[name], [file.read_bytes() for file in corpus.iterdir()])
            kept_inputs.write(kept_inputs.CORPUS, name, reached)


def _traceback(stderr: str) -> str:
    """The Python traceback in libFuzzer's output, without the figures after it."""
    start = stderr.find("Traceback")
    return stderr[start : start + 4000].partition("\n==")[0] if start >= 0 else stderr[-2000:]


def _unguided(name: str, count: int, seed: int, *, keeps: bool) -> Iterator[str]:
    parser = PARSERS[name]
    kept = kept_inputs.kept(name)
    for _ in findings(parser, kept, count // 10, Random(f"{seed} warm")):
        pass  # fills the parsers' caches; what goes wrong here is found again below
    early = of_this_process()
    for found in findings(parser, kept, count, Random(f"{seed} {name}")):
        if keeps:
            kept_inputs.add_crash(name, found.content)
        yield f"{name}: {found.content[:300]!r}\n{found.error}"
    yield from leaks(name, early, of_this_process())


def leaks(name: str, early: Resources, late: Resources, *, spare: int = 0) -> Iterator[str]:
    """The memory and the descriptors that a run did not release; `spare` more descriptors are allowed."""
    if late.descriptors > early.descriptors + spare:
        yield f"{name}: {late.descriptors - early.descriptors} descriptors were left open"
    if late.memory_kib - early.memory_kib > GROWTH_KIB_MAX:
        yield f"{name}: the memory grew from {early.memory_kib} to {late.memory_kib} KiB"
