"""Forms for the stored access policies of a table, the properties of the service, and its CORS rules.

The service checks the values, and the page shows its error. What is wrong stays in its form as typed. A save replaces
all policies or properties, so it writes only if what is stored is what the form showed. The protocol has no ETag for
them: what another client writes in the milliseconds between that check and the write is still lost.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from azure.data.tables import (
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
)
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablestone import limits
from tablestone.explorer.grid_query import read_number
from tablestone.explorer.page_templates import PostedForm, account_of, page, path_to
from tablestone.model.edm import DATE_TIME_MAX, INT32_MAX, utf16_length
from tablestone.model.service_properties import ANY, CORS_METHODS
from tablestone.model.shared_access import ACCOUNT_PERMISSIONS, TABLE_PERMISSIONS, parse_instant
from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import FieldRefused, ServiceError

LOGGED: Final = ("read", "write", "delete")
_INPUT_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.0*)?Z")
RULE_FIELDS: Final = ("origins", "methods", "allowed", "exposed", "age")
PropertyTexts = tuple[dict[str, str], list[tuple[Any, ...]]]
"""The service properties as the fields of the form, and the CORS rules as its rows."""


class ChangedMeanwhile(FieldRefused):
    def __init__(self, what: str, stored: object, form: PostedForm) -> None:
        since = (
            "once more, since that was said" if form.text("again") else "since this page was shown"
        )
        sentence = f"Another client has changed the {what} {since}."
        super().__init__("", f"{sentence} Nothing is written. “Save” replaces them by yours.")
        self.stored = stored


def _digest(stored: object) -> str:
    """A form says with it what it showed, and the address after a save what was stored."""
    return hashlib.sha256(orjson.dumps(stored)).hexdigest()


def _shown(request: Request, what: str, stored: object) -> dict[str, str]:
    """The digest for a form, and what a save did if its result is still stored."""
    digest, message = _digest(stored), ""
    for done, sentence in (("saved", f"The {what} are saved."), ("same", "Nothing was changed.")):
        message = sentence if request.query_params.get(done) == digest else message
    return {"digest": digest, "message": message}


def _refused(form: PostedForm, error: FieldRefused | ServiceError) -> dict[str, Any]:
    """What a page says about its form; raises an error that is not about the form."""
    if isinstance(error, ChangedMeanwhile):
        digest = _digest(error.stored)
        return {"problem": error, "stored_now": error.stored, "digest": digest, "status": 409}
    problem: object = error
    if isinstance(error, ServiceError):
        if error.status != 400:
            raise error
        problem = f"The service does not take this: {error}"
    return {"problem": problem, "digest": form.text("shown")}


def save_service(request: Request, form: PostedForm) -> Response:
    """Replace the properties of the service, without the rules that have no origin."""
    rules = [
        row
        for number, row in enumerate(form.rows(*RULE_FIELDS))
        if row[0].strip() or (any(map(str.strip, row[1:4])) and not _is_removed(form, number))
    ]
    endpoint = account_of(request).endpoint
    try:
        given = _given_properties(form, rules)
        stored, done = _read_properties(endpoint), "same"
        if _as_texts(given) != stored:
            if form.text("shown") != _digest(stored):
                raise ChangedMeanwhile("properties", stored, form)
            endpoint.ask(lambda sdk: sdk.set_service_properties(**given))
            stored, done = _read_properties(endpoint), "saved"
    except (FieldRefused, ServiceError) as error:
        return _properties_page(request, form.text, rules, **_refused(form, error))
    return RedirectResponse(path_to(request, "service", **{done: _digest(stored)}), 303)


def _is_removed(form: PostedForm, number: int) -> bool:
    """Whether a row whose first field is empty had a text there: then it is removed, and else not complete."""
    return any(form.texts("was")[number : number + 1])


def _given_properties(form: PostedForm, rules: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The properties in a form, as the SDK takes them. Raises `FieldRefused` for a wrong field."""
    for number, (origins, methods, *_) in enumerate(rules):
        wrong = ""
        if not origins.strip():
            wrong = "A CORS rule needs origins, such as https://example.com."
        # The service would only call its XML invalid, or accept an origin that no browser sends.
        for each in _listed(origins):
            if each not in (ANY, "null") and "://" not in each:
                wrong = f"The origin {each[:60]} needs a scheme, such as https://{each[:60]}."
        if wrong:
            raise FieldRefused(f"origins:{number}", wrong)
        if not methods.strip():
            wrong = f"The CORS rule of {origins[:60]} needs methods, such as GET,POST."
        for each in _listed(methods):
            if each.upper() not in CORS_METHODS:
                wrong = f"{each[:40]} is not a method that a CORS rule can allow."
        if wrong:
            raise FieldRefused(f"methods:{number}", wrong)
    return {
        "analytics_logging": TableAnalyticsLogging(
            **{word: bool(form.text(f"log_{word}")) for word in LOGGED},
            retention_policy=_retention(form, "log_days", "The days of the log"),
        ),
        "hour_metrics": _given_metrics(form, "hour"),
        "minute_metrics": _given_metrics(form, "minute"),
        "cors": [
            TableCorsRule(
                _listed(origins),
                _listed(methods),
                allowed_headers=_listed(allowed),
                exposed_headers=_listed(exposed),
                max_age_in_seconds=_whole(
                    age, "The seconds of a CORS rule", f"age:{number}", INT32_MAX
                ),
            )
            for number, (origins, methods, allowed, exposed, age) in enumerate(rules)
        ],
    }


def _given_metrics(form: PostedForm, name: str) -> TableMetrics:
    enabled = bool(form.text(f"{name}_enabled"))
    # The service takes IncludeAPIs only where metrics are enabled.
    apis = {"include_apis": bool(form.text(f"{name}_apis"))} if enabled else {}
    days = _retention(form, f"{name}_days", f"The days of the {name} metrics")
    return TableMetrics(enabled=enabled, retention_policy=days, **apis)


def _retention(form: PostedForm, name: str, what: str) -> TableRetentionPolicy:
    days = _whole(form.text(name), what, name, limits.RETENTION_DAYS_MAX)
    return TableRetentionPolicy(enabled=True, days=days) if days else TableRetentionPolicy()


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _whole(text: str, what: str, field: str, most: int) -> int:
    number = read_number(text.strip() or "0")
    if number is None or number > most:
        raise FieldRefused(
            field, f"{what} must be a whole number up to {most:,}, not {text.strip()[:40]!r}."
        )
    return number


def service(request: Request) -> Response:
    fields, rules = stored = _read_properties(account_of(request).endpoint)
    shown = _shown(request, "properties", stored)
    return _properties_page(request, lambda name: fields.get(name, ""), rules, **shown)


def _read_properties(endpoint: TableEndpoint) -> PropertyTexts:
    found: PropertyTexts = endpoint.ask(lambda sdk: _as_texts(sdk.get_service_properties()))
    return found


def _as_texts(found: Mapping[str, Any]) -> PropertyTexts:
    logging = found["analytics_logging"]
    fields = {f"log_{word}": "1" for word in LOGGED if getattr(logging, word)}
    fields["log_days"] = _days(logging)
    for name in ("hour", "minute"):
        metrics = found[f"{name}_metrics"]
        fields[f"{name}_enabled"] = "1" if metrics.enabled else ""
        fields[f"{name}_apis"] = "1" if metrics.include_apis else ""
        fields[f"{name}_days"] = _days(metrics)
    return fields, [
        (
            ",".join(rule.allowed_origins),
            ",".join(rule.allowed_methods),
            ",".join(rule.allowed_headers),
            ",".join(rule.exposed_headers),
            rule.max_age_in_seconds,
        )
        for rule in found["cors"]
    ]


def _days(setting: Any) -> str:
    policy = setting.retention_policy
    return str(policy.days) if policy.enabled else ""


def _properties_page(
    request: Request, field: Callable[[str], str], rules: Sequence[tuple[Any, ...]], **said: Any
) -> Response:
    """The form. `field` returns the text of a field by its name."""
    shown = [*rules, ("", "", "", "", 0)] if len(rules) < limits.CORS_RULES_MAX else rules
    settings = account_of(request).settings
    return page(
        request,
        "service.html",
        field=field,
        rules=shown,
        logged=LOGGED,
        keys=settings.keys,
        stored=settings.stored,
        storage=settings.storage,
        **said,
    )


@dataclass(frozen=True)
class PolicyTexts:
    """A stored access policy: its id, the letters of its permissions, and its times as the service writes them."""

    id: str
    permission: str = ""
    start: str = ""
    expiry: str = ""


def read_policies(endpoint: TableEndpoint, table: str) -> list[PolicyTexts]:
    found: Mapping[str, TableAccessPolicy | None] = endpoint.ask(
        lambda sdk: sdk.get_table_client(table).get_table_access_policy()
    )
    return [
        PolicyTexts(name)
        if policy is None
        else PolicyTexts(name, policy.permission or "", _time(policy.start), _time(policy.expiry))
        for name, policy in found.items()
    ]


def _time(moment: Any) -> str:
    """A time as the service wrote it: the SDK keeps the text, with all of its digits."""
    return "" if not moment else str(getattr(moment, "tables_service_value", None) or moment)


def save_policies(request: Request, form: PostedForm) -> Response:
    """Replace the stored access policies of a table by those in the form that have an id."""
    # The value of a box begins with the number of its policy: browsers do not send unchecked boxes.
    boxes = form.texts("may")
    given = [
        PolicyTexts(
            name.strip(),
            "".join(letter for letter in TABLE_PERMISSIONS if f"{number}{letter}" in boxes),
            given_time(start),
            given_time(expiry),
        )
        for number, (name, start, expiry) in enumerate(form.rows("id", "start", "expiry"))
    ]
    given = [
        each
        for number, each in enumerate(given)
        if each.id or not (each == PolicyTexts("") or _is_removed(form, number))
    ]
    endpoint, table = account_of(request).endpoint, request.path_params["table"]
    try:
        _require_valid(given)
        stored, done = read_policies(endpoint, table), "same"
        if set(given) != set(map(_as_given, stored)):
            if form.text("shown") != _digest(stored):
                raise ChangedMeanwhile("policies", stored, form)
            replaced = {
                each.id: TableAccessPolicy(
                    start=each.start or None,
                    expiry=each.expiry or None,
                    permission=each.permission or None,
                )
                for each in given
            }
            endpoint.ask(lambda sdk: sdk.get_table_client(table).set_table_access_policy(replaced))
            stored, done = read_policies(endpoint, table), "saved"
    except (FieldRefused, ServiceError) as error:
        return _policies_page(request, given, **_refused(form, error))
    path = path_to(request, "tables", table, "policies", **{done: _digest(stored)})
    return RedirectResponse(path, 303)


def _as_given(stored: PolicyTexts) -> PolicyTexts:
    """A stored policy as its form gives it back if nothing is typed."""
    letters = "".join(each for each in TABLE_PERMISSIONS if each in stored.permission)
    times = (given_time(as_input(each) or each) for each in (stored.start, stored.expiry))
    return PolicyTexts(stored.id, letters, *times)


def _require_valid(given: Sequence[PolicyTexts]) -> None:
    """Raise `FieldRefused` for a policy that the service would only call invalid XML, or keep though it is useless."""
    length_max = limits.SIGNED_IDENTIFIER_LENGTH_MAX
    for number, each in enumerate(given):
        length, instants = utf16_length(each.id), {"start": 0, "expiry": DATE_TIME_MAX}
        if not 0 < length <= length_max:
            sentence = f"A policy needs an id of 1 to {length_max} characters, not {length}."
            raise FieldRefused(f"id:{number}", sentence)
        if any(each.id == other.id for other in given[:number]):
            raise FieldRefused(f"id:{number}", "Two policies have the same id.")
        for field, moment in (("start", each.start), ("expiry", each.expiry)):
            try:
                instants[field] = parse_instant(moment) if moment else instants[field]
            except ValueError:
                raise FieldRefused(f"{field}:{number}", f"{moment[:40]!r} is not a time.") from None
        if instants["start"] >= instants["expiry"]:
            sentence = f"The policy {each.id} would end before it begins, or at once."
            raise FieldRefused(f"expiry:{number}", sentence)


def policies(request: Request) -> Response:
    found = read_policies(account_of(request).endpoint, request.path_params["table"])
    return _policies_page(request, found, **_shown(request, "policies", found))


def _policies_page(request: Request, found: list[PolicyTexts], **said: Any) -> Response:
    shown = [*found, PolicyTexts("")] if len(found) < limits.SIGNED_IDENTIFIERS_MAX else found
    return page(
        request,
        "policies.html",
        policies=shown,
        letters={letter: ACCOUNT_PERMISSIONS[letter] for letter in TABLE_PERMISSIONS},
        as_input=as_input,
        **said,
    )


def as_input(moment: str) -> str:
    """A time for a `datetime-local` input; empty if such an input cannot hold all of its digits."""
    found = _INPUT_TIME.fullmatch(moment)
    return found[1] if found else ""


def given_time(text: str) -> str:
    """A time of a form as UTC: a `datetime-local` input omits the zone, and seconds that are 0."""
    whole = f"{text}:00Z" if text.count(":") == 1 else f"{text}Z"
    return whole if _INPUT_TIME.fullmatch(whole) else text.strip()
