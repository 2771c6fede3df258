"""What is restored is the model's state at that commit, after any program.

The long form is `python -m tests.stress.archive --steps N`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.archive.run import Run
from stress.archive.served import ServedRun
from tablestone.archive import history, upkeep
from tablestone.archive.objects import Content, read_records, write_records
from tablestone.engines.sqlite.restored_directory import RestoredDirectory
from tablestone.tables import storage_keys
from unit.archive.archived_server import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tablestone.engines.sqlite.archive_source import StoredRecord
    from tablestone.engines.sqlite.restored_directory import RestoreProgress


async def problems(random: Random, steps: int) -> list[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        return [problem async for problem in Run(Path(directory), random).problems(steps)]


@settings(max_examples=12)
@given(st.randoms(use_true_random=True))
def test_what_is_restored_is_the_models_state(random: Random) -> None:
    assert asyncio.run(problems(random, 120)) == []


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of changes are joined without what their second records have."""
    real = history.read_named

    async def without_the_second(*given: Any) -> Content:
        content = await real(*given)
        records = list(read_records(content.body))
        records[1:2] = (each._replace(rows=b"") for each in records[1:2])
        return content._replace(body=write_records(records))

    monkeypatch.setattr(upkeep, "read_named", without_the_second)
    assert any(asyncio.run(problems(Random(seed), 300)) for seed in range(4))


@settings(max_examples=8)
@given(st.randoms(use_true_random=True))
def test_what_is_restored_of_a_server_is_the_model_at_that_commit(random: Random) -> None:
    """Tables, entities, policies, expiry, indexes, accounts and roles."""
    assert list(ServedRun(random).problems(80)) == []


LOST: dict[str, Callable[[StoredRecord], bool]] = {
    "roles": lambda record: record.partition.endswith(b"roles"),
    "accounts": lambda record: record.partition.endswith(b"account"),
    "catalogs": lambda record: record.partition.startswith(storage_keys.CATALOG),
    "entities": lambda record: record.partition.startswith(storage_keys.ENTITIES),
}


@pytest.mark.parametrize("is_lost", LOST.values(), ids=LOST)
def test_a_record_that_is_lost_is_found(
    monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[StoredRecord], bool]
) -> None:
    """Every fourth of a kind, in restores only. (Those of base copies have no number.)"""
    apply = RestoredDirectory.apply

    def lossy(
        target: RestoredDirectory, records: Iterable[StoredRecord], progress: RestoreProgress
    ) -> None:
        kept = [each for each in records if each.number % 4 or not (each.number and is_lost(each))]
        apply(target, kept, progress)

    monkeypatch.setattr(RestoredDirectory, "apply", lossy)
    assert any(list(ServedRun(Random(seed)).problems(100)) for seed in range(8))
