"""Requests that make and drop indexes, and that count, set, suspend and remove expiry: ours, and JSON.

Only requests with the header `x-tablestone-indexes` get here, so that Azure's clients and today's requests never do.
docs/protocol/indexes.md and docs/guides/expiry.md have the forms; `service_resources` has those without the header.
"""

from contextlib import suppress
from typing import Any, Final

from tablestone import limits
from tablestone.model.errors import StorageError
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.operations import (
    TOKEN_HEADER,
    CountTableExpiry,
    DropIndex,
    ExpiryChange,
    GetTableExpiry,
    ListIndexes,
    MakeIndex,
    Operation,
    SetTableExpiry,
)
from tablestone.wire.decode import DecodedRequest, table_in_url
from tablestone.wire.json_payload import decode_object

_TOKEN: Final = TOKEN_HEADER.encode("ascii")


def list_indexes(decoded: DecodedRequest) -> Operation:
    return ListIndexes(table_in_url(decoded.address), or_none=True)


def make_index(decoded: DecodedRequest) -> Operation:
    members: dict[str, Any] = {"withinPartition": False} | decode_object(decoded.body)
    name, within_partition = members.pop("property", None), members.pop("withinPartition")
    if not isinstance(name, str) or not isinstance(within_partition, bool) or members:
        raise _invalid(
            "The body needs property, a name, and may have withinPartition, true or false."
        )
    return MakeIndex(table_in_url(decoded.address), name, within_partition)


def drop_index(decoded: DecodedRequest) -> Operation:
    name = decoded.parameters.get("property")
    if name is None:
        raise _invalid("The parameter property is missing: it names the index.")
    return DropIndex(table_in_url(decoded.address), name)


def get_table_expiry(decoded: DecodedRequest) -> Operation:
    count = decoded.parameters.get("count")
    return GetTableExpiry(table_in_url(decoded.address), or_none=True, count=count)


def set_table_expiry(decoded: DecodedRequest) -> Operation:
    members = decode_object(decoded.body)
    is_suspension = members.keys() == {"suspended"} and members["suspended"] is True
    policy = ExpiryChange.SUSPEND if is_suspension else _policy(members)
    return SetTableExpiry(table_in_url(decoded.address), policy, decoded.raw.text(_TOKEN))


def count_table_expiry(decoded: DecodedRequest) -> Operation:
    return CountTableExpiry(table_in_url(decoded.address), _policy(decode_object(decoded.body)))


def remove_table_expiry(decoded: DecodedRequest) -> Operation:
    return SetTableExpiry(table_in_url(decoded.address), ExpiryChange.REMOVE)


def _policy(members: dict[str, Any]) -> ExpiryPolicy | ExpiryChange:
    if members.keys() == {"suspended"} and members["suspended"] is False:
        return ExpiryChange.RESUME
    members = {"suspended": False} | members
    policy = None
    with suppress(ValueError):
        policy = ExpiryPolicy.from_members(members)
    if policy is None or policy.members() != members:
        raise _invalid(
            f"The policy needs after, from 1 to {limits.EXPIRY_AGE_SECONDS_MAX} seconds, or property, the name of a "
            "property that is neither a key nor Timestamp; and may have suspended, true or false."
        )
    return policy


def _invalid(text: str) -> StorageError:
    return StorageError("InvalidInput", text)
