"""Forms for the stored access policies of a table, the properties of the service, and its CORS rules.

The service checks what is given, and its error is shown. Knows forms; the values are those of `transfer`.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tablestone.explorer.page_templates import account_of, page
from tablestone.explorer.posted_forms import PostedForm
from tablestone.transfer.refusals import TransferRefused
from tablestone.transfer.service_settings import (
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

LOGGED: Final = ("read", "write", "delete")


def service(request: Request) -> Response:
    """The properties of the service as a form."""
    return _properties(request)


def save_service(request: Request, form: PostedForm) -> Response:
    """Replace the properties of the service. A rule without an origin is left out."""
    columns = [form.texts(name) for name in ("origins", "methods", "allowed", "exposed", "age")]
    rules = tuple(
        CorsRule(origins, methods, allowed, exposed, _whole(age, "The seconds of a CORS rule"))
        for origins, methods, allowed, exposed, age in zip(*columns, strict=False)
        if origins.strip()
    )
    given = ServiceProperties(
        frozenset(word for word in LOGGED if form.text(f"log_{word}")),
        _whole(form.text("log_days"), "The days of the log"),
        _metrics(form, "hour"),
        _metrics(form, "minute"),
        rules,
    )
    write_properties(account_of(request).endpoint, given)
    return _properties(request, "The properties are saved. A server of Azure takes up to 30 s.")


def _properties(request: Request, message: str = "") -> Response:
    found = read_properties(account_of(request).endpoint)
    rules = list(found.cors)
    if len(rules) < RULES_MAX:
        rules.append(CorsRule("", ""))
    return page(
        request, "service.html", properties=found, rules=rules, logged=LOGGED, message=message
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
    if len({each.id for each in given}) < len(given):
        raise TransferRefused("Two policies have one id.")
    write_policies(account_of(request).endpoint, request.path_params["table"], given)
    return _policies(request, "The policies are saved. A server of Azure takes up to 30 s.")


def _policies(request: Request, message: str = "") -> Response:
    table = request.path_params["table"]
    found = read_policies(account_of(request).endpoint, table)
    if len(found) < POLICIES_MAX:
        found.append(AccessPolicy(""))
    return page(request, "policies.html", table=table, policies=found, message=message)


def _whole(text: str, what: str) -> int:
    text = text.strip() or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise TransferRefused(f"{what} must be a whole number, not {text[:40]!r}.")
    return int(text)


SHOWN: Final = {"/service": service, "/tables/{table}/policies": policies}
CHANGES: Final = {"/service": save_service, "/tables/{table}/policies": save_policies}
