"""azure-data-tables while its key is rotated: `tablestone account rotate-key` beside a running server."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.data.tables import generate_table_sas

from sdk.endpoint import Endpoint
from sdk.python.clients import Clients
from server_process import COMMAND, ServerProcess, clean_environment
from storage.cluster.keyspaces import EngineArguments, server_arguments

if TYPE_CHECKING:
    from azure.data.tables.aio import TableClient

pytestmark = [pytest.mark.sdk, pytest.mark.asyncio]

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def engine_of_rotation() -> Iterator[EngineArguments]:
    """An engine of its own: a server that finds a stored account has no development account."""
    with server_arguments() as arguments:
        yield arguments


def administer(store: tuple[str, ...], *arguments: str) -> str:
    return subprocess.run(
        [COMMAND, "account", *arguments, *store],
        env=clean_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    ).stdout


def keys_of(store: tuple[str, ...], account: str) -> list[str]:
    return re.findall(r"^key\d: (\S+)$", administer(store, "show", account, "--keys"), re.MULTILINE)


async def is_served(client: TableClient) -> bool:
    try:
        await client.get_entity("p", "r")
    except ClientAuthenticationError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", [True, False], ids=["sync", "aio"])
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_rotated_key_is_refused_and_the_credential_is_updated(
    private_server: StartServer,
    tmp_path: Path,
    engine_of_rotation: EngineArguments,
    *,
    synchronous: bool,
    workers: str,
) -> None:
    server = private_server(tmp_path, *engine_of_rotation, "--workers", workers)
    store = engine_of_rotation or ("--data", str(tmp_path))
    account = f"rotating{secrets.token_hex(4)}"
    administer(store, "create", account)
    first, second = keys_of(store, account)
    url = server.endpoint.replace(server.account_name, account)
    clients = Clients(Endpoint(url, account, first), synchronous=synchronous)
    used = clients.credential()
    signatures = [
        generate_table_sas(
            AzureNamedKeyCredential(account, key), "kept", permission="r", expiry="2099-01-01"
        )
        for key in (first, second)
    ]
    async with (
        clients.table("kept", credential=used) as owner,
        clients.table("kept", credential=AzureSasCredential(signatures[0])) as by_first,
        clients.table("kept", credential=AzureSasCredential(signatures[1])) as by_second,
    ):
        await owner.create_table()
        await owner.create_entity({"PartitionKey": "p", "RowKey": "r"})
        everybody = (owner, by_first, by_second)
        assert [await is_served(client) for client in everybody] == [True, True, True]

        administer(store, "rotate-key", account, "1")
        assert [await is_served(client) for client in everybody] == [False, False, True]
        used.update(account, second)
        assert await is_served(owner)

        administer(store, "rotate-key", account, "2")
        assert [await is_served(client) for client in everybody] == [False, False, False]
        used.update(account, keys_of(store, account)[0])
        assert [await is_served(client) for client in everybody] == [True, False, False]
