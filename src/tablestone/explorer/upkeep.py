"""What a Tablestone server does for a table beside requests: its indexes, and the expiry of its entities.

Other services have neither, and only the owner of a key may ask, so the tab is hidden then. The server's own sentences
stand beside the fields that they are about. docs/protocol/indexes.md has the requests.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.explorer.account import ExploredAccount
from tablestone.explorer.grid_query import read_number
from tablestone.explorer.page_templates import PostedForm, account_of, ask, page, path_to
from tablestone.limits import PROPERTY_NAME_LENGTH_MAX
from tablestone.model.entity import TIMESTAMP, is_identifier
from tablestone.model.expiry import SECONDS_IN, ExpiryPolicy
from tablestone.model.keys import PARTITION_KEY, ROW_KEY
from tablestone.tools.client import Query
from tablestone.tools.errors import FieldRefused, ServiceError, TransferRefused
from tablestone.tools.queries import LOOKED_AT

UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
REFRESH_SECONDS: Final = 2
NOT_ACCEPTED: Final = (
    "Nothing is made: confirm that the change of the data directory cannot be undone."
)
NO_AGE: Final = "Type how long after its Timestamp an entity expires: a whole number from 1, and at most 7,800 years."
NO_PROPERTY: Final = "Type the name of the property with the time; a key is none."
NO_INDEXED: Final = "Type the name of the property that the queries filter on."
_OF_INDEX: Final = ("index", "property", "accepted")
_OF_EXPIRY: Final = ("by", "age", "unit", "name")
_BLANK: Final = dict.fromkeys(("property", "within", "accepted", *_OF_EXPIRY), "")
_NOT_INDEXED: Final = (PARTITION_KEY, ROW_KEY, TIMESTAMP)
NONE_HERE: Final = "This service has neither indexes nor expiry, or this caller may not ask."


def shown(
    request: Request, typed: Mapping[str, str] | None = None, problem: FieldRefused | None = None
) -> Response:
    """The page. A `problem` stands beside its field, or in the form that it names; the forms have what was `typed`.

    What was typed for a count is in the address, so the form has it while the server counts, and after that.
    """
    account, table = account_of(request), request.path_params["table"]
    found = account.indexes_and_expiry(table)
    if found is None:
        raise TransferRefused(NONE_HERE)
    counted = None
    wanted = request.query_params.get("count", "")
    if wanted and found.expiry is not None:
        try:
            counted = account.endpoint.own_form("GET", table, "expiry", count=wanted).members
        except ServiceError as error:
            problem = problem or FieldRefused("expiry", error.text)
        looked_at = account.reader().page(Query(table, top=LOOKED_AT), None)
        account.seen.note(table, looked_at.entities)
    return page(
        request,
        "upkeep.html",
        found=found,
        policy=_in_words(found.expiry),
        counted=counted,
        request_count=wanted,
        of_count=_in_words(counted and counted.get("policy")),
        seen=account.seen.of(table),
        typed={
            **_BLANK,
            **{name: request.query_params.get(name, "") for name in _OF_EXPIRY},
            **(typed or {}),
        },
        units=UNITS,
        refresh=REFRESH_SECONDS,
        problem=problem,
        problem_in="index" if problem and problem.field in _OF_INDEX else "expiry",
        command=_command_of_first_index(account, table),
        status=403 if found.refusal else None,
    )


def _in_words(members: Mapping[str, Any] | None) -> str:
    with suppress(ValueError):
        return ExpiryPolicy.from_members(members or {}).in_words
    return ""


def _command_of_first_index(account: ExploredAccount, table: str) -> str:
    """The command that makes an index of the table; empty if the page does not know where the data is."""
    settings = account.settings
    if not settings.storage:
        return ""
    name = next((each for each in account.seen.of(table) if each not in _NOT_INDEXED), "PROPERTY")
    where = f"--account {settings.connection.account}{settings.storage}"
    return f"tablestone index create {table} {name} {where}"


def create_index(request: Request, form: PostedForm) -> Response:
    typed = form.typed("property", "within", "accepted")
    name = typed["property"].strip()
    if not name:
        return shown(request, typed, FieldRefused("property", NO_INDEXED))
    found = account_of(request).indexes_and_expiry(request.path_params["table"])
    if found is not None and found.gate == "first" and not typed["accepted"]:
        return shown(request, typed, FieldRefused("accepted", NOT_ACCEPTED))
    table = request.path_params["table"]
    first = account_of(request).reader().page(Query(table), None).entities
    # The service refuses a name that no property can have.
    is_name = is_identifier(name) and len(name) <= PROPERTY_NAME_LENGTH_MAX
    if is_name and first and not any(name in raw for raw in first) and not form.text("agreed"):
        question = path_to(request, "tables", table, "indexes", "create", **typed)
        return RedirectResponse(question, 303)
    body = {"property": name, "withinPartition": bool(typed["within"])}
    return _sent(request, typed, "property", "PUT", "indexes", body)


def ask_create(request: Request) -> Response:
    name, table = request.query_params.get("property", ""), request.path_params["table"]
    sentence = f"No entity of {table} that was read has {name!r}; names are case-sensitive."
    back = path_to(request, "tables", table, "indexes")
    return ask(request, f"Make an index on {name!r}", sentence, "Make the index", back)


def ask_drop(request: Request) -> Response:
    name, table = request.query_params.get("property", ""), request.path_params["table"]
    sentence = f"Queries of {table} on {name} then scan again. No entity is changed, and the index can be made again."
    back = path_to(request, "tables", table, "indexes")
    return ask(request, f"Drop the index on {name}", sentence, "Drop the index", back)


def drop_index(request: Request, form: PostedForm) -> Response:
    name = form.text("property")
    return _sent(request, {}, "index", "DELETE", "indexes", None, property=name)


def count(request: Request, form: PostedForm) -> Response:
    """Count what a policy would hide: nothing is set before a person has seen that."""
    typed = form.typed(*_OF_EXPIRY)
    if bool(typed["name"].strip()) != bool(typed["age"].strip()):
        typed["by"] = "property" if typed["name"].strip() else "age"
    policy: dict[str, Any] = {"suspended": False}
    if not form.text("resume") and typed["by"] == "property":
        policy = {"property": typed["name"].strip()}
        if not ExpiryPolicy(property_name=policy["property"]).is_valid:
            return shown(request, typed, FieldRefused("name", NO_PROPERTY))
    elif not form.text("resume"):
        policy = {
            "after": (read_number(typed["age"].strip()) or 0) * SECONDS_IN.get(typed["unit"], 1)
        }
        if not ExpiryPolicy(**policy).is_valid:
            return shown(request, typed, FieldRefused("age", NO_AGE))
    return _sent(request, typed, "expiry", "POST", "expiry", policy)


def ask_remove(request: Request) -> Response:
    table = request.path_params["table"]
    sentence = f"The policy of {table} is removed. What it hides, and is not removed yet, is there again at once."
    back = path_to(request, "tables", table, "indexes")
    return ask(request, "Let nothing expire", sentence, "Remove the policy", back)


def change_expiry(request: Request, form: PostedForm) -> Response:
    """Set the policy that was counted, suspend the present one, or remove it."""
    what, typed = form.text("what"), form.typed(*_OF_EXPIRY)
    endpoint, table = account_of(request).endpoint, request.path_params["table"]
    if what == "remove":
        return _sent(request, {}, "expiry", "DELETE", "expiry")
    if what == "suspend":
        return _sent(request, {}, "expiry", "PUT", "expiry", {"suspended": True})
    try:
        counted = endpoint.own_form("GET", table, "expiry", count=form.text("count")).members
    except ServiceError as error:
        return shown(request, typed, FieldRefused("expiry", error.text))
    # With the token that the person has seen: another count may have another result.
    policy, token = counted.get("policy"), form.text("token")
    return _sent(request, typed, "expiry", "PUT", "expiry", policy, token=token)


def _sent(
    request: Request,
    typed: Mapping[str, str],
    field: str,
    method: str,
    comp: str,
    body: Mapping[str, Any] | None = None,
    **more: str,
) -> Response:
    """The page after a request; with the sentence of the service and what was typed if it was refused."""
    table = request.path_params["table"]
    try:
        answer = account_of(request).endpoint.own_form(method, table, comp, body, **more).members
    except ServiceError as error:
        if error.status >= 500:
            raise
        return shown(request, typed, FieldRefused(field, error.text or str(error)))
    of_count = {name: typed[name] for name in _OF_EXPIRY} if method == "POST" else {}
    path = path_to(request, "tables", table, "indexes", **of_count, count=answer.get("count"))
    return RedirectResponse(path, 303)
