"""The control API's members, answers and OpenAPI document. The same values check requests and make the document."""

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, NamedTuple, get_type_hints

from tablestone import __version__
from tablestone.testing.fault_rules import (
    NUMBER,
    PARTS,
    TEXT,
    TRUTH,
    WHOLE,
    Kind,
    Member,
    fixed,
    is_number,
    long_tail,
    normal,
)
from tablestone.testing.recorded_requests import RecordedRequest

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
LATENCIES: Final = {"fixed": fixed, "normal": normal, "long_tail": long_tail}

Schema = dict[str, Any]


class MemberRefused(ValueError):
    """An unknown or missing member, or a value of another type. The text is one sentence."""


class Operation(NamedTuple):
    """An operation: what it takes and what it answers (a name of `ANSWERS`, `BYTES` or None).

    `members` is None for a JSON object with any members. `bodies` are the content types of other bodies.
    """

    method: str
    path: str
    summary: str
    answer: str | None = None
    status: int = 200
    members: tuple[Member, ...] | None = ()
    query: tuple[Member, ...] = ()
    bodies: tuple[str, ...] = ()


def _is_moment(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _is_latency(value: Any) -> bool:
    if not isinstance(value, dict):
        return is_number(value)
    if len(value) != 1:
        return False
    ((name, numbers),) = value.items()
    return (
        name in LATENCIES
        and isinstance(numbers, dict)
        and set(numbers) == {part.name for part in fields(LATENCIES[name])}
        and all(map(is_number, numbers.values()))
    )


def _object(properties: dict[str, Schema], required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
MOMENT: Final = Kind("a moment such as 2030-01-01T00:00:00Z", _MOMENT, _is_moment)
LAG: Final = Kind(
    "a number of seconds, or null",
    {"type": ["number", "null"], "minimum": 0},
    lambda value: value is None or (is_number(value) and value >= 0),
)
LATENCY: Final = Kind(
    'seconds, or an object such as {"long_tail": {"median": 0.01, "longest": 1}}',
    {
        "oneOf": [
            NUMBER.schema,
            *(
                _object({name: _object({part.name: NUMBER.schema for part in fields(latency)})})
                for name, latency in LATENCIES.items()
            ),
        ]
    },
    _is_latency,
)

ACCOUNT: Final = Member("account", TEXT, "The account; the development account if not given.")
RULE: Final = tuple(
    part._replace(kind=LATENCY) if part.name == "latency" else part for part in PARTS
)
NAME: Final = (Member("name", TEXT, "Its name; a new one if not given."),)
RESET: Final = (
    Member("account", TEXT, "Only this account."),
    Member("table", TEXT, "Only the entities of this table."),
)
INDEXED: Final = (
    Member("table", TEXT, "The table.", True),
    Member("property", TEXT, "The property.", True),
    ACCOUNT,
)
INDEX: Final = (*INDEXED, Member("partition", TRUTH, "Only for queries of one partition."))
FILE: Final = (ACCOUNT, Member("table", TEXT, "The table of a file."))
SEED: Final = (Member("seed", WHOLE, "Restart the random numbers from this seed."),)
BAD_HOUR: Final = (Member("seed", WHOLE, "The seed of the random numbers; 1 if not given."),)
BEHIND: Final = (
    Member("seconds", LAG, "How far behind, in seconds; null keeps its present state.", True),
)
AT: Final = (Member("at", MOMENT, "The moment."),)
TO: Final = (Member("to", MOMENT, "The moment.", True),)
RATE: Final = (Member("rate", NUMBER, "Ticks for each of the machine's; 1 if not given."),)
SINCE: Final = (Member("since", WHOLE, "Only requests after the first `since`."),)
DURATION: Final = tuple(
    Member(name, NUMBER, f"How many {name} to skip.")
    for name in ("days", "hours", "minutes", "seconds")
)
BUDGET: Final = (
    Member("since", WHOLE, "Judge only requests after the first `since`."),
    Member("scans", WHOLE, "Allow this many queries that read a whole table."),
    Member("requests", WHOLE, "Allow this many requests."),
    Member("rows_read", WHOLE, "Allow this many entities to be read."),
    Member("read_ratio", NUMBER, "Entities that a query may read for each that it returns."),
    Member("account", TEXT, "Only requests of this account."),
)
REQUEST: Final = {
    name: TEXT.schema if kind is str else WHOLE.schema
    for name, kind in get_type_hints(RecordedRequest).items()
    if kind in (str, int)
}
"""The parts of a recorded request that the API shows."""

ANSWERS: Final[Mapping[str, Schema]] = {
    "About": _object({"version": TEXT.schema, "address": TEXT.schema, "openapi": TEXT.schema}),
    "Account": _object(
        dict.fromkeys(("name", "key", "endpoint", "connection_string"), TEXT.schema)
    ),
    "Accounts": _object({"accounts": _array(TEXT.schema)}),
    "Stored": _object({"stored": WHOLE.schema}),
    "Entities": {"type": "object", "additionalProperties": _array({"type": "object"})},
    "Snapshot": _object({"id": TEXT.schema}),
    "Snapshots": _object({"snapshots": _array(TEXT.schema)}),
    "Rule": _object({"id": TEXT.schema, **{each.name: each.kind.schema for each in RULE}}, ["id"]),
    "Faults": _object(
        {
            "seed": WHOLE.schema,
            "rules": _array(_reference("Rule")),
            "secondary": _object({"seconds": LAG.schema}),
        }
    ),
    "Clock": _object({"now": _MOMENT, "rate": NUMBER.schema}),
    "Request": _object(REQUEST),
    "Requests": _object({"count": WHOLE.schema, "requests": _array(_reference("Request"))}),
    "Complaints": _object({"complaints": _array(TEXT.schema)}),
    "Error": _object({"error": TEXT.schema}),
}


def checked(members: Collection[Member], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given members. Raises `MemberRefused` if one is unknown, missing, or of another type."""
    by_name = {member.name: member for member in members}
    for name, value in given.items():
        if name not in by_name:
            known = f"the members are {', '.join(by_name)}" if by_name else "there are none"
            raise MemberRefused(f"There is no member {name[:40]!r} here; {known}.")
        if not by_name[name].kind.accepts(value):
            raise MemberRefused(f"{name} is {by_name[name].kind.words}.")
    for member in members:
        if member.is_required and member.name not in given:
            raise MemberRefused(f"{member.name} is missing: it is {member.kind.words}.")
    return dict(given)


def openapi(operations: Mapping[str, Operation], address: str) -> Schema:
    """The OpenAPI document of named operations at an address."""
    done = {"description": "Done.", "content": {JSON: {"schema": {"type": "object"}}}}
    this = {"summary": "This document.", "operationId": "openapi", "responses": {"200": done}}
    paths: dict[str, Schema] = {"/openapi.json": {"get": this}}
    for name, operation in operations.items():
        described = _described(operation) | {"operationId": name}
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Control of a Tablestone server for tests",
            "version": __version__,
            "description": (
                "State, faults and clock of a Tablestone server that was started with --control. It is for tests. Only "
                "programs on the same machine can reach it. Each error is one sentence."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": address}],
        "paths": paths,
        "components": {"schemas": dict(ANSWERS)},
    }


def _described(operation: Operation) -> Schema:
    done: Schema = {"description": "Done."}
    if operation.answer == BYTES:
        done["content"] = {BYTES: {}}
    elif operation.answer is not None:
        done["content"] = {JSON: {"schema": _reference(operation.answer)}}
    refused = {
        "description": "Refused, in one sentence.",
        "content": {JSON: {"schema": _reference("Error")}},
    }
    described: Schema = {
        "summary": operation.summary,
        "responses": {str(operation.status): done, "default": refused},
    }
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT.schema}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    parameters += [
        {
            "name": member.name,
            "in": "query",
            "required": member.is_required,
            "description": member.text,
            "schema": member.kind.schema,
        }
        for member in operation.query
    ]
    if parameters:
        described["parameters"] = parameters
    content: dict[str, Schema] = {}
    if operation.members is None:
        content[JSON] = {"schema": _reference("Entities")}
    elif operation.members:
        schemas = {
            each.name: each.kind.schema | {"description": each.text} for each in operation.members
        }
        required = [each.name for each in operation.members if each.is_required]
        content[JSON] = {"schema": _object(schemas, required)}
    for form in operation.bodies:
        content[form] = {} if form == BYTES else {"schema": TEXT.schema}
    if content:
        members = operation.members
        is_required = members is None or any(each.is_required for each in members)
        described["requestBody"] = {"required": is_required, "content": content}
    return described
