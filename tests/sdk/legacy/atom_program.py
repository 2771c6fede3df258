"""azure-storage 0.20 at work: `atom_program.py HOST TABLE MODERN` does what an application of 2015 does.

It speaks Atom at 2014-02-14, prints what it saw as one JSON object, and tests/sdk/test_legacy.py judges that. The
library supports a server at an address of its own only as the storage emulator, so it uses that account. The program
creates TABLE; MODERN exists and has what today's SDK wrote.
"""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from azure.common import AzureHttpError

# The package before its parts, which import each other.
from azure.storage.table import EntityProperty, TableService  # isort: split

from azure.storage import _common_serialization
from azure.storage._http import batchclient

PAGES_MAX = 10


def in_the_emulators_account(request: Any) -> tuple[str, Any]:
    """The library's own code, except for batches, whose URL lacks the account."""
    found: tuple[str, Any] = _common_serialization._update_request_uri_query_local_storage(
        request, use_local_storage=True
    )
    return found


batchclient._update_request_uri_query = in_the_emulators_account


def shown(value: Any) -> Any:
    """A value as JSON, with the type where the library names one."""
    if isinstance(value, EntityProperty):
        raw = value.value
        return [value.type, raw.hex() if isinstance(raw, bytes) else raw]
    return value.isoformat() if isinstance(value, datetime) else value


def as_dict(entity: Any) -> dict[str, Any]:
    return {name: shown(value) for name, value in vars(entity).items()}


def failure_of(call: Callable[[], object]) -> list[Any]:
    """The class of the error, its status and its message."""
    try:
        call()
    except AzureHttpError as error:
        return [type(error).__name__, error.status_code, str(error)]
    except Exception as error:  # noqa: BLE001 - a batch's error has a class of its own
        return [type(error).__name__, getattr(error, "code", None), str(error)]
    raise AssertionError("it succeeded")


def tables(service: Any, table: str) -> dict[str, Any]:
    return {
        "created": service.create_table(table),
        "created_again": service.create_table(table),
        "conflict": failure_of(lambda: service.create_table(table, fail_on_exist=True)),
        "found": [each.name for each in service.query_tables()],
        "deleted": [service.create_table(f"{table}x"), service.delete_table(f"{table}x")],
        "deleted_again": service.delete_table(f"{table}x"),
    }


def entities(service: Any, table: str) -> dict[str, Any]:
    typed = {
        "PartitionKey": "types",
        "RowKey": "<one> & ü",
        "text": " XML <test> & ü ",
        "empty": "",
        "nothing": None,
        "small": 42,
        "large": 5432873627392,
        "real": 4.5,
        "whole": EntityProperty("Edm.Double", 10.0),
        "infinite": EntityProperty("Edm.Double", "INF"),
        "yes": True,
        "when": datetime(2014, 5, 7, 8, 20, 53, tzinfo=UTC),
        "guid": EntityProperty("Edm.Guid", "dd3cb8f8-93b7-44e2-b74a-c0aa3b27a6d2"),
        "bytes": EntityProperty("Edm.Binary", b"\0\xff"),
    }
    inserted = service.insert_entity(table, typed)
    key = typed["PartitionKey"], typed["RowKey"]
    return {
        "inserted": as_dict(inserted),
        "got": as_dict(service.get_entity(table, *key)),
        "selected": as_dict(service.get_entity(table, *key, select="small,absent")),
        "conflict": failure_of(lambda: service.insert_entity(table, typed)),
        "missing": failure_of(lambda: service.get_entity(table, "types", "absent")),
    }


def writes(service: Any, table: str) -> dict[str, Any]:
    def put(row: str, **properties: Any) -> dict[str, Any]:
        return {"PartitionKey": "writes", "RowKey": row, **properties}

    service.insert_entity(table, put("a", n=1, kept="k"))
    merged = service.merge_entity(table, "writes", "a", put("a", n=2))
    after_merge = as_dict(service.get_entity(table, "writes", "a"))
    updated = service.update_entity(table, "writes", "a", put("a", n=3), if_match=merged["etag"])
    stale = failure_of(
        lambda: service.update_entity(table, "writes", "a", put("a", n=4), if_match=merged["etag"])
    )
    service.insert_or_replace_entity(table, "writes", "b", put("b", n=1))
    service.insert_or_merge_entity(table, "writes", "b", put("b", m=2))
    service.insert_entity(table, put("c"))
    service.delete_entity(table, "writes", "c")
    return {
        "after_merge": after_merge,
        "after_update": as_dict(service.get_entity(table, "writes", "a")),
        "etags_differ": merged["etag"] != updated["etag"],
        "stale": stale,
        "upserted": as_dict(service.get_entity(table, "writes", "b")),
        "deleted": failure_of(lambda: service.delete_entity(table, "writes", "c")),
        "no_table": failure_of(lambda: service.insert_entity(f"{table}x", put("c"))),
    }


def batches(service: Any, table: str) -> dict[str, Any]:
    service.insert_entity(table, {"PartitionKey": "batch", "RowKey": "old", "n": 1})
    service.begin_batch()
    for row in range(5):
        service.insert_entity(table, {"PartitionKey": "batch", "RowKey": f"r{row}", "n": row})
    service.merge_entity(table, "batch", "old", {"PartitionKey": "batch", "RowKey": "old", "m": 2})
    service.commit_batch()
    service.begin_batch()
    service.insert_entity(table, {"PartitionKey": "batch", "RowKey": "new"})
    service.insert_entity(table, {"PartitionKey": "batch", "RowKey": "r1"})
    return {"failed": failure_of(service.commit_batch)}


def pages(service: Any, table: str) -> list[list[str]]:
    """The rows of the batch, two per page, with the continuation that the library keeps."""
    found: list[list[str]] = []
    keys: dict[str, str] = {}
    while len(found) < PAGES_MAX:
        condition = "PartitionKey eq 'batch' and RowKey ne 'r3'"
        page = service.query_entities(table, filter=condition, top=2, **keys)
        found.append([each.RowKey for each in page])
        token = getattr(page, "x_ms_continuation", None)
        if token is None:
            break
        keys = {
            "next_partition_key": token["NextPartitionKey"],
            "next_row_key": token["NextRowKey"],
        }
    return found


def main(arguments: list[str]) -> None:
    host, table, modern = arguments
    service = TableService(dev_host=host)
    said = {
        "tables": tables(service, table),
        "entities": entities(service, table),
        "writes": writes(service, table),
        "batches": batches(service, table),
        "pages": pages(service, table),
        "modern": [as_dict(each) for each in service.query_entities(modern)],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
