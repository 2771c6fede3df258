"""Continuation tokens as they travel: `1!<length>!<base64 of the key>` in headers and query parameters (wire 6.9).

Tokens are opaque to clients, and must hold no blank and no `;`. A token of another form is taken as the key itself,
because old callers and tests send keys plainly.
"""

from __future__ import annotations

import base64
import binascii
import re

from tablestone.edm import DATE_TIME_MIN
from tablestone.entity import ContinuationToken
from tablestone.errors import StorageError
from tablestone.wire.address import Parameters

_TOKEN = re.compile(r"1!(\d{1,6})!([A-Za-z0-9*_-]*)", re.ASCII)
_TO_WIRE = str.maketrans("=+/", "-*_")
_FROM_WIRE = str.maketrans("-*_", "=+/")


def format_token(text: str) -> str:
    """The token of one key; `=` is written `-` as the service does, `+` and `/` as `*` and `_` (wire 14 row 14)."""
    encoded = (
        base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").translate(_TO_WIRE)
    )
    return f"1!{len(encoded)}!{encoded}"


def parse_token(token: str) -> str:
    """The key that a token stands for; raises `InvalidQueryParameterValue` for a damaged one."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return token
    encoded = match[2].translate(_FROM_WIRE)
    if len(encoded) != int(match[1]):
        raise StorageError("InvalidQueryParameterValue", early=True)
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise StorageError("InvalidQueryParameterValue", early=True) from error


def entity_token_headers(token: ContinuationToken) -> list[tuple[bytes, bytes]]:
    """Both headers, always: old clients mishandle a missing NextRowKey."""
    return [
        (
            b"x-ms-continuation-NextPartitionKey",
            format_token(token.next_partition_key).encode("ascii"),
        ),
        (b"x-ms-continuation-NextRowKey", format_token(token.next_row_key).encode("ascii")),
    ]


def parse_entity_token(parameters: Parameters) -> ContinuationToken | None:
    """The token a query goes on from. Without NextRowKey it is the partition's first row; one alone is ignored."""
    partition_key = parameters.get("NextPartitionKey")
    row_key = parameters.get("NextRowKey")
    if row_key == "" or partition_key == "":
        raise StorageError("InvalidQueryParameterValue", early=True)
    if partition_key is None:
        return None
    return ContinuationToken(
        parse_token(partition_key), "" if row_key is None else parse_token(row_key)
    )


def table_token_header(table: str, created: int) -> tuple[bytes, bytes]:
    """The header of a list of tables: the name, U+0001 and the FILETIME of its creation in hex, as recorded."""
    text = f"{table}\x01{created - DATE_TIME_MIN:016x}"
    return b"x-ms-continuation-NextTableName", format_token(text).encode("ascii")


def parse_table_token(parameters: Parameters) -> str | None:
    """The name of the table that a list goes on from."""
    token = parameters.get("NextTableName")
    if token is None:
        return None
    if token == "":
        raise StorageError("InvalidQueryParameterValue", early=True)
    return parse_token(token).partition("\x01")[0]
