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
from tablestone.explorer.signature_form import (
    ACCOUNT_LETTERS,
    LASTS,
    AskedSignature,
    read_signature_form,
    seconds_beside,
)
from tablestone.model import edm
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.service_settings import AccessPolicy, read_policies


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
