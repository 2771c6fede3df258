"""The rounds of the bench: the order of the servers, and the rounds that are not counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench import generator, processes
from bench.rounds import Schedule, play
from bench.workloads import BY_NAME


def _played(workload: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The runs of three servers in three rounds, in the order they had; and the outcomes' order."""
    runs: list[str] = []

    def run(server: Any, job: generator.Job) -> Any:
        runs.append(server.name + (f" {job.walks}" if job.walks else ""))
        return SimpleNamespace(per_second=1.0, p50=1.0)

    monkeypatch.setattr(generator, "run", run)
    monkeypatch.setattr(processes, "resident_mib", lambda _tree: 1.0)
    servers = [
        SimpleNamespace(name=name, constant=name == "floor", tree=list)
        for name in ("tablestone", "azurite", "floor")
    ]
    seeded = SimpleNamespace(table=lambda *_arguments: "T")
    outcomes = play(
        BY_NAME[workload],
        cast("Any", servers),
        cast("Any", seeded),
        Schedule(3, 1.0, 0.5, 16, 1),
        lambda _line: None,
    )
    return runs, list(outcomes)


def test_each_server_comes_first_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, azurite, floor = names = ["tablestone", "azurite", "floor"]
    runs, outcomes = _played("point-read", monkeypatch)
    assert runs[:3] == names  # for practice
    assert runs[3:] == [ours, azurite, floor, azurite, floor, ours, floor, ours, azurite]
    assert outcomes == names


def test_a_walk_is_warmed_up_by_one_that_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, outcomes = _played("walk", monkeypatch)
    ours, azurite = ["tablestone 1", "tablestone 3"], ["azurite 1", "azurite 3"]
    assert runs == ["tablestone 3", "azurite 3", *ours, *azurite, *azurite, *ours, *ours, *azurite]
    assert outcomes == ["tablestone", "azurite"]
