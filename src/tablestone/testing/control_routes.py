"""The routes of the control API: their paths, the members that each takes with their types, and what each answers.

One table, from which requests are checked and the OpenAPI document is written. Knows no HTTP connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, NamedTuple, get_args

from tablestone.model.errors import ERRORS
from tablestone.testing import control_operations as operations
from tablestone.testing.control_operations import BYTES, LATENCIES, SEED_FILES, Asked
from tablestone.testing.fault_rules import OPERATIONS, PLANS, Moment, Share

Schema = dict[str, Any]
Perform = Callable[[operations.ControlledStorage, Asked], Awaitable[Any]]


class MemberRefused(ValueError):
    """A member that a request may not have, or with a value of another type; the text is one sentence."""


class Kind(NamedTuple):
    """The values that a member may have: in words, as a JSON schema, and as a function that knows them."""

    words: str
    schema: Schema
    accepts: Callable[[Any], bool]


class Member(NamedTuple):
    """A member of a request's JSON, or a parameter of its query."""

    name: str
    kind: Kind
    text: str
    is_required: bool = False


class Route(NamedTuple):
    """A method on a path. `members` is None for a JSON object with members of any names. `bodies` are other bodies."""

    method: str
    path: str
    perform: Perform
    summary: str
    answer: str | None = None
    status: int = 200
    members: tuple[Member, ...] | None = ()
    query: tuple[Member, ...] = ()
    bodies: tuple[str, ...] = ()

    @property
    def answers_bytes(self) -> bool:
        """Whether the answer is no JSON."""
        return self.answer == BYTES


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_moment(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _is_latency(value: Any) -> bool:
    if not isinstance(value, dict):
        return _is_number(value)
    if len(value) != 1:
        return False
    ((name, numbers),) = value.items()
    return (
        name in LATENCIES
        and isinstance(numbers, dict)
        and set(numbers) == {part.name for part in fields(LATENCIES[name])}
        and all(map(_is_number, numbers.values()))
    )


def _object(properties: dict[str, Schema], required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def _one_of(values: Any) -> Kind:
    texts = sorted(values)
    return Kind(f"one of {', '.join(texts)}", {"type": "string", "enum": texts}, texts.__contains__)


TEXT_SCHEMA: Final[Schema] = {"type": "string"}
NUMBER_SCHEMA: Final[Schema] = {"type": "number"}
WHOLE_SCHEMA: Final[Schema] = {"type": "integer"}
MOMENT_SCHEMA: Final[Schema] = {"type": "string", "format": "date-time"}
TEXT: Final = Kind("a text", TEXT_SCHEMA, lambda value: isinstance(value, str))
NUMBER: Final = Kind("a number", NUMBER_SCHEMA, _is_number)
WHOLE: Final = Kind("a whole number", WHOLE_SCHEMA, _is_whole)
TRUTH: Final = Kind("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
MOMENT: Final = Kind("a moment such as 2030-01-01T00:00:00Z", MOMENT_SCHEMA, _is_moment)
SECONDS_OR_NULL: Final = Kind(
    "a number of seconds, or null",
    {"type": ["number", "null"], "minimum": 0},
    lambda value: value is None or (_is_number(value) and value >= 0),
)
HEADERS: Final = Kind(
    "an object of texts",
    {"type": "object", "additionalProperties": TEXT_SCHEMA},
    lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
)
LATENCY: Final = Kind(
    'seconds, or an object such as {"long_tail": {"median": 0.01, "longest": 1}}',
    {
        "oneOf": [
            NUMBER_SCHEMA,
            *(
                _object({name: _object({part.name: NUMBER_SCHEMA for part in fields(made)})})
                for name, made in LATENCIES.items()
            ),
        ]
    },
    _is_latency,
)

ACCOUNT: Final = Member("account", TEXT, "The account; without it, the development account.")
RULE: Final = (
    Member("account", TEXT, "Only requests of this account."),
    Member("table", TEXT, "Only requests to this table."),
    Member("operation", _one_of(OPERATIONS), "Only this operation."),
    Member("plan", _one_of(PLANS), "Only queries with this plan."),
    Member("header", HEADERS, "Only requests whose headers contain these texts."),
    Member("nth", WHOLE, "From this one of the requests on; alone, only this one."),
    Member("count", WHOLE, "On so many requests."),
    Member("probability", NUMBER, "On each request with this chance, up to 1."),
    Member("error", _one_of(ERRORS), "Answer this error of the service."),
    Member("status", WHOLE, "Answer an error with this status."),
    Member("retry_after", WHOLE, "Seconds for the header Retry-After of the error."),
    Member("committed", TRUTH, "Carry out the operation before the error is answered."),
    Member("reset", _one_of(get_args(Moment)), "Reset the connection: before, within or after."),
    Member("truncate", WHOLE, "End the connection after so many bytes of the body."),
    Member("page_max", WHOLE, "At most so many entities in a page; 0 is an empty page."),
    Member("conflict", TRUTH, "Another write changes the entity first."),
    Member("rate", NUMBER, "ServerBusy above so many operations a second of a share."),
    Member("share", _one_of(get_args(Share)), "The share that has the rate."),
    Member("latency", LATENCY, "Wait before the operation."),
)

_TEXTS: Final[Schema] = {"type": "array", "items": TEXT_SCHEMA}
_SHOWN_NUMBERS: Final = ("number", "status", "rows_read", "rows_returned")
ANSWERS: Final[Mapping[str, Schema]] = {
    "About": _object({"version": TEXT_SCHEMA, "address": TEXT_SCHEMA, "openapi": TEXT_SCHEMA}),
    "Account": _object(
        dict.fromkeys(("name", "key", "endpoint", "connection_string"), TEXT_SCHEMA)
    ),
    "Accounts": _object({"accounts": _TEXTS}),
    "Stored": _object({"stored": WHOLE_SCHEMA}),
    "Entities": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "object"}},
    },
    "Snapshot": _object({"id": TEXT_SCHEMA}),
    "Snapshots": _object({"snapshots": _TEXTS}),
    "Rule": _object(
        {"id": TEXT_SCHEMA, **{member.name: member.kind.schema for member in RULE}}, ["id"]
    ),
    "Faults": _object(
        {
            "seed": WHOLE_SCHEMA,
            "rules": {"type": "array", "items": {"$ref": "#/components/schemas/Rule"}},
            "secondary": _object({"seconds": SECONDS_OR_NULL.schema}),
        }
    ),
    "Clock": _object({"now": MOMENT_SCHEMA, "rate": NUMBER_SCHEMA}),
    "Request": _object(
        {name: WHOLE_SCHEMA if name in _SHOWN_NUMBERS else TEXT_SCHEMA for name in operations.SHOWN}
    ),
    "Requests": _object(
        {
            "count": WHOLE_SCHEMA,
            "requests": {"type": "array", "items": {"$ref": "#/components/schemas/Request"}},
        }
    ),
    "Complaints": _object({"complaints": _TEXTS}),
    "Error": _object({"error": TEXT_SCHEMA}),
}
"""The answers by name, each with the schema of its JSON."""

_DURATION: Final = tuple(
    Member(name, NUMBER, f"So many {name}.") for name in ("days", "hours", "minutes", "seconds")
)
_COST: Final = (
    Member("since", WHOLE, "Judge the requests after the first so many."),
    Member("scans", WHOLE, "At most so many queries that read a whole table."),
    Member("requests", WHOLE, "At most so many requests."),
    Member("rows_read", WHOLE, "At most so many entities read."),
    Member("read_ratio", NUMBER, "At most so many entities read for each that a query returns."),
    Member("account", TEXT, "Only requests of this account."),
)

ROUTES: Final = (
    Route("GET", "/", operations.about, "What serves here.", "About"),
    Route("GET", "/accounts", operations.list_accounts, "The names of all accounts.", "Accounts"),
    Route(
        *(
            "POST",
            "/accounts",
            operations.create_account,
            "Create an empty account.",
            "Account",
            201,
        ),
        members=(Member("name", TEXT, "Its name; without it, a new one."),),
    ),
    Route("DELETE", "/accounts/{name}", operations.delete_account, "Delete an account.", None, 204),
    Route(
        *("POST", "/reset", operations.reset, "Empty all accounts, one, or one table.", None, 204),
        members=(
            Member("account", TEXT, "Only this account."),
            Member("table", TEXT, "Only the entities of this table."),
        ),
    ),
    Route(
        *("POST", "/seed", operations.seed, "Store entities: by table, or a file.", "Stored"),
        members=None,
        query=(ACCOUNT, Member("table", TEXT, "The table of a file.")),
        bodies=tuple(SEED_FILES),
    ),
    Route(
        *("GET", "/dump", operations.dump, "All entities of an account by table.", "Entities"),
        query=(ACCOUNT,),
    ),
    Route("GET", "/snapshots", operations.list_snapshots, "The snapshots.", "Snapshots"),
    Route(
        *(
            "POST",
            "/snapshots",
            operations.take_snapshot,
            "Take a snapshot of everything, or bring one.",
            "Snapshot",
            201,
        ),
        bodies=(BYTES,),
    ),
    Route("GET", "/snapshots/{id}", operations.snapshot_bytes, "A snapshot as bytes.", BYTES),
    Route("DELETE", "/snapshots/{id}", operations.delete_snapshot, "Drop a snapshot.", None, 204),
    Route(
        *(
            "POST",
            "/snapshots/{id}/restore",
            operations.restore_snapshot,
            "Go back to a snapshot.",
            None,
            204,
        )
    ),
    Route("GET", "/faults", operations.list_faults, "The rules, and the secondary.", "Faults"),
    Route(
        *("POST", "/faults", operations.add_fault, "Add a rule after the others.", "Rule", 201),
        members=RULE,
    ),
    Route(
        *("DELETE", "/faults", operations.clear_faults, "Remove all rules.", None, 204),
        query=(Member("seed", WHOLE, "The random numbers begin again from this seed."),),
    ),
    Route("DELETE", "/faults/{id}", operations.remove_fault, "Remove a rule.", None, 204),
    Route(
        *(
            "POST",
            "/faults/azure-like",
            operations.set_azure_like,
            "Set the rules to a bad hour.",
            "Faults",
        ),
        members=(Member("seed", WHOLE, "The seed of the random numbers, 1 if none is given."),),
    ),
    Route(
        *("PUT", "/secondary", operations.set_secondary, "Let the secondary be behind.", None, 204),
        members=(Member("seconds", SECONDS_OR_NULL, "So far; null keeps its state.", True),),
    ),
    Route("GET", "/clock", operations.show_clock, "The time of the storage.", "Clock"),
    Route(
        *(
            "POST",
            "/clock/freeze",
            operations.freeze_clock,
            "Stand still, now or at a moment.",
            "Clock",
        ),
        members=(Member("at", MOMENT, "The moment."),),
    ),
    Route(
        *("POST", "/clock/set", operations.set_clock, "Go on from a moment.", "Clock"),
        members=(Member("to", MOMENT, "The moment.", True),),
    ),
    Route(
        *("POST", "/clock/advance", operations.advance_clock, "Skip some time.", "Clock"),
        members=_DURATION,
    ),
    Route(
        *("POST", "/clock/tick", operations.tick_clock, "Tick at a rate.", "Clock"),
        members=(Member("rate", NUMBER, "Ticks for one of the machine's; 1 without it."),),
    ),
    Route("POST", "/clock/reset", operations.reset_clock, "The machine's time again.", "Clock"),
    Route(
        *("GET", "/requests", operations.list_requests, "The last requests.", "Requests"),
        query=(Member("since", WHOLE, "Those after the first so many."),),
    ),
    Route(
        *(
            "POST",
            "/cost",
            operations.judge_cost,
            "Judge what the last requests cost.",
            "Complaints",
        ),
        members=_COST,
    ),
)


def checked(members: tuple[Member, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given members. Raises `MemberRefused` for an unknown one, a missing one, or a value of another type."""
    by_name = {member.name: member for member in members}
    for name, value in given.items():
        if name not in by_name:
            known = f"there are {', '.join(by_name)}" if by_name else "there is none"
            raise MemberRefused(f"There is no member {name[:40]!r} here; {known}.")
        if not by_name[name].kind.accepts(value):
            raise MemberRefused(f"{name} is {by_name[name].kind.words}.")
    for member in members:
        if member.is_required and member.name not in given:
            raise MemberRefused(f"{member.name} is missing: it is {member.kind.words}.")
    return dict(given)


def parsed_query(members: tuple[Member, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a query, of which those that are numbers arrive as texts."""
    wholes = {member.name for member in members if member.kind is WHOLE}
    return checked(
        members,
        {
            name: int(text) if name in wholes and text.isascii() and text.isdigit() else text
            for name, text in given.items()
        },
    )
