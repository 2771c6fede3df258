"""What a Tablestone server does for a table beside requests: its indexes, and the expiry of its entities.

Other services have neither, and only the owner of a key may ask, so the tab is hidden then. The server's own sentences
stand beside the fields that they are about. docs/protocol/indexes.md has the requests.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone.explorer.grid_query import read_number
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to
from tablestone.model.expiry import SECONDS_IN, ExpiryPolicy
from tablestone.tools.errors import ServiceError, TransferRefused

UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
REFRESH_SECONDS: Final = 2
NOT_ACCEPTED: Final = (
    "Nothing is made: confirm that the change of the data directory cannot be undone."
)
NO_AGE: Final = "Type how long after its Timestamp an entity expires, as a whole number."
NO_PROPERTY: Final = "Type the name of the property with the time."
_BLANK: Final = dict.fromkeys(
    ("property", "within", "accepted", "by", "age", "unit", "name", "resume"), ""
)
NONE_HERE: Final = "This service has neither indexes nor expiry, or this caller may not ask."


def shown(
    request: Request, typed: Mapping[str, str] | None = None, problem: str = "", place: str = ""
) -> Response:
    """The page. A `problem` stands in the form `place`, "index" or "expiry", with what was `typed`."""
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
            problem, place = problem or error.text, place or "expiry"
    return page(
        request,
        "upkeep.html",
        found=found,
        policy=_in_words(found.expiry),
        counted=counted,
        request_count=wanted,
        of_count=_in_words(counted and counted.get("policy")),
        fields_of_count=_as_typed((counted and counted.get("policy")) or {}),
        seen=account.seen.of(table),
        typed={**_BLANK, **(typed or {})},
        units=UNITS,
        refresh=REFRESH_SECONDS,
        problem=problem,
        problem_in=place,
        status=403 if found.refusal else None,
    )


def _in_words(members: Mapping[str, Any] | None) -> str:
    with suppress(ValueError):
        return ExpiryPolicy.from_members(members or {}).in_words
    return ""


def _as_typed(policy: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the form that ask for a policy: the form comes back with them if the policy is refused."""
    if "property" in policy:
        return {"by": "property", "name": policy["property"]}
    seconds = policy.get("after", 0)
    unit = next(each for each in UNITS if seconds % SECONDS_IN[each] == 0)
    return {"by": "age", "age": str(seconds // SECONDS_IN[unit]), "unit": unit}


def create_index(request: Request, form: PostedForm) -> Response:
    typed = form.typed("property", "within", "accepted")
    name = typed["property"].strip()
    found = account_of(request).indexes_and_expiry(request.path_params["table"])
    if found is not None and found.gate == "first" and not typed["accepted"]:
        return shown(request, typed, NOT_ACCEPTED, "index")
    body = {"property": name, "withinPartition": bool(typed["within"])}
    return _sent(request, typed, "index", "PUT", "indexes", body)


def drop_index(request: Request, form: PostedForm) -> Response:
    parameters = {"property": form.text("property")}
    return _sent(request, {}, "index", "DELETE", "indexes", None, **parameters)


def count(request: Request, form: PostedForm) -> Response:
    """Count what a policy would hide: nothing is set before a person has seen that."""
    typed = form.typed("by", "age", "unit", "name", "resume")
    policy: dict[str, Any] = {"suspended": False}
    if not typed["resume"] and typed["by"] == "property":
        policy = {"property": typed["name"].strip()}
        if not typed["name"].strip():
            return shown(request, typed, NO_PROPERTY, "expiry")
    elif not typed["resume"]:
        age = read_number(typed["age"].strip())
        if age is None:
            return shown(request, typed, NO_AGE, "expiry")
        policy = {"after": age * SECONDS_IN.get(typed["unit"], 1)}
    return _sent(request, typed, "expiry", "POST", "expiry", policy)


def change_expiry(request: Request, form: PostedForm) -> Response:
    """Set the policy that was counted, suspend the present one, or remove it."""
    what, typed = form.text("what"), form.typed("by", "age", "unit", "name")
    if what == "remove":
        return _sent(request, {}, "expiry", "DELETE", "expiry")
    if what == "suspend":
        return _sent(request, {}, "expiry", "PUT", "expiry", {"suspended": True})
    endpoint, table = account_of(request).endpoint, request.path_params["table"]
    try:
        counted = endpoint.own_form("GET", table, "expiry", count=form.text("count")).members
    except ServiceError as error:
        return shown(request, typed, error.text, "expiry")
    # With the token that the person has seen: another count may have another result.
    policy, token = counted.get("policy"), form.text("token")
    return _sent(request, typed, "expiry", "PUT", "expiry", policy, token=token)


def _sent(
    request: Request,
    typed: Mapping[str, str],
    place: str,
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
        return shown(request, typed, error.text or str(error), place)
    path = path_to(request, "tables", table, "indexes", count=answer.get("count"))
    return RedirectResponse(path, 303)
