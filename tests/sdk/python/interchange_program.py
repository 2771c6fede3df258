"""The Python side of the interchange (tests/sdk/interchange/README.md): `write TABLE FILE`, `read TABLE`, `sign TABLE`.

Knows the SDK's types and the contract's canonical text; a program, not a test.
"""

import base64
import json
import math
import os
import struct
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from azure.core import MatchConditions
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.data.tables import (
    EdmType,
    EntityProperty,
    ResourceTypes,
    TableClient,
    TableEntity,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)

CONTRACT = 1


def sdk_value(edm_type: str, text: str) -> Any:
    """The SDK's value for the canonical text."""
    match edm_type:
        case "Edm.Int32":
            return int(text)
        case "Edm.Int64":
            return EntityProperty(int(text), EdmType.INT64)
        case "Edm.Double":
            return struct.unpack(">d", bytes.fromhex(text))[0]
        case "Edm.Boolean":
            return text == "true"
        case "Edm.DateTime":
            # A datetime has only microseconds; the text keeps all digits.
            return EntityProperty(text, EdmType.DATETIME)
        case "Edm.Guid":
            return UUID(text)
        case "Edm.Binary":
            return base64.b64decode(text)
        case "Edm.String":
            return text
    raise ValueError(f"unknown type {edm_type}")


def canonical(value: Any) -> tuple[str, str]:
    """The type and the canonical text of a value from the SDK."""
    match value:
        case bool():
            return "Edm.Boolean", "true" if value else "false"
        case int():
            return "Edm.Int32", str(value)
        case EntityProperty():
            return str(EdmType(value.edm_type).value), str(value.value)
        case float():
            number = math.nan if math.isnan(value) else value
            return "Edm.Double", struct.pack(">d", number).hex()
        case datetime():
            return "Edm.DateTime", seven_digits(getattr(value, "tables_service_value"))  # noqa: B009 - the SDK's own subclass
        case UUID():
            return "Edm.Guid", str(value)
        case bytes():
            return "Edm.Binary", base64.b64encode(value).decode("ascii")
        case str():
            return "Edm.String", value
    raise TypeError(f"unknown value {value!r}")


def seven_digits(service_text: str) -> str:
    whole, _, fraction = service_text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<7}Z"


def line(source: str, entity: TableEntity) -> str:
    properties = [
        {"name": name, "type": edm_type, "value": text}
        for name, (edm_type, text) in (
            (name, canonical(value))
            for name, value in entity.items()
            if name not in {"PartitionKey", "RowKey"}
        )
    ]
    keys = {"partitionKey": entity["PartitionKey"], "rowKey": entity["RowKey"]}
    return json.dumps({"source": source} | keys | {"properties": properties})


def write(table: TableClient, path: Path) -> None:
    description = json.loads(path.read_text(encoding="utf-8"))
    if description["contract"] != CONTRACT:
        raise ValueError(f"this program speaks contract {CONTRACT}, not {description['contract']}")
    for entity in description["entities"]:
        values = {
            each["name"]: sdk_value(each["type"], each["value"]) for each in entity["properties"]
        }
        keys = {"PartitionKey": entity["partitionKey"], "RowKey": entity["rowKey"]}
        table.create_entity(keys | values)


def read(table: TableClient) -> None:
    listed = list(table.list_entities())
    for entity in listed:
        print(line("list", entity))
    for entity in listed:
        print(line("get", table.get_entity(entity["PartitionKey"], entity["RowKey"])))


def sign(table: str) -> None:
    credential = AzureNamedKeyCredential(
        os.environ["TABLESTONE_TEST_ACCOUNT"], os.environ["TABLESTONE_TEST_KEY"]
    )
    expiry = datetime.now(UTC) + timedelta(hours=1)
    everything = ResourceTypes(service=True, container=True, object=True)
    account = generate_account_sas(credential, everything, "rwdlacu", expiry)
    print(json.dumps({"signature": "account", "token": account}))
    service = generate_table_sas(credential, table, permission="raud", expiry=expiry)
    print(json.dumps({"signature": "table", "token": service}))


ENTITY = {"PartitionKey": "p", "RowKey": "r"}


def attempt(operation: str, table: TableClient) -> int:
    """Run it with the SDK's default retries; returns 0, the status of its error, or -1 without an answer."""
    try:
        if operation == "insert":
            table.create_entity(ENTITY)
        elif operation == "get":
            table.get_entity("p", "r")
        else:
            assert operation == "update"
            etag = table.get_entity("p", "r").metadata["etag"]
            table.update_entity(
                ENTITY | {"changed": True},
                mode=UpdateMode.REPLACE,
                etag=etag,
                match_condition=MatchConditions.IfNotModified,
            )
    except HttpResponseError as error:
        return error.status_code or -1
    except AzureError:
        return -1
    return 0


class StaticToken:
    """A credential that has a token and sends no request for it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        return AccessToken(self._token, int(datetime.now(UTC).timestamp()) + 3600)


def client(table: str) -> TableClient:
    token = os.environ.get("TABLESTONE_TEST_TOKEN")
    if token:
        return TableClient(
            os.environ["TABLESTONE_TEST_ENDPOINT"], table, credential=StaticToken(token)
        )
    return TableClient.from_connection_string(
        os.environ["TABLESTONE_TEST_CONNECTION_STRING"], table
    )


def main(arguments: list[str]) -> None:
    if arguments[0] == "attempt":
        for each in arguments[1:]:
            operation, _, name = each.partition(":")
            with client(name) as table:
                print(json.dumps({"attempt": each, "status": attempt(operation, table)}))
        return
    with client(arguments[1]) as table:
        match arguments:
            case ["write", _, path]:
                write(table, Path(path))
            case ["read", _]:
                read(table)
            case ["sign", name]:
                sign(name)
            case _:
                raise SystemExit(
                    "write TABLE ENTITIES_JSON | read TABLE | sign TABLE | attempt OPERATION:TABLE ..."
                )


if __name__ == "__main__":
    main(sys.argv[1:])
