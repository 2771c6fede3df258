"""The service properties as the recording found them, which other tests had left on the shared account.

For each root element (Logging, HourMetrics, ...), the first recorded answer that shows its value from before the
recording itself set it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cassettes import Exchange, Recording

QUERY = "restype=service&comp=properties"
ROOT = re.compile(rb"<(Logging|HourMetrics|MinuteMetrics|Cors)(?: ?/>|>.*?</\1>)", re.DOTALL)
FRESH_METRICS = (
    b"<Version>1.0</Version><Enabled>false</Enabled>"
    b"<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>"
)
FRESH = {
    b"Logging": b"<Logging><Version>1.0</Version><Read>false</Read><Write>false</Write>"
    b"<Delete>false</Delete><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Logging>",
    b"HourMetrics": b"<HourMetrics>" + FRESH_METRICS + b"</HourMetrics>",
    b"MinuteMetrics": b"<MinuteMetrics>" + FRESH_METRICS + b"</MinuteMetrics>",
    b"Cors": b"<Cors />",
}

EVERY_ORIGIN = (
    b"<Cors><CorsRule><AllowedOrigins>*</AllowedOrigins>"
    b"<AllowedMethods>GET,POST,PUT,MERGE,DELETE,PATCH</AllowedMethods><AllowedHeaders>*</AllowedHeaders>"
    b"<ExposedHeaders>*</ExposedHeaders><MaxAgeInSeconds>86400</MaxAgeInSeconds></CorsRule></Cors>"
)


def roots(document: bytes) -> dict[bytes, bytes]:
    """The root elements of a document by name."""
    return {match[1]: match[0] for match in ROOT.finditer(document)}


def document_of(elements: dict[bytes, bytes]) -> bytes:
    inside = b"".join(elements.values())
    return b"<StorageServiceProperties>" + inside + b"</StorageServiceProperties>"


FRESH_PROPERTIES = document_of(FRESH)


def properties_before(recording: Recording) -> bytes:
    """The document that sets the service properties as the recording found them."""
    found: dict[bytes, bytes] = {}
    written: set[bytes] = set()
    for exchange in filter(is_of_properties, recording.exchanges):
        if exchange.method == "PUT" and exchange.status < 300:
            written |= roots(exchange.request_body).keys()
        elif exchange.method == "GET" and exchange.status == 200:
            shown = roots(exchange.body)
            found = {name: shown[name] for name in shown.keys() - written} | found
    if any("access-control-expose-headers" in exchange.headers for exchange in recording.exchanges):
        found = {b"Cors": EVERY_ORIGIN} | found
    return document_of(FRESH | found)


def is_of_properties(exchange: Exchange) -> bool:
    return QUERY in exchange.query
