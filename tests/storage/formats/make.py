"""Makes a data directory for `tests/cli/test_upgrade.py`, with the installed version of Tablestone.

    python tests/storage/formats/make.py tests/storage/formats/2-closed [--killed] [--keep-changes]

Run it once for each released format and never again, because the directories are what that version wrote.
`expected.json` is what its server answered. With `--killed`, the writes are in the log, as after a power failure.
With `--keep-changes`, the directory has a record of changes, which makes it format 2.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableAccessPolicy,
    TableCorsRule,
    TableServiceClient,
)

sys.path.insert(0, str(Path(__file__).parents[2]))

from server_process import COMMAND, start_server

KEEP_CHANGES = ("--keep-changes", "1GiB")
"""By size alone: records that are kept by age are gone when a test reads them."""
ENTITIES = [
    {
        "PartitionKey": "JFK",
        "RowKey": f"{number:03}",
        "Text": "Grüße, 東京 \N{GRINNING FACE}",
        "Whole": number,
        "Long": EntityProperty(1 << 40, EdmType.INT64),
        "Double": 3.5,
        "Is": True,
        "Bytes": b"\0\xff",
        "Id": UUID(int=number),
    }
    for number in range(40)
]


def answers(connection_string: str) -> dict[str, list[dict[str, str]]]:
    """All entities of all tables, each value as Python's repr."""
    found = {}
    with TableServiceClient.from_connection_string(connection_string) as service:
        for table in service.list_tables():
            rows = service.get_table_client(table.name).list_entities()
            found[table.name] = [{name: repr(row[name]) for name in row} for row in rows]
            policies = service.get_table_client(table.name).get_table_access_policy()
            found[f"{table.name}: policies"] = [{name: repr(name) for name in sorted(policies)}]
    return found


def changes(connection_string: str) -> list[str]:
    """The feed of the account, with its cursors."""
    return run("changes", AZURE_STORAGE_CONNECTION_STRING=connection_string)


def run(*words: str, **environment: str) -> list[str]:
    ended = subprocess.run(
        [COMMAND, *words], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return ended.stdout.splitlines()


def listed(data: Path) -> dict[str, list[str]]:
    """The stored accounts and roles, as the commands list them."""
    place = ("--data", str(data))
    return {"accounts": run("account", "list", *place), "roles": run("role", "list", *place)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--killed", action="store_true")
    parser.add_argument("--keep-changes", action="store_true")
    options = parser.parse_args()
    data = options.directory
    server = start_server(data, *(KEEP_CHANGES if options.keep_changes else ()))
    place = ("--data", str(data))
    run("account", "create", "weather", *place)
    run("role", "assign", "Storage Table Data Reader", "--principal", "one", *place)
    run("token", *place)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        table = service.create_table("readings")
        table.submit_transaction([("create", entity) for entity in ENTITIES])
        table.delete_entity("JFK", "007")
        table.update_entity({"PartitionKey": "JFK", "RowKey": "008", "Whole": -8})
        table.set_table_access_policy({"reader": TableAccessPolicy(permission="r")})
        service.create_table("stations").create_entity({"PartitionKey": "", "RowKey": "x" * 900})
        service.create_table("gone").create_entity(ENTITIES[0])
        service.delete_table("gone")
        service.set_service_properties(cors=[TableCorsRule(["*"], ["GET"])])
    expected: dict[str, Any] = {"tables": answers(server.connection_string), **listed(data)}
    if options.keep_changes:
        expected["changes"] = changes(server.connection_string)
    if options.killed:
        server.kill()
    else:
        server.stop()
    (data / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    for name in ("lock", "commit.lock", "next.lock", "tablestone.db-shm"):
        (data / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
