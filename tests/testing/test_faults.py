"""Faults act as their rules say: how often, over real connections, and on what is stored."""

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    IncompleteReadError,
    ResourceExistsError,
    ResourceModifiedError,
    ServiceResponseError,
)
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableClient,
    TableServiceClient,
    UpdateMode,
    generate_account_sas,
)

from tablestone.model.errors import ERRORS
from tablestone.testing import StorageTransport, TableStorage

ENTITY = {"PartitionKey": "p", "RowKey": "r", "total": 5}


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage() as storage:
        yield storage


@pytest.fixture(params=["http", "socketless"])
def table(request: pytest.FixtureRequest, storage: TableStorage) -> Iterator[TableClient]:
    """A client without retries."""
    options: dict[str, Any] = {"retry_total": 0}
    if request.param == "socketless":
        options["transport"] = StorageTransport(storage)
    service = TableServiceClient.from_connection_string(storage.connection_string, **options)
    with service:
        yield service.create_table("Orders")


def stored(storage: TableStorage) -> list[dict[str, Any]]:
    return storage.dump()["Orders"]


def refusal_of(work: Callable[[], object]) -> str:
    """The SDK's error, with Retry-After and its first line; empty if there is none."""
    try:
        work()
    except HttpResponseError as error:
        told: Any = error
        first = told.message.splitlines()[0]
        return f"{told.error_code.value} {told.status_code} {told.response.headers.get('Retry-After')}: {first}"
    return ""


def test_the_nth_request_of_an_operation_gets_the_error(
    storage: TableStorage, table: TableClient
) -> None:
    table.create_entity(ENTITY)
    storage.faults.add(operation="UpdateEntity", nth=3, status=503, retry_after=1)
    statuses = []
    for total in range(5):
        refused = refusal_of(
            lambda: table.update_entity(ENTITY | {"total": total}, mode=UpdateMode.REPLACE)  # noqa: B023
        )
        statuses.append(refused)
        table.get_entity("p", "r")
    assert statuses == ["", "", "ServerBusy 503 1: The server is busy.", "", ""]
    assert [record.fault for record in storage.requests if record.fault] == ["ServerBusy"]


@pytest.mark.parametrize(
    ("status", "code", "is_at_front_door"),
    [
        (400, "InvalidInput", False),
        (401, "NoAuthenticationInformation", True),
        (403, "AuthorizationFailure", False),
        (404, "ResourceNotFound", False),
        (405, "MethodNotAllowed", False),
        (409, "EntityAlreadyExists", False),
        (411, "MissingContentLengthHeader", False),
        (412, "UpdateConditionNotSatisfied", False),
        (413, "RequestBodyTooLarge", False),
        (415, "MediaTypeNotSupported", False),
        (500, "InternalError", False),
        (501, "NotImplemented", False),
        (503, "ServerBusy", False),
    ],
)
def test_each_status_is_an_error_of_the_service(
    storage: TableStorage,
    status: int,
    code: str,
    is_at_front_door: bool,  # noqa: FBT001
) -> None:
    """Codes and texts of wire 11. Only the front door sends x-ms-error-code with JSON (wire 2.2, 8.3)."""
    storage.faults.add(status=status)
    with httpx.Client() as client:
        answer = client.get(
            f"{storage.endpoint}/Tables?{_sas(storage)}", headers={"Accept": "application/json"}
        )
    error = answer.json()["odata.error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert error["message"]["value"].startswith(ERRORS[code].text)
    assert answer.headers.get("x-ms-error-code") == (code if is_at_front_door else None)
    assert ("www-authenticate" in answer.headers) is (status == 401)
    assert [record.error for record in storage.requests] == [code]


def test_the_sdk_retries_what_it_may(storage: TableStorage) -> None:
    storage.faults.add(operation="InsertEntity", count=2, error="ServerBusy", retry_after=0)
    with TableServiceClient.from_connection_string(storage.connection_string) as service:
        service.create_table("Orders").create_entity(ENTITY)
    inserts = [record.status for record in storage.requests if record.operation == "InsertEntity"]
    assert inserts == [503, 503, 201]


@pytest.mark.parametrize(
    ("fault", "is_committed"),
    [
        ({"error": "OperationTimedOut"}, False),
        ({"error": "OperationTimedOut", "committed": True}, True),
        ({"reset": "before"}, False),
        ({"reset": "after"}, True),
        ({"reset": "within"}, True),
        ({"truncate": 10}, True),
    ],
)
def test_it_is_known_what_was_committed(
    storage: TableStorage,
    table: TableClient,
    fault: dict[str, Any],
    is_committed: bool,  # noqa: FBT001
) -> None:
    rule = storage.faults.add(operation="InsertEntity", **fault)
    # azure-data-tables 12.7 raises AttributeError in its own error handling for half an answer over HTTP.
    with pytest.raises(
        (HttpResponseError, ServiceResponseError, IncompleteReadError, AttributeError)
    ):
        table.create_entity(ENTITY)
    storage.faults.remove(rule)
    assert stored(storage) == ([ENTITY] if is_committed else [])
    if is_committed:
        with pytest.raises(ResourceExistsError):
            table.create_entity(ENTITY)
    else:
        table.create_entity(ENTITY)


def raw_answer(storage: TableStorage) -> tuple[bytes, bool]:
    """The bytes that a socket receives for one request, and whether the connection is reset."""
    received = b""
    with socket.create_connection(("127.0.0.1", storage.port), timeout=20) as connection:
        request = (
            f"GET /{storage.account.name}/Tables?{_sas(storage)} HTTP/1.1\r\nHost: here\r\n"
            "Accept: application/json\r\n\r\n"
        )
        connection.sendall(request.encode())
        try:
            while piece := connection.recv(65536):
                received += piece
        except ConnectionResetError:
            return received, True
    return received, False


def _sas(storage: TableStorage) -> str:
    account = storage.account
    return generate_account_sas(
        AzureNamedKeyCredential(account.name, account.key),
        ResourceTypes(service=True, object=True, container=True),
        AccountSasPermissions(list=True, read=True),
        datetime.now(UTC) + timedelta(hours=1),
    )


@pytest.mark.parametrize(
    ("fault", "body", "is_reset"),
    [
        ({"reset": "before"}, None, True),
        ({"reset": "after"}, None, True),
        ({"reset": "within"}, "half", True),
        ({"truncate": 7}, 7, False),
    ],
)
def test_a_connection_ends_as_the_rule_says(
    storage: TableStorage,
    fault: dict[str, Any],
    body: int | str | None,
    is_reset: bool,  # noqa: FBT001
) -> None:
    storage.faults.add(**fault)
    received, was_reset = raw_answer(storage)
    assert was_reset == is_reset
    head, _, content = received.partition(b"\r\n\r\n")
    if body is None:
        assert received == b""
        return
    (length,) = (
        int(line[16:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
    )
    expected = length // 2 if body == "half" else int(body)
    assert len(content) == expected < length


def test_a_write_in_between_is_a_412(storage: TableStorage, table: TableClient) -> None:
    etag = table.create_entity(ENTITY)["etag"]
    storage.faults.add(conflict=True, count=1)
    condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    table.upsert_entity({"PartitionKey": "other", "RowKey": "r"})  # the condition names no ETag
    with pytest.raises(ResourceModifiedError):
        table.update_entity(ENTITY | {"total": 6}, **condition)
    now = table.get_entity("p", "r")
    assert now == ENTITY
    table.update_entity(
        ENTITY | {"total": 6},
        etag=now.metadata["etag"],
        match_condition=MatchConditions.IfNotModified,
    )


def test_pages_are_short_and_empty(storage: TableStorage, table: TableClient) -> None:
    rows = [ENTITY | {"RowKey": f"{n:03}"} for n in range(30)]
    storage.seed({"Orders": rows})
    storage.faults.add(operation="QueryEntities", nth=2, count=2, page_max=0)
    storage.faults.add(operation="QueryEntities", page_max=7)
    pages = [list(page) for page in table.list_entities().by_page()]
    assert [len(page) for page in pages] == [7, 0, 0, 7, 7, 7, 2]
    assert list(itertools.chain(*pages)) == rows


def test_a_partition_is_throttled_and_another_is_not(
    storage: TableStorage, table: TableClient
) -> None:
    storage.clock.freeze()
    storage.faults.add(rate=5, share="partition")
    busy = dict.fromkeys(("a", "b"), 0)
    for partition in busy:
        for row in range(4 if partition == "b" else 60):
            entity = {"PartitionKey": partition, "RowKey": str(row)}
            busy[partition] += "ServerBusy" in refusal_of(lambda: table.upsert_entity(entity))  # noqa: B023
    assert busy["a"] > 0
    assert busy["b"] == 0
    storage.clock.advance(seconds=1)
    table.upsert_entity({"PartitionKey": "a", "RowKey": "later"})


def test_a_request_waits(storage: TableStorage, table: TableClient) -> None:
    storage.faults.add(operation="GetEntity", latency=0.05)
    table.create_entity(ENTITY)
    started = time.perf_counter()
    table.get_entity("p", "r")
    assert time.perf_counter() - started >= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_program_that_retries_gets_through_a_bad_hour(seed: int) -> None:
    """Every write is an upsert, so that one with an unknown outcome may be repeated."""
    with TableStorage() as storage:
        service = TableServiceClient.from_connection_string(
            storage.connection_string, transport=StorageTransport(storage), retry_total=0
        )
        table = service.create_table("Orders")
        storage.faults.azure_like(seed)
        rows = [ENTITY | {"RowKey": f"{n:03}", "total": n} for n in range(150)]
        failures = 0
        for row in rows:
            while True:
                try:
                    table.upsert_entity(row)
                    break
                except AzureError:
                    failures += 1
        found: list[Any] | None = None
        while found is None:
            try:
                found = list(table.list_entities())
            except AzureError:
                failures += 1
        assert found == stored(storage) == rows
        assert failures > 0
        faults = [record.fault for record in storage.requests if record.fault]
        assert len(set(faults)) > 1
