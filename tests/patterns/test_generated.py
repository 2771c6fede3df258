"""The half without asyncio is the one that is generated from the half with it."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import azure.data.tables.aio
import pytest
from azure.core.credentials import AzureSasCredential

import table_patterns
import table_patterns.aio

ROOT = Path(__file__).parents[2]


def test_the_half_without_asyncio_is_generated() -> None:
    pytest.importorskip("unasync", reason="pip install '.[dev]'")
    command = [sys.executable, "patterns/generate_sync.py", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0, (
        "run patterns/generate_sync.py"
    )


def test_nothing_of_tablestone_is_imported() -> None:
    program = "import sys, table_patterns, table_patterns.aio; print(sorted(sys.modules))"
    source = str(ROOT / "patterns/src")
    said = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
    ).stdout
    assert "'table_patterns.sync.lock'" in said
    assert "'tablestone" not in said


CALLS: dict[str, tuple[Any, ...]] = {
    "IndexedTable": (("Name",),),
    "LargeValues": (),
    "ShardedCounter": ("n",),
    "Lock": ("n",),
    "bulk_delete": ("",),
}


async def made(call: Any, *arguments: Any) -> None:
    answer = call(*arguments)
    if asyncio.iscoroutine(answer):
        await answer


OTHERS: list[tuple[Any, Any]] = [
    (table_patterns, azure.data.tables.aio.TableClient),
    (table_patterns.aio, azure.data.tables.TableClient),
    (table_patterns, azure.data.tables.TableServiceClient),
]


@pytest.mark.parametrize(("half", "client"), OTHERS)
def test_the_client_of_the_other_half_is_refused(half: Any, client: Any) -> None:
    names = {"table_name": "T"} if client.__name__ == "TableClient" else {}
    other = client("http://127.0.0.1:9/a", credential=AzureSasCredential("sig=x"), **names)
    for name, arguments in CALLS.items():
        with pytest.raises(TypeError, match=r"is no azure\.data\.tables"):
            asyncio.run(made(getattr(half, name), other, *arguments))
