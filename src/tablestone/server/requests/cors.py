"""Cross-origin requests of browsers: preflight requests, and the headers for another origin (auth 8.3, 8.4).

The rules are those of the addressed account. The first rule that allows origin and method decides; later rules are not
looked at. Only preflight requests are refused here: browsers, not the server, keep scripts from reading an answer.
"""

import re
from collections.abc import Sequence
from typing import Final

from tablestone.model.errors import StorageError
from tablestone.model.service_properties import ANY, CorsRule, is_header_name
from tablestone.wire.encode import SERVER, Stamp
from tablestone.wire.messages import RawRequest, RawResponse

_READS: Final = frozenset(("GET", "HEAD"))
"""Methods whose answers caches keep: only these answers have a Vary header (auth 8.4)."""
_VARY: Final = (b"vary", b"Origin")
_XML: Final = (b"content-type", b"application/xml")
_CREDENTIALS: Final = (b"access-control-allow-credentials", b"true")
_EXPOSED: Final = (
    *("x-ms-request-id", "x-ms-client-request-id", "Server", "x-ms-version"),
    *("X-Content-Type-Options", "Cache-Control", "Preference-Applied", "Location", "DataServiceId"),
    *("ETag", "x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"),
    *("x-ms-continuation-NextTableName", "x-ms-error-code", "WWW-Authenticate"),
    *("Content-Type", "Content-Length", "Date", "Transfer-Encoding"),
)
"""Headers in the order in which the service exposes them (auth 8.4)."""
_ADDED_BY_HTTP: Final = frozenset(("Content-Length", "Date", "Transfer-Encoding"))
"""Headers that an answer may get later, in the HTTP layer; the service names all of them."""
_SUBDOMAINS = re.compile(r"[A-Za-z0-9.-]+", re.ASCII)


def answer_preflight(rules: Sequence[CorsRule], request: RawRequest, stamp: Stamp) -> RawResponse:
    """The answer to an OPTIONS request, or the error by which a browser gives up (auth 8.3); needs no credentials."""
    origin = request.text(b"origin")
    method = request.text(b"access-control-request-method")
    if not origin or not method:
        raise StorageError("InvalidHeaderValue", "A required CORS header is not present.")
    rule = _deciding(rules, origin, method.strip())
    wanted = request.text(b"access-control-request-headers")
    if rule is None or not _allows_headers(rule, wanted or ""):
        raise StorageError("CorsPreflightFailure")
    headers = [
        (b"server", SERVER),
        (b"x-ms-request-id", stamp.request_id.encode("ascii")),
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", method.encode("latin-1")),
        (b"access-control-max-age", b"%d" % rule.max_age_seconds),
        _CREDENTIALS,
    ]
    if wanted is not None:
        headers.append((b"access-control-allow-headers", wanted.encode("latin-1")))
    if stamp.client_request_id is not None:
        headers.append((b"x-ms-client-request-id", stamp.client_request_id))
    return RawResponse(200, headers)


def add_cors_headers(rules: Sequence[CorsRule], request: RawRequest, response: RawResponse) -> None:
    """Add the headers that tell browsers which origins may read an answer or error; for an account with rules only.

    The answer to a read without an Origin says what holds for every origin, because a cache may give it to another
    client. The answer to a write without an Origin gets no such header (auth 8.4).
    """
    origin = request.text(b"origin")
    if request.method == "OPTIONS" or (not origin and request.method not in _READS):
        return
    rule = _deciding(rules, origin or ANY, request.method)
    is_for_all = rule is not None and ANY in rule.allowed_origins
    if request.method in _READS and not is_for_all:
        response.headers.append(_VARY)
    if rule is None:
        return
    exposed = _exposed(rule, response)
    if is_for_all:
        response.headers.append((b"access-control-allow-origin", b"*"))
    elif origin is not None:
        response.headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
        response.headers.append(_CREDENTIALS)
    if exposed:
        response.headers.append(
            (b"access-control-expose-headers", ",".join(exposed).encode("latin-1"))
        )


def _deciding(rules: Sequence[CorsRule], origin: str, method: str) -> CorsRule | None:
    method = method.upper()
    for rule in rules:
        if method in rule.allowed_methods and any(
            _is_origin(allowed, origin) for allowed in rule.allowed_origins
        ):
            return rule
    return None


def _is_origin(allowed: str, origin: str) -> bool:
    """Whether the allowed origin is the same, every origin (`*`), or one with a wildcard: `http://*.example.com`."""
    if allowed in {origin, ANY}:
        return True
    scheme, wildcard, domain = allowed.partition("://*.")
    if not wildcard or not origin.startswith(f"{scheme}://") or not origin.endswith(f".{domain}"):
        return False
    return bool(_SUBDOMAINS.fullmatch(origin[len(scheme) + 3 : -len(domain) - 1]))


def _allows_headers(rule: CorsRule, wanted: str) -> bool:
    names = [name.strip() for name in wanted.split(",")]
    return all(_is_named(name, rule.allowed_headers) for name in names if name)


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    """Whether a header is among names and prefixes (`x-ms-*`), in upper or lower case."""
    folded = name.lower()
    return any(
        folded.startswith(pattern[:-1].lower())
        if pattern.endswith("*")
        else folded == pattern.lower()
        for pattern in patterns
    )


def _exposed(rule: CorsRule, response: RawResponse) -> list[str]:
    """The rule's literal names, and the answer's own headers that match its prefixes."""
    exposed = filter(is_header_name, rule.exposed_headers)  # earlier releases stored any names
    literal = [name for name in exposed if not name.endswith("*")]
    prefixes = [name for name in rule.exposed_headers if name.endswith("*")]
    present = {name.decode("latin-1") for name, _ in response.headers}
    if "x-content-type-options" not in present and _XML in response.headers:
        present.remove("content-type")  # the service leaves it out for answers in XML
    return [
        *literal,
        *(
            name
            for name in _EXPOSED
            if (name.lower() in present or name in _ADDED_BY_HTTP)
            and _is_named(name, prefixes)
            and not _is_named(name, literal)
        ),
    ]
