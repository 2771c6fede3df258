"""Whether an answer is the one that the model expects."""

import base64
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from stress.property.door import Answer, batch_etags
from stress.property.filter_model import Filter, text_of
from stress.property.model import Key, Model, Refused, Stored, Value, Write
from stress.property.payloads import (
    ACCOUNT,
    Members,
    Request,
    batch_request,
    expected_members,
    parse_members,
    write_request,
)

TOKENS = ("NextPartitionKey", "NextRowKey")
MINIMAL = "minimalmetadata"

Job = list[Write] | None
"""The action of one client: a transaction, a single write (a list of one), or a read of the whole table (None)."""
Outcome = tuple[str, int] | None
"""An operation's error and its index; None for a success."""


def outcome_of(call: Callable[[], object]) -> Outcome:
    try:
        call()
    except Refused as refused:
        return refused.code, refused.index
    return None


def listing(
    table: str,
    node: Filter | None = None,
    level: str = MINIMAL,
    select: Sequence[str] = (),
    top: int | None = None,
    token: dict[str, str] | None = None,
) -> Request:
    """A query for one page."""
    options = dict(token or {})
    if node is not None:
        options["$filter"] = text_of(node)
    if select:
        options["$select"] = ",".join(select)
    if top is not None:
        options["$top"] = str(top)
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return Request("GET", f"/{table}(){query}", {"Accept": f"application/json;odata={level}"})


def job_request(table: str, job: Job) -> Request:
    if job is None:
        return listing(table)
    return write_request(table, job[0]) if len(job) == 1 else batch_request(table, job)


def page_of(answer: Answer) -> list[Members]:
    """The entities of a page."""
    found: list[Members] = dict(parse_members(answer.require(200).body))["value"]
    return found


def token_of(answer: Answer) -> dict[str, str] | None:
    """The continuation token to send back; both parts come or none (wire 6.9)."""
    found = {
        name: answer.headers[header]
        for name in TOKENS
        if (header := f"x-ms-continuation-{name.lower()}") in answer.headers
    }
    assert len(found) in (0, 2)
    return found or None


def key_of_token(token: dict[str, str]) -> Key:
    """The key inside a token (wire 6.9)."""
    partition, row = (
        base64.b64decode(token[name].split("!")[2].translate(str.maketrans("-*_", "=+/"))).decode()
        for name in TOKENS
    )
    return partition, row


def etags_of(answer: Answer) -> list[str | None]:
    """The ETag of each requested write, alone or in a transaction."""
    if answer.status == 202:
        return batch_etags(answer)
    return [answer.require(201, 204).headers.get("etag")]


def explains(model: Model, table: str, job: Job, answer: Answer, account: str = ACCOUNT) -> bool:
    """Whether the answer is the model's; the model then continues from there."""
    if job is None:
        expected = outcome_of(lambda: model.table(table))
        if outcome_of(lambda: answer.require(200)) != expected:
            return False
        return expected is not None or page_of(answer) == [
            expected_members(table, key, stored, MINIMAL, account=account)
            for key, stored in model.entities(table)
        ]
    alone = answer.status != 202
    expected = outcome_of(lambda: model.judge(table, job, alone=alone))
    if outcome_of(lambda: etags_of(answer)) != expected:
        return False
    if expected is None:
        try:
            model.apply(table, job, etags_of(answer))
        except AssertionError:  # in this order, a Timestamp would not have increased
            return False
    return True


def in_any_order(members: Members, select: Sequence[str]) -> Any:
    """The members in their order; under `$select`, where missing names may stand anywhere, by name (wire 5.6)."""
    return sorted(members, key=lambda each: each[0]) if select else members


def with_system_properties(key: Key, stored: Stored) -> dict[str, Value]:
    """An entity as filters see it."""
    return {
        **stored.properties,
        "PartitionKey": ("Edm.String", key[0]),
        "RowKey": ("Edm.String", key[1]),
        "Timestamp": ("Edm.DateTime", stored.timestamp),
    }
