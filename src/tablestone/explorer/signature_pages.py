"""Shared access signatures: made with the key of the account by the official SDK, and explained.

A signature gives its holder what it says, so a page shows it once and nothing keeps it. Knows forms;
`signature_explained` knows the parameters.
"""

from __future__ import annotations

from typing import Final

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import ResourceTypes, generate_account_sas, generate_table_sas
from starlette.requests import Request
from starlette.responses import Response

from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.explorer.page_templates import account_of, page
from tablestone.explorer.posted_forms import PostedForm
from tablestone.explorer.signature_explained import explained
from tablestone.model import edm
from tablestone.transfer.endpoint_connection import Connection, Scheme
from tablestone.transfer.refusals import TransferRefused

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


def signature(request: Request) -> Response:
    """The forms that make a signature and explain one."""
    return _page(request)


def make(request: Request, form: PostedForm) -> Response:
    """Make a signature for a table, or for the account if no table is named."""
    connection = account_of(request).settings.connection
    if connection.scheme is not Scheme.ACCOUNT_KEY or connection.secret is None:
        raise TransferRefused("Only the key of the account signs, and this explorer has none.")
    table = form.text("table").strip()
    text = _signed(connection, table, form)
    url = f"{connection.url}/{table}?{text}" if table else f"{connection.url}/?{text}"
    return page(
        request, "signature_made.html", text=text, signed_url=url, lines=explained(text, _now())
    )


def explain(request: Request, form: PostedForm) -> Response:
    """Say in words what a signature allows. It is not checked: that takes the key."""
    text = form.text("given").strip()
    return page(request, "signature_explained.html", lines=explained(text, _now()))


def _signed(connection: Connection, table: str, form: PostedForm) -> str:
    known = TABLE_LETTERS if table else ACCOUNT_LETTERS
    letters = "".join(letter for letter in known if form.text(f"may_{letter}"))
    policy = form.text("policy").strip()
    seconds = LASTS.get(form.text("lasts", "1d"))
    if not letters and not (table and policy):
        raise TransferRefused("Choose what the signature allows, or name a policy of the table.")
    if seconds is None:
        raise TransferRefused("The time that the signature lasts is not known.")
    assert connection.secret is not None
    credential = AzureNamedKeyCredential(connection.account, connection.secret)
    now = _now() // TICKS_PER_SECOND * TICKS_PER_SECOND
    expiry = edm.format_date_time(now + seconds * TICKS_PER_SECOND)
    protocol = "https" if form.text("https") else None
    if not table:
        return generate_account_sas(
            credential,
            ResourceTypes(service=True, object=True),
            letters,
            expiry,
            protocol=protocol,
            ip_address_or_range=form.text("ip").strip() or None,
        )
    keys = {name: form.text(name) or None for name in ("start_pk", "start_rk", "end_pk", "end_rk")}
    return generate_table_sas(
        credential,
        table,
        permission=letters or None,
        expiry=None if policy and not letters else expiry,
        policy_id=policy or None,
        protocol=protocol,
        ip_address_or_range=form.text("ip").strip() or None,
        **keys,
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
