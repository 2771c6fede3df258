"""One interface for the two Python clients, so that every test is written once and runs against both.

The synchronous client gets the asynchronous client's interface. Its calls block, which does no harm, because the server
is another process. Arguments, results and exceptions are the SDK's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import TableClient as SyncTableClient
from azure.data.tables import TableServiceClient as SyncTableServiceClient
from azure.data.tables.aio import TableClient, TableServiceClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from azure.core.exceptions import HttpResponseError

    from sdk.endpoint import Endpoint

Credential = AzureNamedKeyCredential | AzureSasCredential

PAGED_CALLS = frozenset({"list_entities", "query_entities", "list_tables", "query_tables"})


class AwaitedIterator:
    """An iterator of the synchronous client; each page of it becomes one too."""

    def __init__(self, iterator: Iterator[Any], *, pages: bool) -> None:
        self._iterator = iterator
        self._pages = pages

    @property
    def continuation_token(self) -> Any:
        return cast("Any", self._iterator).continuation_token

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None
        return AwaitedIterator(iter(item), pages=False) if self._pages else item


class AwaitedPages:
    """`ItemPaged` with the interface of `AsyncItemPaged`."""

    def __init__(self, paged: Any) -> None:
        self._paged = paged

    def __aiter__(self) -> AwaitedIterator:
        return AwaitedIterator(iter(self._paged), pages=False)

    def by_page(self, continuation_token: Any = None) -> AwaitedIterator:
        return AwaitedIterator(self._paged.by_page(continuation_token), pages=True)


class Awaited:
    """A synchronous client with the asynchronous client's interface."""

    def __init__(self, client: SyncTableClient | SyncTableServiceClient) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        self._client.__enter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._client.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._client, name)
        if not callable(member):
            return member
        if name in PAGED_CALLS:
            return lambda *args, **kwargs: AwaitedPages(member(*args, **kwargs))
        if name == "get_table_client":
            return lambda *args, **kwargs: Awaited(member(*args, **kwargs))
        return _awaited_call(member)


def _awaited_call(member: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        result = member(*args, **kwargs)
        return Awaited(result) if isinstance(result, SyncTableClient) else result

    return call


@dataclass(frozen=True)
class Clients:
    """Makes clients of one of the two kinds. They do not retry: a test wants the first answer."""

    endpoint: Endpoint
    synchronous: bool

    def credential(self) -> AzureNamedKeyCredential:
        return AzureNamedKeyCredential(self.endpoint.account_name, self.endpoint.account_key)

    def service(
        self, *, url: str | None = None, credential: Credential | None = None
    ) -> TableServiceClient:
        kind = SyncTableServiceClient if self.synchronous else TableServiceClient
        return self.faced(
            kind(
                url or self.endpoint.url, credential=credential or self.credential(), retry_total=0
            )
        )

    def service_from(self, connection_string: str) -> TableServiceClient:
        kind = SyncTableServiceClient if self.synchronous else TableServiceClient
        return self.faced(kind.from_connection_string(connection_string, retry_total=0))

    def table(
        self, name: str, *, url: str | None = None, credential: Credential | None = None
    ) -> TableClient:
        where, who = url or self.endpoint.url, credential or self.credential()
        if not self.synchronous:
            return TableClient(where, name, credential=who, retry_total=0)
        client = SyncTableClient(where, name, credential=who, retry_total=0)
        return cast("TableClient", Awaited(client))

    def table_from(self, connection_string: str, name: str) -> TableClient:
        if not self.synchronous:
            return TableClient.from_connection_string(connection_string, name, retry_total=0)
        client = SyncTableClient.from_connection_string(connection_string, name, retry_total=0)
        return cast("TableClient", Awaited(client))

    def table_from_url(self, url: str) -> TableClient:
        """From a URL with a signature, or from one without, whose requests are then signed with the key."""
        who = None if "sig=" in url else self.credential()
        if not self.synchronous:
            return TableClient.from_table_url(url, credential=who, retry_total=0)
        client = SyncTableClient.from_table_url(url, credential=who, retry_total=0)
        return cast("TableClient", Awaited(client))

    @staticmethod
    def faced(client: SyncTableServiceClient | TableServiceClient) -> TableServiceClient:
        if isinstance(client, SyncTableServiceClient):
            return cast("TableServiceClient", Awaited(client))
        return client


def code_of(error: HttpResponseError) -> str:
    """The service's error code. The SDK decodes it for every call but `create_entity`, which leaves it in the body."""
    decoded = getattr(error, "error_code", None)
    if decoded is not None:
        return str(getattr(decoded, "value", decoded))
    written = re.search(r'"code":"(\w+)"', str(error))
    assert written is not None, error
    return written[1]


def token_of(pages: object) -> Any:
    """The continuation token of an iterator of pages, which the SDK's annotations do not mention."""
    return cast("Any", pages).continuation_token
