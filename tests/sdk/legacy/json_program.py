"""azure-cosmosdb-table 1.0 at work: `json_program.py TABLE MODERN` does what atom_program.py does, in JSON.

It speaks JSON at 2018-03-28, with bare line feeds and relative URLs in batches (wire 12.8), and prints one JSON object
that tests/sdk/test_legacy.py judges. TABLESTONE_TEST_CONNECTION_STRING has the account.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from azure.common import AzureException, AzureHttpError
from azure.cosmosdb.table import EdmType, EntityProperty, TableBatch, TableService
from azure.cosmosdb.table.common.retry import no_retry


def shown(value: Any) -> Any:
    """A value as JSON, with the type where the library names one."""
    if isinstance(value, EntityProperty):
        return [value.type, shown(value.value)]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else value


def as_dict(entity: Any) -> dict[str, Any]:
    return {name: shown(value) for name, value in entity.items()}


def failure_of(call: Callable[[], object]) -> list[Any]:
    """The class of the error, its status or code, and its message."""
    try:
        call()
    except AzureHttpError as error:
        return [type(error).__name__, error.status_code, str(error)]
    except AzureException as error:  # a batch's error
        return [type(error).__name__, getattr(error, "code", None), str(error)]
    raise AssertionError("it succeeded")


def put(row: str, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "json", "RowKey": row, **properties}


def entities(service: Any, table: str) -> dict[str, Any]:
    typed = put(
        "it's <one> & ü",
        text=" x ",
        small=EntityProperty(EdmType.INT32, 42),
        large=5432873627392,
        real=4.5,
        yes=True,
        when=datetime(2014, 5, 7, 8, 20, 53, tzinfo=UTC),
        guid=EntityProperty(EdmType.GUID, "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"),
        bytes=EntityProperty(EdmType.BINARY, b"\0\xff"),
    )
    service.insert_entity(table, typed)
    etag = service.insert_entity(table, put("a", n=1, kept="k"))
    etag = service.merge_entity(table, put("a", n=2), if_match=etag)
    stale = failure_of(lambda: service.update_entity(table, put("a"), if_match="W/\"datetime'x'\""))
    merged = as_dict(service.get_entity(table, "json", "a", select="n,kept"))
    service.update_entity(table, put("a", n=3), if_match=etag)
    service.insert_or_replace_entity(table, put("b", n=1))
    service.insert_or_merge_entity(table, put("b", m=2))
    service.delete_entity(table, "json", "b")
    return {
        "typed": as_dict(service.get_entity(table, "json", typed["RowKey"])),
        "merged": merged,
        "stale": stale,
        "conflict": failure_of(lambda: service.insert_entity(table, put("a"))),
        "deleted": failure_of(lambda: service.get_entity(table, "json", "b")),
    }


def batches(service: Any, table: str) -> dict[str, Any]:
    batch = TableBatch()
    for row in range(5):
        batch.insert_entity({"PartitionKey": "batch", "RowKey": f"r{row}", "n": row})
    service.commit_batch(table, batch)
    failing = TableBatch()
    failing.insert_entity({"PartitionKey": "batch", "RowKey": "new"})
    failing.insert_entity({"PartitionKey": "batch", "RowKey": "r1"})
    return {"failed": failure_of(lambda: service.commit_batch(table, failing))}


def pages(service: Any, table: str) -> list[list[str]]:
    """The rows of the batch, two per page."""
    found: list[list[str]] = []
    marker = None
    while not found or (marker and len(found) < 10):
        condition = "PartitionKey eq 'batch' and RowKey ne 'r3'"
        page = service.query_entities(table, filter=condition, num_results=2, marker=marker)
        found.append([each.RowKey for each in page])
        marker = page.next_marker
    return found


def main(arguments: list[str]) -> None:
    table, modern = arguments
    service = TableService(connection_string=os.environ["TABLESTONE_TEST_CONNECTION_STRING"])
    service.retry = no_retry  # it would retry a failed batch, because its outer status is 202
    said = {
        "created": [service.create_table(table), service.create_table(table)],
        "found": service.exists(table),
        "entities": entities(service, table),
        "batches": batches(service, table),
        "pages": pages(service, table),
        "modern": [as_dict(each) for each in service.query_entities(modern)],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
