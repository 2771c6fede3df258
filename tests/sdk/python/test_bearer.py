"""azure-data-tables with a bearer token: the challenge names tenant and scope, and a new token is used at once."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.data.tables import TableServiceClient as SyncTableServiceClient
from azure.data.tables.aio import TableServiceClient

from sdk.endpoint import environment_for, fresh_table_name
from sdk.python.clients import Clients, code_of
from sdk.test_bearer import token

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sdk.conftest import TlsServer

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

TENANT = "7ab1e570-0000-4000-8000-000000000000"
"""The default of `--token-tenant`."""


@dataclass
class Recording:
    """A credential that hands out its tokens in order, then repeats the last one, and records what it was asked for.

    Each token expires so soon that the SDK asks again for the next request.
    """

    tokens: list[str]
    asked: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list)

    def next(self, scopes: tuple[str, ...], tenant: str | None) -> AccessToken:
        self.asked.append((scopes, tenant))
        text = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        return AccessToken(text, int(time.time()) + 1)


class SyncCredential(Recording):
    def get_token(self, *scopes: str, tenant_id: str | None = None, **_options: Any) -> AccessToken:
        return self.next(scopes, tenant_id)


class AsyncCredential(Recording):
    async def get_token(
        self, *scopes: str, tenant_id: str | None = None, **_options: Any
    ) -> AccessToken:
        return self.next(scopes, tenant_id)

    async def close(self) -> None:
        """Required by `azure.core.credentials_async`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Nothing is held."""


@pytest.fixture(params=["sync", "aio"])
def is_synchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "sync")


def bearing(
    tls_server: TlsServer, tokens: list[str], *, synchronous: bool
) -> tuple[TableServiceClient, Recording]:
    """A client that trusts the server, and its credential. Its version is one that gets a challenge."""
    certificate = environment_for(tls_server.endpoint)["SSL_CERT_FILE"]
    options: dict[str, Any] = {"api_version": "2020-12-06", "retry_total": 0}
    if synchronous:
        credential = SyncCredential(tokens)
        client = SyncTableServiceClient(
            tls_server.endpoint.url, credential=credential, connection_verify=certificate, **options
        )
        return Clients.faced(client), credential
    holder = AsyncCredential(tokens)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate))
    transport = AioHttpTransport(session=aiohttp.ClientSession(connector=connector))
    return (
        TableServiceClient(
            tls_server.endpoint.url, credential=holder, transport=transport, **options
        ),
        holder,
    )


@pytest.mark.slow
async def test_the_challenge_names_tenant_and_scope(
    tls_server: TlsServer, *, is_synchronous: bool
) -> None:
    """Auth 4.2: the answer to a refused token says where to get one, and the SDK tries once more."""
    tokens = [token(tls_server, "--audience", "https://vault.example"), token(tls_server)]
    service, credential = bearing(tls_server, tokens, synchronous=is_synchronous)
    async with service:
        name = fresh_table_name()
        await service.create_table(name)
        await service.delete_table(name)
    assert credential.asked[:2] == [
        (("https://storage.azure.com/.default",), None),
        (("https://storage.azure.com/.default",), TENANT),
    ]


async def test_a_token_that_stays_bad_is_refused(
    tls_server: TlsServer, *, is_synchronous: bool
) -> None:
    bad = token(tls_server, "--audience", "https://vault.example")
    service, credential = bearing(tls_server, [bad], synchronous=is_synchronous)
    async with service:
        with pytest.raises(ClientAuthenticationError) as caught:
            await service.create_table(fresh_table_name())
    assert (caught.value.status_code, code_of(caught.value)) == (401, "InvalidAuthenticationInfo")
    assert len(credential.asked) == 2


async def test_a_token_updated_in_use(tls_server: TlsServer, *, is_synchronous: bool) -> None:
    reader = token(tls_server, "--role", "Storage Table Data Reader")
    service, _ = bearing(tls_server, [reader, token(tls_server)], synchronous=is_synchronous)
    async with service:
        name = fresh_table_name()
        await assert_refused(service.create_table(name), "AuthorizationPermissionMismatch")
        await service.create_table(name)
        await service.delete_table(name)


async def test_what_a_token_can_never_do(tls_server: TlsServer, *, is_synchronous: bool) -> None:
    """Auth 4.4: it cannot reach a table's policies, and data roles cannot read the service's properties."""
    service, _ = bearing(tls_server, [token(tls_server)], synchronous=is_synchronous)
    async with service:
        table = await service.create_table(fresh_table_name())
        async with table:
            with pytest.raises(HttpResponseError) as caught:
                await table.get_table_access_policy()
            assert caught.value.status_code == 404
            await assert_refused(
                service.get_service_properties(), "AuthorizationPermissionMismatch"
            )
            await table.delete_table()


async def assert_refused(call: Awaitable[Any], code: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        await call
    assert (caught.value.status_code, code_of(caught.value)) == (403, code)
