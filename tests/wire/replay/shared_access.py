"""Signs the shared access signatures of the recordings again, because they and their times were scrubbed.

The signed fields are those of the recording, except that `start` and `end` become an hour ago and in an hour, and that
a policy named by a signature is valid now. Written from the specification (auth 2.2, 3.2) for the one version that the
azure-data-tables package signs; shares nothing with the server's code.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cassettes import Exchange, Recording

SCRUBBED = "sig=fake_token_value"
OTHERS_SCRUBBED = ("sig=fakesigval",)
EVERYTHING = "sv=2019-02-02&ss=t&srt=sco&sp=rwdlacu&se=&"
"""Of some signatures only `st`, `spr` and `sig` were recorded."""
SIGNED_FOR = timedelta(hours=1)
ACCOUNT_FIELDS = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")
CONDITION_FIELDS = ("si", "sip", "spr", "sv", "spk", "srk", "epk", "erk")
EXPIRY = re.compile(rb"<Expiry>[^<]*</Expiry>")
IN_FORCE = b"<Expiry>9000-01-01T00:00:00Z</Expiry>"


def is_signed(query: str) -> bool:
    return any(scrubbed in query.split("&") for scrubbed in (SCRUBBED, *OTHERS_SCRUBBED))


def signed_anew(query: str, account: str, sign: Callable[[str], str]) -> str:
    """The query with times of today and a signature that covers it; the order is the recording's."""
    for scrubbed in OTHERS_SCRUBBED:
        query = query.replace(scrubbed, SCRUBBED)
    if "sv=" not in query:
        query = EVERYTHING + query
    now = datetime.now(UTC)
    start, end = now - SIGNED_FOR, now + SIGNED_FOR
    times = {"start": start, "end": end}
    where_not_named = {"st": start, "se": end}
    values: dict[str, str] = {}
    pairs = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name in where_not_named:
            value = quote(f"{times.get(value, where_not_named[name]):%Y-%m-%dT%H:%M:%SZ}", safe="")
        values[name] = unquote(value)
        pairs.append(f"{name}={value}")
    signature = sign(string_to_sign(account, values))
    fresh = quote(signature, safe="")
    return "&".join(f"sig={fresh}" if pair == SCRUBBED else pair for pair in pairs)


def string_to_sign(account: str, values: dict[str, str]) -> str:
    if "tn" not in values:
        return "".join(f"{line}\n" for line in [account, *of_each(values, ACCOUNT_FIELDS)])
    resource = f"/table/{account}/{values['tn'].lower()}"
    lines = [*of_each(values, ("sp", "st", "se")), resource, *of_each(values, CONDITION_FIELDS)]
    return "\n".join(lines)


def of_each(values: dict[str, str], names: tuple[str, ...]) -> list[str]:
    return [values.get(name, "") for name in names]


def with_policies_in_force(recording: Recording) -> Recording:
    """The recording; if it signs by a policy, then with policies that have not expired."""
    if not any("si=" in exchange.query for exchange in recording.exchanges):
        return recording
    return replace(recording, exchanges=tuple(map(in_force, recording.exchanges)))


def in_force(exchange: Exchange) -> Exchange:
    if "comp=acl" not in exchange.query:
        return exchange
    return replace(exchange, request_body=EXPIRY.sub(IN_FORCE, exchange.request_body))
