"""Continuation tokens in headers and query parameters: `1!<length>!<base64 of the key>` (wire 6.9).

Tokens are written without a blank and without `;`. Some callers make tokens themselves, in plain base64. A text that
does not begin as a token is the key itself, because old callers and tests send plain keys.

The token of a query that reads backwards, an extension, is `1!r<length>!<base64 of the key>`: a server without the
extension refuses it, and so does a query in the other direction.
"""

import base64
import binascii
import re
from typing import Final

from tablestone.model.edm import DATE_TIME_MIN
from tablestone.model.errors import StorageError
from tablestone.model.keys import ContinuationToken
from tablestone.wire.address import Parameters

_START: Final = "1!"
_TOKEN = re.compile(r"1!(r?)(\d{1,6})!([A-Za-z0-9*_+/= -]*)", re.ASCII)
_DIRECTIONS: Final = {False: "", True: "r"}
"""What a token has before its length: nothing, or `r` if the query reads backwards."""
_TO_WIRE = str.maketrans("=+/", "-*_")
# A `+` that a caller did not percent-encode arrives as a blank.
_FROM_WIRE = str.maketrans("-* _", "+++/")
_PADDING: Final = "-="


def format_token(text: str, *, reverse: bool = False) -> str:
    """The token of one key: `-` for `=` as on the service, and `*` and `_` for `+` and `/` (wire 14 row 14)."""
    key = text.encode("utf-8", "surrogatepass")
    encoded = base64.b64encode(key).decode("ascii").translate(_TO_WIRE)
    return f"1!{_DIRECTIONS[reverse]}{len(encoded)}!{encoded}"


def parse_token(token: str, *, reverse: bool = False) -> str:
    """The key in a token; raises `InvalidInput` for a text that begins as a token and cannot be decoded."""
    if not token.startswith(_START):
        return token
    match = _TOKEN.fullmatch(token)
    if match is None or match[1] != _DIRECTIONS[reverse] or len(match[3]) != int(match[2]):
        raise _invalid()
    text = match[3].rstrip(_PADDING)
    encoded = text.translate(_FROM_WIRE) + "=" * (len(match[3]) - len(text))
    try:
        decoded = base64.b64decode(encoded, validate=True)
        key = decoded.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _invalid() from error
    if base64.b64encode(decoded).decode("ascii") != encoded:
        # Bits are left over after the last byte: the `-` at the end stood for `+`, and the key came out short.
        raise _invalid()
    return key


def _invalid() -> StorageError:
    return StorageError("InvalidInput")


def entity_token_headers(
    token: ContinuationToken, *, reverse: bool = False
) -> list[tuple[bytes, bytes]]:
    """The two headers of a token. Both are always sent, because old clients mishandle a missing NextRowKey."""
    partition_key = format_token(token.next_partition_key, reverse=reverse).encode("ascii")
    row_key = format_token(token.next_row_key, reverse=reverse).encode("ascii")
    return [
        (b"x-ms-continuation-NextPartitionKey", partition_key),
        (b"x-ms-continuation-NextRowKey", row_key),
    ]


def parse_entity_token(
    parameters: Parameters, *, reverse: bool = False
) -> ContinuationToken | None:
    """Where a query continues. No NextRowKey means the partition's first row; NextRowKey alone is ignored.

    Raises `InvalidInput` if one of them is empty or damaged, even if it would be ignored.
    """
    partition_key = parameters.get("NextPartitionKey")
    row_key = parameters.get("NextRowKey")
    if row_key == "" or partition_key == "":
        raise _invalid()
    next_row_key = "" if row_key is None else parse_token(row_key, reverse=reverse)
    if partition_key is None:
        return None
    if reverse and row_key is None:  # there is no last row to mean
        raise _invalid()
    return ContinuationToken(parse_token(partition_key, reverse=reverse), next_row_key)


def table_token_header(table: str, created: int) -> tuple[bytes, bytes]:
    """The header with the token of a list of tables: name, U+0001 and FILETIME of creation in hex, as recorded."""
    text = f"{table.lower()}\x01{created - DATE_TIME_MIN:016x}"
    return b"x-ms-continuation-NextTableName", format_token(text).encode("ascii")


def parse_table_token(parameters: Parameters) -> str | None:
    """The name of the table where a list continues."""
    token = parameters.get("NextTableName")
    if token is None:
        return None
    if token == "":
        raise _invalid()
    return parse_token(token).partition("\x01")[0]
