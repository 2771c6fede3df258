"""Shared access signatures: made with the key of the account by the official SDK, and explained in words.

The form is refused where no service would accept the signature (auth 2.1, 3.1): permissions and end are each in the
signature or in the stored access policy, not in both. A page shows a signature once, and nothing keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import ResourceTypes, generate_account_sas, generate_table_sas
from starlette.requests import Request
from starlette.responses import Response

from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.explorer.page_templates import PostedForm, account_of, page
from tablestone.model import edm
from tablestone.model.keys import TABLE_NAME
from tablestone.model.shared_access import is_client_addresses
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import TransferRefused
from tablestone.tools.service_settings import AccessPolicy, read_policies

TABLE_LETTERS: Final = {"r": "read", "a": "add", "u": "update", "d": "delete"}
ACCOUNT_LETTERS: Final = {
    "r": "read",
    "w": "write",
    "d": "delete",
    "l": "list",
    "a": "add",
    "c": "create",
    "u": "update",
}
LASTS: Final = {"1h": 3600, "1d": 86_400, "7d": 604_800, "30d": 2_592_000}
"""The times that a new signature can last, in seconds."""
USUAL_SECONDS: Final = LASTS["1d"]
_KEY_BOUNDS: Final = {
    "start_pk": "The first PartitionKey",
    "start_rk": "The first RowKey",
    "end_pk": "The last PartitionKey",
    "end_rk": "The last RowKey",
}


@dataclass(frozen=True)
class AskedSignature:
    """A signature that is asked for: of a table, or of the account if `table` is empty.

    `seconds` is the time that it lasts, None for the usual one. `keys` are the bounds that are given, by
    their names in the form.
    """

    table: str
    letters: str
    policy: str
    seconds: int | None
    addresses: str | None
    https_only: bool
    keys: Mapping[str, str]


def read_signature_form(form: PostedForm) -> AskedSignature:
    """The form; `TransferRefused` for what is wrong whatever policies the table has."""
    table, policy = form.text("table").strip(), form.text("policy").strip()
    if table and TABLE_NAME.fullmatch(table) is None:
        raise TransferRefused(f"{table[:80]!r} is no name of a table.")
    if policy and not table:
        raise TransferRefused("A stored access policy is one of a table: name the table too.")
    keys = {name: text for name in _KEY_BOUNDS if (text := form.text(name))}
    _check_keys(keys, table)
    addresses = form.text("ip").strip() or None
    if addresses is not None and not is_client_addresses(addresses):
        raise TransferRefused(
            f"Addresses of clients must be an address, or two with a hyphen between, not {addresses[:80]!r}."
        )
    lasts = form.text("lasts")
    if lasts and lasts not in LASTS:
        raise TransferRefused("The time that the signature lasts is not known.")
    letters = _letters(form, table)
    if not letters and not policy:
        raise TransferRefused("Choose what the signature allows, or name a policy of the table.")
    https_only = bool(form.text("https"))
    return AskedSignature(table, letters, policy, LASTS.get(lasts), addresses, https_only, keys)


def seconds_beside(asked: AskedSignature, stored: AccessPolicy | None) -> int | None:
    """The time that the signature lasts, None if the policy has its end. `stored` is the policy, if one is named.

    `TransferRefused` if the signature and the policy would both have a value, or neither.
    """
    if stored is None:
        return asked.seconds or USUAL_SECONDS
    name = f"The policy {stored.id!r}"
    if asked.letters and stored.permission:
        raise TransferRefused(
            f"{name} has permissions ({stored.permission}), and a signature cannot have others: choose none."
        )
    if not asked.letters and not stored.permission:
        raise TransferRefused(f"{name} has no permissions: choose what the signature allows.")
    if asked.seconds is not None and stored.expiry:
        raise TransferRefused(
            f"{name} has an end ({stored.expiry}), and a signature cannot have another: choose no time."
        )
    return None if stored.expiry else asked.seconds or USUAL_SECONDS


def _check_keys(keys: Mapping[str, str], table: str) -> None:
    if keys and not table:
        raise TransferRefused("A range of keys is one of a table: name the table too.")
    for name, words in _KEY_BOUNDS.items():
        if "\n" in keys.get(name, ""):
            raise TransferRefused(f"{words} of a signature must be one line.")
    for end, words in (("start", "first"), ("end", "last")):
        if f"{end}_rk" in keys and f"{end}_pk" not in keys:
            raise TransferRefused(f"The {words} RowKey needs the {words} PartitionKey.")


def _letters(form: PostedForm, table: str) -> str:
    chosen = [letter for letter in ACCOUNT_LETTERS if form.text(f"may_{letter}")]
    if not table:
        return "".join(chosen)
    unknown = [ACCOUNT_LETTERS[letter] for letter in chosen if letter not in TABLE_LETTERS]
    if unknown:
        raise TransferRefused(
            f"A signature of a table has the permissions read, add, update and delete only, not {' or '.join(unknown)}."
        )
    return "".join(letter for letter in TABLE_LETTERS if letter in chosen)


_PERMISSIONS: Final = {
    "r": "read",
    "w": "write",
    "d": "delete",
    "l": "list",
    "a": "add",
    "c": "create",
    "u": "update",
    "p": "process messages",
}
_RESOURCES: Final = {"s": "the service", "c": "tables", "o": "entities"}
_SERVICES: Final = {"b": "blobs", "f": "files", "q": "queues", "t": "tables"}


def explained(text: str, now: int) -> list[str]:
    """Sentences on a signature, or on a URL or connection string with one. `now` is in ticks.

    `TransferRefused` if there is no signature in the text.
    """
    given = parameters_of(text)
    if "sig" not in given:
        raise TransferRefused("This is no shared access signature: it has no sig.")
    lines = [_kind(given)]
    if "sp" in given:
        lines.append(f"It permits: {_words(given['sp'], _PERMISSIONS)}.")
    if "si" in given:
        lines.append(
            f"The stored access policy {given['si']!r} has what the signature does not say itself."
        )
    lines += [*_times(given, now), *_conditions(given), *_keys(given)]
    return lines


def parameters_of(text: str) -> dict[str, str]:
    """The parameters of a signature, of a URL or of a connection string."""
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


def _kind(given: Mapping[str, str]) -> str:
    version = f", signed by the rules of {given['sv']}" if "sv" in given else ""
    if "skoid" in given:
        return f"A user delegation signature of the user {given['skoid']}{version}."
    if "ss" in given:
        services = _words(given["ss"], _SERVICES)
        resources = _words(given.get("srt", ""), _RESOURCES)
        return f"A signature of the account for {services}: {resources}{version}."
    return f"A signature of the table {given.get('tn', '(not named)')}{version}."


def _times(given: Mapping[str, str], now: int) -> list[str]:
    lines = []
    for name, word in (("st", "begins"), ("se", "ends")):
        if name not in given:
            continue
        try:
            at = edm.parse_date_time(given[name])
        except ValueError:
            lines.append(f"The time at which it {word} cannot be read: {given[name]}.")
            continue
        if name == "st":
            state = "not valid yet" if at > now else "valid since then"
        else:
            state = "it has expired" if at <= now else "not expired"
        lines.append(f"It {word} at {given[name]} ({state}).")
    if "se" not in given and "si" not in given:
        lines.append("It has no end, so no service accepts it.")
    return lines


def expired_at(text: str, now: int) -> str | None:
    """The end of a signature if it is before `now`, in ticks; None if it is not, or if there is none to be read."""
    end = parameters_of(text).get("se", "")
    try:
        return end if edm.parse_date_time(end) <= now else None
    except ValueError:
        return None


def _conditions(given: Mapping[str, str]) -> list[str]:
    lines = []
    if "sip" in given:
        lines.append(f"Only clients at {given['sip']} may use it.")
    if given.get("spr") == "https":
        lines.append("It is valid for requests over HTTPS only.")
    return lines


def _keys(given: Mapping[str, str]) -> list[str]:
    """The range of keys, if the signature has one."""
    first, last = (
        [f"{name} {given[key]!r}" for key, name in names if key in given]
        for names in (
            (("spk", "PartitionKey"), ("srk", "RowKey")),
            (("epk", "PartitionKey"), ("erk", "RowKey")),
        )
    )
    if not first and not last:
        return []
    begin = f"from {' and '.join(first)}" if first else "from the first key"
    end = f"through {' and '.join(last)}" if last else "to the last key"
    return [f"It is valid for the keys {begin} {end}."]


def _words(letters: str, known: Mapping[str, str]) -> str:
    words = [known.get(letter, f"{letter!r} (not known)") for letter in letters]
    if len(words) < 2:
        return words[0] if words else "nothing"
    return f"{', '.join(words[:-1])} and {words[-1]}"


def signature(request: Request) -> Response:
    """The forms that make a signature and explain one."""
    return _page(request)


def make(request: Request, form: PostedForm) -> Response:
    """Make a signature for a table, or for the account if no table is named."""
    connection = account_of(request).settings.connection
    if connection.scheme is not Scheme.ACCOUNT_KEY or connection.secret is None:
        raise TransferRefused("Only the key of the account signs, and this explorer has none.")
    asked = read_signature_form(form)
    table = asked.table
    text = _signed(connection, asked, seconds_beside(asked, _stored(request, asked)))
    url = f"{connection.url}/{table}?{text}" if table else f"{connection.url}/?{text}"
    return page(
        request, "signature_made.html", text=text, signed_url=url, lines=explained(text, _now())
    )


def explain(request: Request, form: PostedForm) -> Response:
    """Say in words what a signature allows. It is not checked: that takes the key."""
    text = form.text("given").strip()
    return page(request, "signature_explained.html", lines=explained(text, _now()))


def _stored(request: Request, asked: AskedSignature) -> AccessPolicy | None:
    """The stored access policy that is named, as the service has it."""
    if not asked.policy:
        return None
    for policy in read_policies(account_of(request).endpoint, asked.table):
        if policy.id == asked.policy:
            return policy
    raise TransferRefused(f"The table {asked.table} has no policy {asked.policy[:80]!r}.")


def _signed(connection: Connection, asked: AskedSignature, seconds: int | None) -> str:
    assert connection.secret is not None
    credential = AzureNamedKeyCredential(connection.account, connection.secret)
    expiry = None
    if seconds is not None:
        now = _now() // TICKS_PER_SECOND * TICKS_PER_SECOND
        expiry = edm.format_date_time(now + seconds * TICKS_PER_SECOND)
    protocol = "https" if asked.https_only else None
    if not asked.table:
        assert expiry is not None
        return generate_account_sas(
            credential,
            ResourceTypes(service=True, container=True, object=True),
            asked.letters,
            expiry,
            protocol=protocol,
            ip_address_or_range=asked.addresses,
        )
    return generate_table_sas(
        credential,
        asked.table,
        permission=asked.letters or None,
        expiry=expiry,
        policy_id=asked.policy or None,
        protocol=protocol,
        ip_address_or_range=asked.addresses,
        **asked.keys,
    )


def _page(request: Request) -> Response:
    connection = account_of(request).settings.connection
    return page(
        request,
        "signature.html",
        can_sign=connection.scheme is Scheme.ACCOUNT_KEY,
        letters={**ACCOUNT_LETTERS},
        lasts=tuple(LASTS),
        table=request.query_params.get("table", ""),
    )


def _now() -> int:
    return system_clock()


SHOWN: Final = {"/signature": signature}
POSTED: Final = {"/signature/explain": explain}
CHANGES: Final = {"/signature": make}
"""A signature can allow changes, so an explorer that only reads makes none."""
