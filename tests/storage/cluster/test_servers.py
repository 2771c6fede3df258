"""Several servers on one cluster act as one: what one server acknowledged holds for the next request to another.

Needs the cluster, or the PostgreSQL database, that ENGINE_UNDER_TEST names. The servers are real processes.
"""

import secrets
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.data.tables import (
    TableAccessPolicy,
    TableClient,
    TableServiceClient,
    UpdateMode,
    generate_table_sas,
)

from server_process import COMMAND, ServerProcess, clean_environment
from storage.engines_under_test import SHARED

pytestmark = [
    pytest.mark.skipif(
        SHARED is None,
        reason="no cluster: python -m tests.storage.cluster up, then set ENGINE_UNDER_TEST",
    ),
    pytest.mark.sdk,
]

Pair = tuple[ServerProcess, ServerProcess]
ROUNDS = 5
LONGER_THAN_A_LEASE = 1.0
FOREVER = datetime(2100, 1, 1, tzinfo=UTC)
WRITERS, CHANGES = 16, 50


def service_of(server: ServerProcess) -> TableServiceClient:
    return TableServiceClient.from_connection_string(server.connection_string, retry_total=0)


def fresh_name() -> str:
    return "t" + secrets.token_hex(6)


def account_command(*arguments: str) -> str:
    assert SHARED is not None
    done = subprocess.run(
        [COMMAND, "account", *arguments, "--engine", SHARED],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    return done.stdout


def test_tables_and_entities_are_there_at_the_other_server_at_once(pair: Pair) -> None:
    here, there = map(service_of, pair)
    for _ in range(ROUNDS):
        name = fresh_name()
        with pytest.raises(ResourceNotFoundError):
            there.get_table_client(name).get_entity(
                "p", "r"
            )  # this server now caches that there is no such table
        table = here.create_table(name)
        entity = {"PartitionKey": "p", "RowKey": "r", "n": 1}
        there.get_table_client(name).create_entity(entity)
        assert table.get_entity("p", "r")["n"] == 1
        for number in range(5):
            here.get_table_client(name).upsert_entity(entity | {"n": number}, UpdateMode.REPLACE)
            assert there.get_table_client(name).get_entity("p", "r")["n"] == number
        there.delete_table(name)
        with pytest.raises(ResourceNotFoundError):
            table.get_entity("p", "r")
        again = here.create_table(name)
        assert list(there.get_table_client(name).list_entities()) == []
        again.delete_table()


def test_a_policy_that_was_removed_is_refused_at_once_by_every_server(pair: Pair) -> None:
    name = fresh_name()
    table = service_of(pair[0]).create_table(name)
    policy = TableAccessPolicy(
        permission="r", start=None, expiry=datetime.now(UTC) + timedelta(hours=1)
    )
    for _ in range(ROUNDS):
        table.set_table_access_policy({"readers": policy})
        key = AzureNamedKeyCredential(pair[0].account_name, pair[0].account_key)
        signature = generate_table_sas(key, name, policy_id="readers")
        client = TableClient(pair[1].endpoint, name, credential=AzureSasCredential(signature))
        assert list(client.list_entities()) == []
        table.set_table_access_policy({})
        with pytest.raises(ClientAuthenticationError):
            list(client.list_entities())
    table.delete_table()


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_rotated_key_is_refused_at_once_even_by_a_server_that_was_paused(
    pair: Pair, *, is_paused: bool
) -> None:
    name = "a" + secrets.token_hex(6)
    account_command("create", name)
    try:
        printed = account_command("show", name, "--keys").split()
        keys = [word for word in printed if word.endswith("==")]
        clients = []
        for server in pair:
            endpoint = server.endpoint.replace(server.account_name, name)
            credential = AzureNamedKeyCredential(name, keys[0])
            clients.append(TableServiceClient(endpoint, credential=credential, retry_total=0))
        for client in clients:
            assert list(client.list_tables()) == []
        if is_paused:
            pair[1].process.send_signal(signal.SIGSTOP)
        try:
            account_command("rotate-key", name, "1")
            if is_paused:
                time.sleep(LONGER_THAN_A_LEASE)
        finally:
            pair[1].process.send_signal(signal.SIGCONT)
        for client in clients:
            with pytest.raises(ClientAuthenticationError):
                list(client.list_tables())
    finally:
        account_command("delete", name, "--force")


def test_of_servers_that_make_and_delete_one_table_each_time_one_succeeds(pair: Pair) -> None:
    services = [service_of(server) for server in pair for _ in range(3)]
    refused: list[int | None] = []
    name = fresh_name()

    def make(service: TableServiceClient) -> bool:
        try:
            service.create_table(name)
        except ResourceExistsError:
            return False
        return True

    def delete(service: TableServiceClient) -> bool:
        generated = service.get_table_client(name)._client.table  # the SDK hides a 404
        try:
            generated.delete(name)
        except HttpResponseError as error:
            refused.append(error.status_code)
            return False
        return True

    with ThreadPoolExecutor(len(services)) as threads:
        for _ in range(ROUNDS):
            assert sum(threads.map(make, services)) == 1
            assert sum(threads.map(delete, services)) == 1
    assert set(refused) == {404}


def test_writers_at_two_servers_lose_nothing(pair: Pair) -> None:
    name = fresh_name()
    service_of(pair[0]).create_table(name)
    tables = [service_of(server).get_table_client(name) for server in pair]
    tables[0].create_entity({"PartitionKey": "p", "RowKey": "r", "n": 0})

    def count(table: TableClient) -> int:
        succeeded = 0
        while succeeded < 15:
            found = table.get_entity("p", "r")
            found["n"] += 1
            try:
                table.update_entity(
                    found,
                    etag=found.metadata["etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            except HttpResponseError as error:
                refused.append(error.status_code)
            else:
                succeeded += 1
        return succeeded

    refused: list[int | None] = []
    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(count, tables)) == 30
    # Seldom none has met the other; a busy server says 503, and after a 500 the update may have been carried out.
    assert set(refused) <= {412, 500, 503}
    assert 30 <= tables[0].get_entity("p", "r")["n"] <= 30 + refused.count(500)


def test_writers_go_on_while_the_policies_of_their_table_change(pair: Pair) -> None:
    """Each write relies on the table's row, and each change of the policies takes it for itself."""
    name = fresh_name()
    service_of(pair[0]).create_table(name)
    changes_over = threading.Event()

    def write(number: int) -> int:
        table = service_of(pair[number % 2]).get_table_client(name)
        written = 0
        while not changes_over.is_set():
            table.create_entity({"PartitionKey": f"p{number}", "RowKey": f"{written:06}"})
            written += 1
        return written

    key = AzureNamedKeyCredential(pair[0].account_name, pair[0].account_key)
    allowed = {"readers": TableAccessPolicy(permission="r", start=None, expiry=FOREVER)}
    with ThreadPoolExecutor(WRITERS) as threads:
        counts = [threads.submit(write, number) for number in range(WRITERS)]
        try:
            began = time.monotonic()
            for number in range(CHANGES):
                here, there = pair[number % 2], pair[1 - number % 2]
                signature = generate_table_sas(key, name, policy_id="readers")
                client = TableClient(there.endpoint, name, credential=AzureSasCredential(signature))
                table = service_of(here).get_table_client(name)
                table.set_table_access_policy(allowed)
                assert list(client.query_entities("PartitionKey eq 'none'")) == []
                table.set_table_access_policy({})
                with pytest.raises(ClientAuthenticationError):
                    list(client.query_entities("PartitionKey eq 'none'"))
            seconds = time.monotonic() - began
        finally:
            changes_over.set()
    written = sum(count.result() for count in counts)
    found = sum(
        1 for _ in service_of(pair[0]).get_table_client(name).list_entities(select="RowKey")
    )
    assert found == written >= WRITERS
    print(
        f"{2 * CHANGES} changes in {seconds:.1f} s, {written} inserts of {WRITERS} writers meanwhile"
    )
