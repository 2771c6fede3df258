"""Forms for the stored access policies of a table, the properties of the service, and its CORS rules.

The service checks what is given, and its error is shown. Knows forms; the values are those of `tools`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.model.edm import parse_date_time
from tablestone.tools.errors import ServiceError, TransferRefused
from tablestone.tools.service_settings import (
    POLICIES_MAX,
    RULES_MAX,
    AccessPolicy,
    CorsRule,
    Metrics,
    ServiceProperties,
    read_policies,
    read_properties,
    write_policies,
    write_properties,
)

POLICY_LETTERS: Final = "raud"
"""The permissions that a policy of a table may have."""
LOGGED: Final = ("read", "write", "delete")
WRONG: Final = 400


class TypedRule(NamedTuple):
    """A CORS rule as it was typed."""

    origins: str
    methods: str
    allowed_headers: str
    exposed_headers: str
    max_age_seconds: str


def service(request: Request) -> Response:
    """The properties of the service as a form."""
    return _properties(request)


def save_service(request: Request, form: PostedForm) -> Response:
    """Replace the properties of the service. A rule without an origin is left out."""
    columns = [form.texts(name) for name in ("origins", "methods", "allowed", "exposed", "age")]
    typed = [TypedRule(*each) for each in zip(*columns, strict=False) if each[0].strip()]
    try:
        given = _given(form, typed)
        write_properties(account_of(request).endpoint, given)
    except TransferRefused as refused:
        return _properties_page(request, _shown(form), typed, problem=str(refused))
    except ServiceError as error:
        if error.status != WRONG:
            raise
        problem = f"The service answers {error}"
        return _properties_page(request, _shown(form), typed, problem=problem)
    return _properties(request, "The properties are saved. A server of Azure takes up to 30 s.")


def _given(form: PostedForm, typed: list[TypedRule]) -> ServiceProperties:
    """The properties of a form; `TransferRefused` says which field is wrong."""
    for each in typed:
        if not each.methods.strip():
            raise TransferRefused(
                f"The CORS rule of {each.origins[:60]} needs methods, such as GET,POST."
            )
    return ServiceProperties(
        frozenset(word for word in LOGGED if form.text(f"log_{word}")),
        _whole(form.text("log_days"), "The days of the log"),
        _metrics(form, "hour"),
        _metrics(form, "minute"),
        tuple(
            CorsRule(*each[:4], _whole(each.max_age_seconds, "The seconds of a CORS rule"))
            for each in typed
        ),
    )


def _shown(form: PostedForm) -> dict[str, Any]:
    """The fields of a form that is wrong, as they were typed."""
    shown: dict[str, Any] = {
        name: {
            "enabled": form.text(f"{name}_enabled"),
            "include_apis": form.text(f"{name}_apis"),
            "retention_days": form.text(f"{name}_days"),
        }
        for name in ("hour", "minute")
    }
    logged = [word for word in LOGGED if form.text(f"log_{word}")]
    return shown | {"logged": logged, "log_retention_days": form.text("log_days")}


def _properties(request: Request, message: str = "") -> Response:
    found = read_properties(account_of(request).endpoint)
    return _properties_page(request, found, list(found.cors), message=message)


def _properties_page(
    request: Request,
    properties: ServiceProperties | dict[str, Any],
    rules: Sequence[CorsRule | TypedRule],
    *,
    message: str = "",
    problem: str = "",
) -> Response:
    shown = [*rules, CorsRule("", "")] if len(rules) < RULES_MAX else rules
    return page(
        request,
        "service.html",
        status=WRONG if problem else 200,
        properties=properties,
        rules=shown,
        logged=LOGGED,
        message=message,
        problem=problem,
    )


def _metrics(form: PostedForm, name: str) -> Metrics:
    days = _whole(form.text(f"{name}_days"), f"The days of the {name} metrics")
    return Metrics(bool(form.text(f"{name}_enabled")), bool(form.text(f"{name}_apis")), days)


def policies(request: Request) -> Response:
    """The stored access policies of a table as a form."""
    return _policies(request)


def save_policies(request: Request, form: PostedForm) -> Response:
    """Replace the stored access policies of a table. One without an id is left out."""
    columns = [form.texts(name) for name in ("id", "permission", "start", "expiry")]
    given = [
        AccessPolicy(*(text.strip() for text in each))
        for each in zip(*columns, strict=False)
        if each[0].strip()
    ]
    problem = _wrong_policy(given)
    if problem:
        return _policies_page(request, given, problem=problem, status=400)
    write_policies(account_of(request).endpoint, request.path_params["table"], given)
    return _policies(request, "The policies are saved. A server of Azure takes up to 30 s.")


def _policies(request: Request, message: str = "") -> Response:
    table = request.path_params["table"]
    found = read_policies(account_of(request).endpoint, table)
    return _policies_page(request, found, message=message)


def _policies_page(
    request: Request,
    found: list[AccessPolicy],
    *,
    message: str = "",
    problem: str = "",
    status: int = 200,
) -> Response:
    table = request.path_params["table"]
    shown = [*found, AccessPolicy("")] if len(found) < POLICIES_MAX else found
    return page(
        request,
        "policies.html",
        status=status,
        table=table,
        policies=shown,
        message=message,
        problem=problem,
    )


def _wrong_policy(given: list[AccessPolicy]) -> str:
    """The first thing that the service would refuse, in a sentence; empty if there is none."""
    if len({each.id for each in given}) < len(given):
        return "Two policies have one id."
    for each in given:
        if not set(each.permission) <= set(POLICY_LETTERS):
            return (
                f"The policy {each.id!r} has the permissions {each.permission[:40]!r}: they are letters of "
                "r (read), a (add), u (update) and d (delete)."
            )
        for word, moment in (("Begins", each.start), ("Ends", each.expiry)):
            try:
                parse_date_time(moment or "2000-01-01T00:00:00Z")
            except ValueError:
                return f"{word} of the policy {each.id!r} is no time such as 2026-01-31T12:00:00Z: {moment[:40]!r}."
    return ""


def _whole(text: str, what: str) -> int:
    text = text.strip() or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise TransferRefused(f"{what} must be a whole number, not {text[:40]!r}.")
    return int(text)


SHOWN: Final = {"/service": service, "/tables/{table}/policies": policies}
CHANGES: Final = {"/service": save_service, "/tables/{table}/policies": save_policies}
