"""Software of 2015 and of today on the same data: two unmaintained SDKs, each in its own process.

azure-storage 0.20 speaks Atom at 2014-02-14, azure-cosmosdb-table 1.0 JSON at 2018-03-28 (tests/sdk/legacy). Each does
its work in one run; this file checks its output, and reads its data with today's SDK.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import EdmType, EntityProperty, TableClient, TableServiceClient

from sdk.endpoint import DEVELOPMENT_ACCOUNT, Endpoint, environment_for, fresh_table_name
from sdk.install import language

pytestmark = pytest.mark.sdk

HERE = Path(__file__).parent / "legacy"
PROGRAM_SECONDS_MAX = 60
MODERN = {
    "PartitionKey": "modern",
    "RowKey": "it's",
    "text": "a < b & ü ",
    "n": 7,
    "large": EntityProperty(2**40, EdmType.INT64),
    "real": 0.1,
    "guid": UUID("dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"),
    "bytes": b"\0\xff",
    "when": datetime(2014, 5, 7, 8, 20, 53, tzinfo=UTC),
}


@dataclass(frozen=True)
class Seen:
    """An old SDK's output, and the table that it filled."""

    said: dict[str, Any]
    table: TableClient

    def rows(self, partition_key: str) -> dict[str, dict[str, Any]]:
        """The entities of one partition by RowKey, as today's SDK reads them."""
        found = self.table.query_entities(f"PartitionKey eq '{partition_key}'")
        return {each["RowKey"]: dict(each) for each in found}


def run_program(name: str, endpoint: Endpoint, *arguments: str) -> dict[str, Any]:
    variables = {"PYTHONPATH": str(HERE / ".packages" / name), "EMULATED": "true"}
    ended = subprocess.run(
        [sys.executable, str(HERE / f"{name}_program.py"), *arguments],
        env=environment_for(endpoint) | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def work_of(name: str, endpoint: Endpoint) -> Iterator[Seen]:
    reason = language("legacy").missing()
    if reason is not None:
        pytest.skip(reason)
    credential = AzureNamedKeyCredential(endpoint.account_name, endpoint.account_key)
    with TableServiceClient(endpoint.url, credential=credential) as service:
        table, modern = fresh_table_name(), fresh_table_name()
        service.create_table(modern).create_entity(MODERN)
        first = [urlsplit(endpoint.url).netloc] if name == "atom" else []
        said = run_program(name, endpoint, *first, table, modern)
        yield Seen(said, service.get_table_client(table))
        service.delete_table(table)
        service.delete_table(modern)


@pytest.fixture(scope="module")
def atom(endpoint: Endpoint) -> Iterator[Seen]:
    if endpoint.account_name != DEVELOPMENT_ACCOUNT or "TABLESTONE_TEST_ENDPOINT" in os.environ:
        pytest.skip("azure-storage 0.20 knows no other address than that of an emulator")
    yield from work_of("atom", endpoint)


@pytest.fixture(scope="module", name="json_sdk")
def cosmosdb_table(endpoint: Endpoint) -> Iterator[Seen]:
    yield from work_of("json", endpoint)


def without(entity: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entity.items() if name not in names}


def test_atom_tables(atom: Seen) -> None:
    tables = atom.said["tables"]
    assert (tables["created"], tables["created_again"]) == (True, False)
    assert tables["conflict"][:2] == ["AzureConflictHttpError", 409]
    assert "<code>TableAlreadyExists</code>" in tables["conflict"][2]
    assert atom.table.table_name in tables["found"]
    assert (tables["deleted"], tables["deleted_again"]) == ([True, True], False)


def test_atom_entities(atom: Seen) -> None:
    entities = atom.said["entities"]
    got = entities["got"]
    assert got["etag"].startswith("W/\"datetime'")
    assert without(got, "Timestamp", "etag") == {
        "PartitionKey": "types",
        "RowKey": "<one> & ü",
        "text": " XML <test> & ü ",
        "empty": "",
        "small": 42,
        "large": 5432873627392,
        "real": 4.5,
        "whole": 10.0,
        "infinite": float("inf"),
        "yes": True,
        "when": "2014-05-07T08:20:53+00:00",
        "guid": ["Edm.Guid", "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"],
        "bytes": ["Edm.Binary", "00ff"],
    }
    assert entities["inserted"] == got
    # The library drops nulls: a selected property that is missing gives no error and no value.
    assert entities["selected"] == {"small": 42, "etag": got["etag"]}
    assert entities["conflict"][:2] == ["AzureConflictHttpError", 409]
    assert entities["missing"][:2] == ["AzureMissingResourceHttpError", 404]


def test_atom_writes(atom: Seen) -> None:
    writes = atom.said["writes"]
    assert without(writes["after_merge"], "Timestamp", "etag") == {
        "PartitionKey": "writes",
        "RowKey": "a",
        "n": 2,
        "kept": "k",
    }
    assert without(writes["after_update"], "Timestamp", "etag") == {
        "PartitionKey": "writes",
        "RowKey": "a",
        "n": 3,
    }
    assert writes["etags_differ"]
    assert writes["stale"][1] == 412
    assert "<code>UpdateConditionNotSatisfied</code>" in writes["stale"][2]
    assert (writes["upserted"]["n"], writes["upserted"]["m"]) == (1, 2)
    assert writes["deleted"][:2] == ["AzureMissingResourceHttpError", 404]
    assert "<code>TableNotFound</code>" in writes["no_table"][2]
    assert {row: entity.get("n") for row, entity in atom.rows("writes").items()} == {"a": 3, "b": 1}


def test_atom_batches_and_pages(atom: Seen) -> None:
    kind, status, message = atom.said["batches"]["failed"]
    assert (kind, status) == ("AzureBatchOperationError", 409)
    assert message.startswith("1:The specified entity already exists.")
    rows = atom.rows("batch")
    assert sorted(rows) == ["old", "r0", "r1", "r2", "r3", "r4"]
    assert (rows["old"]["n"], rows["old"]["m"], rows["r4"]["n"]) == (1, 2, 4)
    assert atom.said["pages"] == [["old", "r0"], ["r1", "r2"], ["r4"]]


def test_what_atom_wrote_is_read_today(atom: Seen) -> None:
    (entity,) = atom.rows("types").values()
    assert entity == {
        "PartitionKey": "types",
        "RowKey": "<one> & ü",
        "text": " XML <test> & ü ",
        "empty": "",
        "small": 42,
        "large": EntityProperty(5432873627392, EdmType.INT64),
        "real": 4.5,
        "whole": 10.0,
        "infinite": float("inf"),
        "yes": True,
        "when": datetime(2014, 5, 7, 8, 20, 53, tzinfo=UTC),
        "guid": UUID("dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"),
        "bytes": b"\0\xff",
    }


def test_what_is_written_today_is_read_in_atom(atom: Seen) -> None:
    (entity,) = atom.said["modern"]
    assert without(entity, "Timestamp", "etag") == {
        "PartitionKey": "modern",
        "RowKey": "it's",
        "text": "a < b & ü ",
        "n": 7,
        "large": 2**40,
        "real": 0.1,
        "guid": ["Edm.Guid", "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"],
        "bytes": ["Edm.Binary", "00ff"],
        "when": "2014-05-07T08:20:53+00:00",
    }


def test_json_of_the_retired_sdk(json_sdk: Seen) -> None:
    said = json_sdk.said
    assert (said["created"], said["found"]) == ([True, False], True)
    entities = said["entities"]
    assert without(entities["typed"], "Timestamp", "etag") == {
        "PartitionKey": "json",
        "RowKey": "it's <one> & ü",
        "text": " x ",
        "small": ["Edm.Int32", 42],
        "large": 5432873627392,
        "real": 4.5,
        "yes": True,
        "when": "2014-05-07T08:20:53+00:00",
        "guid": ["Edm.Guid", "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"],
        "bytes": ["Edm.Binary", "00ff"],
    }
    assert without(entities["merged"], "etag") == {"n": 2, "kept": "k"}
    assert entities["stale"][:2] == ["AzureHttpError", 412]
    assert entities["conflict"][:2] == ["AzureConflictHttpError", 409]
    assert entities["deleted"][:2] == ["AzureMissingResourceHttpError", 404]
    kind, status, message = said["batches"]["failed"]
    assert (kind, status) == ("AzureBatchOperationError", 409)
    assert message.startswith("1:The specified entity already exists.")
    assert said["pages"] == [["r0", "r1"], ["r2", "r4"]]
    assert (said["modern"][0]["RowKey"], said["modern"][0]["n"]) == ("it's", ["Edm.Int32", 7])


def test_what_the_retired_sdk_wrote_is_read_today(json_sdk: Seen) -> None:
    rows = json_sdk.rows("json")
    assert sorted(rows) == ["a", "it's <one> & ü"]
    assert without(rows["a"], "PartitionKey", "RowKey") == {"n": EntityProperty(3, EdmType.INT64)}
    assert rows["it's <one> & ü"]["small"] == 42
    assert len(json_sdk.rows("batch")) == 5
