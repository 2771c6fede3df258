"""`tablestone serve` whose archive is quick, and which kills itself at a step of writing it.

KILLED_AT has the kind of the object, the stage of the step, and how many such steps are done before, such as
`joined linked 2`; the kinds and stages are those of `STEPS`. `never` kills at no step.
PLANTED_BUG makes it leave records out.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tablestone.archive import archiver, store
from tablestone.archive.objects import Kind, parse_name
from tablestone.archive.store import DirectoryStore
from tablestone.cli.main import main
from tablestone.engines.sqlite.archive_source import ArchiveSource

CREATED: Final = ("before", "unlinked", "linked", "after")
STEPS: Final = {
    **dict.fromkeys(("term", "changes", "joined", "part", "end"), CREATED),
    **dict.fromkeys(("deletion", "store_next", "begin_run", "note"), ("before", "after")),
}
"""What can be killed: objects by their kinds, and what the directory stores, each with its stages."""

CONSTANTS: Final = {
    "tablestone.archive.upkeep.EVERY_SECONDS": 0.3,
    "tablestone.archive.upkeep.JOIN_SECONDS": 0.5,
    "tablestone.archive.upkeep.UNFINISHED_SECONDS": 2.0,
    "tablestone.archive.base_copy.EVERY_SECONDS": 0.6,
    "tablestone.archive.base_copy.GAP_SECONDS": 0.5,
    "tablestone.archive.base_copy.PART_BYTES": 30_000,
    "tablestone.archive.archiver.OBJECT_BYTES": 100_000,
    "tablestone.archive.archiver.NOTE_SECONDS": 0.2,
    "tablestone.archive.archiver.BESIDE_RETRY_SECONDS": 0.3,
    "tablestone.telemetry.worker_reports.REPORT_SECONDS": 0.2,
    "tablestone.tables.expiry_sweeping.MARGIN_SECONDS": 0.2,
    "tablestone.tables.expiry_sweeping.PAUSE_SECONDS": 0.1,
    "tablestone.tables.expiry_sweeping.LEASE_SECONDS": 2,
}
INTERVAL_SECONDS: Final = 0.1
KEPT_SECONDS: Final = 3


def leave_records_out() -> None:
    """Count the records of every third object as archived, and write none."""
    real, written = archiver.Archiver._write, itertools.count()

    async def write(
        self: archiver.Archiver, term: Any, oldest: Any, newest: Any, body: Any
    ) -> None:
        if next(written) % 3 == 2:
            term.archived = newest.number
        else:
            await real(self, term, oldest, newest, body)

    archiver.Archiver._write = write  # type: ignore[method-assign]


class Kills:
    """Kills the server at a step: this process is its supervisor, and a worker is forked from it."""

    def __init__(self, text: str) -> None:
        self.kind, self.stage, count = (*text.split(), "", "0")[:3]
        self.left = int(count)
        self.supervisor = os.getpid()

    def reached(self, kind: str, stage: str) -> None:
        if (kind, stage) != (self.kind, self.stage):
            return
        if self.left == 0:
            for process in (self.supervisor, os.getpid()):
                os.kill(process, signal.SIGKILL)
        self.left -= 1


def kind_of(name: str) -> str:
    parsed = parse_name(name)
    assert parsed is not None
    if parsed.kind is Kind.BASE:
        return "end" if parsed.part is None else "part"
    return {Kind.TERM: "term", Kind.CHANGES: "changes", Kind.JOINED: "joined"}[parsed.kind]


def kill_in_steps(kills: Kills) -> None:
    create, delete, link = DirectoryStore.create, DirectoryStore.delete, os.link

    async def created(self: DirectoryStore, name: str, data: bytes) -> None:
        kills.reached(kind_of(name), "before")
        await create(self, name, data)
        kills.reached(kind_of(name), "after")

    def linked(source: Path, target: Path) -> None:
        names = ("/".join(target.parts[-count:]) for count in (3, 4, 5))
        kind = next(kind_of(name) for name in names if parse_name(name) is not None)
        kills.reached(kind, "unlinked")
        link(source, target)
        kills.reached(kind, "linked")

    async def deleted(self: DirectoryStore, name: str) -> None:
        kills.reached("deletion", "before")
        await delete(self, name)
        kills.reached("deletion", "after")

    DirectoryStore.create = created  # type: ignore[method-assign]
    DirectoryStore.delete = deleted  # type: ignore[method-assign]
    vars(store)["os"] = _WithLink(linked)
    for name in ("store_next", "begin_run", "note"):
        setattr(ArchiveSource, name, _stored(kills, name, getattr(ArchiveSource, name)))


class _WithLink:
    """The module `os` with another `link`."""

    def __init__(self, link: Callable[[Path, Path], None]) -> None:
        self.link = link

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _stored(kills: Kills, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def store_it(*given: Any) -> Any:
        kills.reached(name, "before")
        done = real(*given)
        kills.reached(name, "after")
        return done

    return store_it


def make_quick() -> None:
    for name, value in CONSTANTS.items():
        module, _, constant = name.rpartition(".")
        constants = vars(import_module(module))
        assert constant in constants, name
        constants[constant] = value
    real = archiver.Archiver.__init__

    def quick(self: Any, store: Any, source: Any, settings: Any, *rest: Any) -> None:
        settings = replace(settings, interval=INTERVAL_SECONDS, retention_seconds=KEPT_SECONDS)
        real(self, store, source, settings, *rest)

    archiver.Archiver.__init__ = quick  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    make_quick()
    kill_in_steps(Kills(os.environ["KILLED_AT"]))
    if os.environ.get("PLANTED_BUG"):
        leave_records_out()
    sys.exit(main())
