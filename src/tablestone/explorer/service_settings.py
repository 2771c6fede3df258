"""Forms for the stored access policies of a table, the properties of the service, and its CORS rules.

The service checks the values, and the page shows its error. Wrong values stay in the form as they were typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tablestone import limits
from tablestone.explorer.grid_query import read_number
from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.model.edm import parse_date_time
from tablestone.model.service_properties import CorsRule, Logging, Metrics, ServiceProperties
from tablestone.model.shared_access import TABLE_PERMISSIONS
from tablestone.tools.errors import ServiceError, TransferRefused
from tablestone.tools.service_settings import (
    PolicyTexts,
    read_policies,
    read_properties,
    write_policies,
    write_properties,
)

LOGGED: Final = ("read", "write", "delete")
RULE_FIELDS: Final = ("origins", "methods", "allowed", "exposed", "age")


def save_service(request: Request, form: PostedForm) -> Response:
    """Replace the properties of the service, without the rules that have no origin."""
    rules = [row for row in form.rows(*RULE_FIELDS) if row[0].strip()]
    try:
        write_properties(account_of(request).endpoint, _read_properties(form, rules))
    except TransferRefused as refused:
        return _properties_page(request, form.text, rules, problem=str(refused))
    except ServiceError as error:
        if error.status != 400:
            raise
        return _properties_page(request, form.text, rules, problem=f"The service answers {error}")
    return service(request, message="The properties are saved. Azure takes up to 30 s.")


def _read_properties(form: PostedForm, rules: Sequence[tuple[str, ...]]) -> ServiceProperties:
    """The properties in a form. Raises `TransferRefused` for a wrong field."""
    for origins, methods, *_ in rules:
        if not methods.strip():
            raise TransferRefused(
                f"The CORS rule of {origins[:60]} needs methods, such as GET,POST."
            )
    return ServiceProperties(
        Logging(
            bool(form.text("log_read")),
            bool(form.text("log_write")),
            bool(form.text("log_delete")),
            _whole(form.text("log_days"), "The days of the log"),
        ),
        _read_metrics(form, "hour"),
        _read_metrics(form, "minute"),
        tuple(
            CorsRule(
                _listed(origins),
                _listed(methods),
                _listed(allowed),
                _listed(exposed),
                _whole(age, "The seconds of a CORS rule"),
            )
            for origins, methods, allowed, exposed, age in rules
        ),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read_metrics(form: PostedForm, name: str) -> Metrics:
    days = _whole(form.text(f"{name}_days"), f"The days of the {name} metrics")
    return Metrics(bool(form.text(f"{name}_enabled")), bool(form.text(f"{name}_apis")), days)


def _whole(text: str, what: str) -> int:
    number = read_number(text.strip() or "0")
    if number is None:
        raise TransferRefused(f"{what} must be a whole number, not {text.strip()[:40]!r}.")
    return number


def service(request: Request, *, message: str = "") -> Response:
    """The properties of the service as a form."""
    found = read_properties(account_of(request).endpoint)
    fields = {f"log_{word}": "1" for word in LOGGED if getattr(found.logging, word)}
    fields["log_days"] = str(found.logging.retention_days or "")
    for name, metrics in (("hour", found.hour_metrics), ("minute", found.minute_metrics)):
        fields[f"{name}_enabled"] = "1" if metrics.enabled else ""
        fields[f"{name}_apis"] = "1" if metrics.include_apis else ""
        fields[f"{name}_days"] = str(metrics.retention_days or "")
    return _properties_page(
        request, lambda name: fields.get(name, ""), _rows(found.cors), message=message
    )


def _rows(rules: Sequence[CorsRule]) -> list[tuple[Any, ...]]:
    return [
        (
            ",".join(rule.allowed_origins),
            ",".join(rule.allowed_methods),
            ",".join(rule.allowed_headers),
            ",".join(rule.exposed_headers),
            rule.max_age_seconds,
        )
        for rule in rules
    ]


def _properties_page(
    request: Request,
    field: Callable[[str], str],
    rules: Sequence[tuple[Any, ...]],
    *,
    message: str = "",
    problem: str = "",
) -> Response:
    """The form. `field` returns the text of a field by its name."""
    shown = [*rules, ("", "", "", "", 0)] if len(rules) < limits.CORS_RULES_MAX else rules
    return page(
        request,
        "service.html",
        status=400 if problem else 200,
        field=field,
        rules=shown,
        logged=LOGGED,
        message=message,
        problem=problem,
    )


def save_policies(request: Request, form: PostedForm) -> Response:
    """Replace the stored access policies of a table by those of the form that have an id."""
    rows = form.rows("id", "permission", "start", "expiry")
    given = [PolicyTexts(*map(str.strip, row)) for row in rows if row[0].strip()]
    problem = _wrong_policy(given)
    if problem:
        return _policies_page(request, given, problem=problem)
    write_policies(account_of(request).endpoint, request.path_params["table"], given)
    return policies(request, message="The policies are saved. Azure takes up to 30 s.")


def policies(request: Request, *, message: str = "") -> Response:
    """The stored access policies of a table as a form."""
    found = read_policies(account_of(request).endpoint, request.path_params["table"])
    return _policies_page(request, found, message=message)


def _policies_page(
    request: Request, found: list[PolicyTexts], *, message: str = "", problem: str = ""
) -> Response:
    shown = [*found, PolicyTexts("")] if len(found) < limits.SIGNED_IDENTIFIERS_MAX else found
    return page(
        request,
        "policies.html",
        status=400 if problem else 200,
        table=request.path_params["table"],
        policies=shown,
        message=message,
        problem=problem,
    )


def _wrong_policy(given: list[PolicyTexts]) -> str:
    """A sentence about the first policy that the service would refuse; else empty."""
    if len({each.id for each in given}) < len(given):
        return "Two policies have the same id."
    for each in given:
        if not set(each.permission) <= set(TABLE_PERMISSIONS):
            return (
                f"The policy {each.id!r} has the permissions {each.permission[:40]!r}: use the letters "
                "r (read), a (add), u (update) and d (delete)."
            )
        for word, moment in (("Begins", each.start), ("Ends", each.expiry)):
            try:
                parse_date_time(moment or "2000-01-01T00:00:00Z")
            except ValueError:
                return f"{word} of the policy {each.id!r} is {moment[:40]!r}, not a time such as 2026-01-31T12:00:00Z."
    return ""
