"""Shared access signatures: made by the official SDK with the account key, and explained in words.

The form refuses what no service would accept (auth 2.1, 3.1). A signature is shown once and never stored.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import ResourceTypes, generate_account_sas, generate_table_sas
from starlette.requests import Request
from starlette.responses import Response

from tablestone.clock import system_clock
from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.explorer.service_settings import PolicyTexts, as_input, given_time, read_policies
from tablestone.model.edm import parse_date_time
from tablestone.model.keys import TABLE_NAME
from tablestone.model.shared_access import (
    ACCOUNT_PERMISSIONS,
    TABLE_PERMISSIONS,
    end_after,
    is_client_addresses,
    key_range_problem,
    parse_instant,
)
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import (
    FieldRefused,
    ServiceError,
    TransferFailed,
    TransferRefused,
    Unreachable,
)

PERMISSIONS: Final = {
    letter: word for letter, word in ACCOUNT_PERMISSIONS.items() if word != "process messages"
}
"""The permissions of an account signature that matter for tables."""
USUALLY_LASTS: Final = "1d"
"""How long a new signature is valid if neither the form nor a policy sets its end."""
_KEY_BOUNDS: Final = {
    "start_pk": "The first PartitionKey",
    "start_rk": "The first RowKey",
    "end_pk": "The last PartitionKey",
    "end_rk": "The last RowKey",
}
_RESOURCES: Final = {"s": "the service", "c": "tables", "o": "entities"}
_SERVICES: Final = {"b": "blobs", "f": "files", "q": "queues", "t": "tables"}


def signature(request: Request) -> Response:
    account, table = account_of(request), request.query_params.get("table", "")
    can_sign = account.settings.connection.scheme is Scheme.ACCOUNT_KEY
    policies: list[PolicyTexts] = []
    if table and can_sign:
        with suppress(ServiceError):  # there may be no such table
            policies = read_policies(account.endpoint, table)
    return page(
        request,
        "signature.html",
        can_sign=can_sign,
        letters=PERMISSIONS,
        table=table,
        policies=policies,
        end=as_input(end_after(USUALLY_LASTS, system_clock()) or ""),
    )


def make(request: Request, form: PostedForm) -> Response:
    """Make a signature of a table or, if the form names none, of the account."""
    connection = account_of(request).settings.connection
    if connection.scheme is not Scheme.ACCOUNT_KEY or connection.secret is None:
        raise TransferRefused("Signing needs the account key, which this explorer does not have.")
    table, policy = form.text("table").strip(), form.text("policy").strip()
    if table and TABLE_NAME.fullmatch(table) is None:
        raise FieldRefused("table", f"{table[:80]!r} is not a table name.")
    if policy and not table:
        raise FieldRefused(
            "table", "A stored access policy belongs to a table: name the table too."
        )
    keys = _key_bounds(form, table)
    addresses = form.text("ip").strip() or None
    if addresses is not None and not is_client_addresses(addresses):
        raise FieldRefused(
            "ip",
            f"Addresses of clients are one address, or two with a hyphen, the lower one first, not {addresses[:80]!r}.",
        )
    now = system_clock()
    end = given_time(form.text("end"))
    try:
        if end and parse_instant(end) <= now:
            raise FieldRefused("end", f"The signature would have ended already, at {end}.")
    except ValueError:
        raise FieldRefused("end", f"{end[:80]!r} is not a time.") from None
    letters = _letters(form, table)
    if not letters and not policy:
        raise FieldRefused(
            "may_r", "Choose what the signature allows, or name a policy of the table."
        )
    expiry = end or end_after(USUALLY_LASTS, now)
    if policy and _policy_has_end(request, table, policy, letters, end, now):
        expiry = None
    credential = AzureNamedKeyCredential(connection.account, connection.secret)
    limits: dict[str, Any] = {
        "expiry": expiry,
        "protocol": "https" if form.text("https") else None,
        "ip_address_or_range": addresses,
    }
    if table:
        limits |= {"permission": letters or None, "policy_id": policy or None}
        text = generate_table_sas(credential, table, **limits, **keys)
    else:
        everything = ResourceTypes(service=True, container=True, object=True)
        text = generate_account_sas(credential, everything, letters, **limits)
    if _is_key_off(connection):
        raise TransferRefused(
            f"The shared key of {connection.account} is off, so the service refuses every signature made with it."
        )
    url = f"{connection.url}/{table}?{text}"
    return page(request, "signature_made.html", signed_url=url, lines=explained(text, now))


def _is_key_off(connection: Connection) -> bool:
    """Ask with the key: beside a server, the explorer itself does not need it."""
    with TableEndpoint(connection, is_asked_once=True, agent="tablestone-explorer") as endpoint:
        try:
            next(endpoint.table_names(), None)
        except ServiceError as error:
            return error.code == "KeyBasedAuthenticationNotPermitted"
        except (Unreachable, TransferFailed):
            pass
    return False


def explain(request: Request, form: PostedForm) -> Response:
    """Say in words what a signature allows. It is not verified, which would need the account key."""
    lines = explained(form.text("given").strip(), system_clock())
    return page(request, "signature_explained.html", lines=lines)


def _key_bounds(form: PostedForm, table: str) -> dict[str, str]:
    keys = {name: text for name in _KEY_BOUNDS if (text := form.text(name))}
    if keys and not table:
        raise FieldRefused("table", "A range of keys belongs to a table: name the table too.")
    for name, text in keys.items():
        if "\n" in text:
            raise FieldRefused(name, f"{_KEY_BOUNDS[name]} of a signature must be one line.")
    for end, word in (("start", "first"), ("end", "last")):
        if f"{end}_rk" in keys and f"{end}_pk" not in keys:
            raise FieldRefused(f"{end}_rk", f"The {word} RowKey needs the {word} PartitionKey.")
    field = key_range_problem(*(keys.get(name) for name in _KEY_BOUNDS))
    if field is not None:
        raise FieldRefused(
            f"end_{field}",
            f"{_KEY_BOUNDS[f'end_{field}']} is before the first one, so the signature would be for no key.",
        )
    return keys


def _letters(form: PostedForm, table: str) -> str:
    chosen = [letter for letter in PERMISSIONS if form.text(f"may_{letter}")]
    if not table:
        return "".join(chosen)
    others = [PERMISSIONS[letter] for letter in chosen if letter not in TABLE_PERMISSIONS]
    if others:
        raise FieldRefused(
            "may_r",
            f"A table signature can permit read, add, update and delete only, not {' or '.join(others)}.",
        )
    return "".join(letter for letter in TABLE_PERMISSIONS if letter in chosen)


def _policy_has_end(
    request: Request, table: str, policy: str, letters: str, end: str, now: int
) -> bool:
    """Whether the stored policy has an end. Raises `TransferRefused` if policy and signature do not fit together."""
    policies = {each.id: each for each in read_policies(account_of(request).endpoint, table)}
    stored = policies.get(policy)
    if stored is None:
        raise FieldRefused("policy", f"The table {table} has no policy {policy[:80]!r}.")
    name = f"The policy {policy!r}"
    if letters and stored.permission:
        raise FieldRefused(
            "policy",
            f"{name} has permissions ({stored.permission}), and a signature cannot have others: choose none.",
        )
    if not letters and not stored.permission:
        raise FieldRefused("may_r", f"{name} has no permissions: choose what the signature allows.")
    if end and stored.expiry:
        raise FieldRefused(
            "policy",
            f"{name} has an end ({stored.expiry}), and a signature cannot have another: choose no time.",
        )
    ends = end or stored.expiry or end_after(USUALLY_LASTS, now) or ""
    if stored.expiry and parse_instant(stored.expiry) <= now:
        raise FieldRefused("policy", f"{name} has ended, at {stored.expiry}.")
    if stored.start and parse_instant(stored.start) >= parse_instant(ends):
        raise FieldRefused(
            "policy", f"{name} begins at {stored.start}, when the signature would have ended."
        )
    return bool(stored.expiry)


def explained(text: str, now: int) -> list[str]:
    """Sentences about the signature in a text; `now` is in ticks. Raises `TransferRefused` if it has none."""
    given = parameters_of(text)
    if "sig" not in given:
        raise FieldRefused("given", "This is not a shared access signature: it has no sig.")
    return list(_sentences(given, now))


def parameters_of(text: str) -> dict[str, str]:
    """The parameters of a signature in a URL, a connection string or alone."""
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if equals and name.strip().lower() == "sharedaccesssignature":
            text = value
    if "://" in text:
        try:
            text = urlsplit(text).query
        except ValueError:
            return {}
    return dict(parse_qsl(text.strip().removeprefix("?"), keep_blank_values=True))


def expired_at(text: str, now: int) -> str | None:
    """The end of a signature if it has passed at `now`, in ticks."""
    end = parameters_of(text).get("se", "")
    try:
        return end if parse_date_time(end) <= now else None
    except ValueError:
        return None


def _sentences(given: Mapping[str, str], now: int) -> Iterator[str]:
    version = f", version {given['sv']}" if "sv" in given else ""
    if "skoid" in given:
        yield f"A user delegation signature of the user {given['skoid']}{version}."
    elif "ss" in given:
        services = _words(given["ss"], _SERVICES)
        resources = _words(given.get("srt", ""), _RESOURCES)
        yield f"An account signature for {services}{version}. It is valid for {resources}."
    else:
        yield f"A signature of the table {given.get('tn', '(not named)')}{version}."
    if "sp" in given:
        yield f"It permits: {_words(given['sp'], ACCOUNT_PERMISSIONS)}."
    if "si" in given:
        yield f"The stored access policy {given['si']!r} adds what the signature does not say."
    for name, word, before, after in (
        ("st", "begins", "not valid yet", "valid since then"),
        ("se", "ends", "not expired", "it has expired"),
    ):
        if name in given:
            try:
                state = before if parse_date_time(given[name]) > now else after
                yield f"It {word} at {given[name]} ({state})."
            except ValueError:
                yield f"The time at which it {word} cannot be read: {given[name]}."
    if "se" not in given and "si" not in given:
        yield "It has no expiry time, so no service accepts it."
    if "sip" in given:
        yield f"Only clients at {given['sip']} may use it."
    if given.get("spr") == "https":
        yield "It is valid for requests over HTTPS only."
    first = _bound(given, "spk", "srk")
    last = _bound(given, "epk", "erk")
    if first or last:
        begin = f"from {first}" if first else "from the first key"
        end = f"through {last}" if last else "to the last key"
        yield f"It is valid for the keys {begin} {end}."


def _bound(given: Mapping[str, str], partition: str, row: str) -> str:
    names = ((partition, "PartitionKey"), (row, "RowKey"))
    return " and ".join(f"{name} {given[key]!r}" for key, name in names if key in given)


def _words(letters: Iterable[str], known: Mapping[str, str]) -> str:
    words = [known.get(letter, f"{letter!r} (not known)") for letter in letters]
    if len(words) < 2:
        return words[0] if words else "nothing"
    return f"{', '.join(words[:-1])} and {words[-1]}"
