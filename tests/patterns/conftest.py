"""Both halves of the patterns, driven in the same way: each test runs on the client and on that of asyncio."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from azure.data.tables import TableClient, TableServiceClient
from azure.data.tables.aio import TableClient as AsyncTableClient

import table_patterns
import table_patterns.aio
from tablestone.testing.storage import StorageAccount


class Driven:
    """An object of the asyncio half, called without asyncio: answers are waited for, and iterators are lists."""

    def __init__(self, runner: asyncio.Runner, driven: Any) -> None:
        self._runner = runner
        self.driven = driven

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driven, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            return self.run(found(*arguments, **options))

        return call

    def run(self, answer: Any) -> Any:
        async def all_of() -> list[Any]:
            return [each async for each in answer]

        if inspect.isasyncgen(answer) or hasattr(answer, "by_page"):
            return self._runner.run(all_of())
        return self._runner.run(answer) if inspect.iscoroutine(answer) else answer


class Half:
    """One half of the library, on an account."""

    def __init__(self, runner: asyncio.Runner | None, connection_string: str) -> None:
        self._runner = runner
        self.connection_string = connection_string
        self._closing: list[Any] = []

    def table(self, name: str = "Things", *, create: bool = True, **options: Any) -> Any:
        """A client of a table, which is created if need be."""
        kind: Any = AsyncTableClient if self._runner else TableClient
        client = self._driven(
            kind.from_connection_string(self.connection_string, table_name=name, **options)
        )
        if create:
            with TableServiceClient.from_connection_string(self.connection_string) as plain:
                plain.create_table_if_not_exists(name)
        self._closing.append(client)
        return client

    def __getattr__(self, name: str) -> Any:
        """A class or function of the library: its arguments are clients of `table`."""
        found = getattr(table_patterns.aio if self._runner else table_patterns, name)

        def call(*arguments: Any, **options: Any) -> Any:
            made = found(*(getattr(each, "driven", each) for each in arguments), **options)
            if inspect.iscoroutine(made):
                assert self._runner is not None
                return self._runner.run(made)
            return self._driven(made)

        return call

    def close(self) -> None:
        for client in self._closing:
            client.close()

    def _driven(self, made: Any) -> Any:
        is_ours = type(made).__module__.startswith(("table_patterns.aio", "azure.data.tables.aio"))
        return Driven(self._runner, made) if self._runner and is_ours else made


@pytest.fixture(params=["sync", "aio"])
def half(request: pytest.FixtureRequest, table_account: StorageAccount) -> Iterator[Half]:
    if request.param == "sync":
        found = Half(None, table_account.connection_string)
        yield found
        found.close()
        return
    with asyncio.Runner() as runner:
        found = Half(runner, table_account.connection_string)
        yield found
        found.close()
