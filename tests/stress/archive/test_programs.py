"""What is restored is the model's state at that commit, after any program.

The long form is `python -m tests.stress.archive --steps N`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.archive.run import Run
from tablestone.archive import history, upkeep
from tablestone.archive.objects import Content, read_records, write_records
from unit.archive.archived_server import MEMORY


async def problems(random: Random, steps: int) -> list[str]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        return [problem async for problem in Run(Path(directory), random).problems(steps)]


@settings(max_examples=12)
@given(st.randoms(use_true_random=True))
def test_what_is_restored_is_the_models_state(random: Random) -> None:
    assert asyncio.run(problems(random, 120)) == []


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of changes are joined without their second records."""
    real = history.read_named

    async def without_the_second(*given: Any) -> Content:
        content = await real(*given)
        records = list(read_records(content.body))
        return content._replace(body=write_records([*records[:1], *records[2:]]))

    monkeypatch.setattr(upkeep, "read_named", without_the_second)
    assert any(asyncio.run(problems(Random(seed), 300)) for seed in range(4))
