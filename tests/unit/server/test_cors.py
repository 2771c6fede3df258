"""Cross-origin requests: the answer for any rules and any request; a refusal reveals nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestone.model.errors import StorageError
from tablestone.model.service_properties import CorsRule
from tablestone.server.requests.cors import add_cors_headers, answer_preflight
from tablestone.wire.encode import Stamp
from tablestone.wire.messages import RawRequest, RawResponse

STAMP = Stamp("id", None, "")
ORIGINS = ("http://a", "http://b", "https://a", "http://x.a", "http://A")
ALLOWED = (*ORIGINS, "*", "http://*.a")
METHODS = ("GET", "PUT", "MERGE", "HEAD")
HEADERS = ("x-ms-date", "x-ms-meta-a", "Content-Type", "etag")
PATTERNS = (*HEADERS, "x-ms-*", "*", "X-MS-DATE")


def some(values: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=3, unique=True).map(tuple)


RULES = st.lists(
    st.builds(
        CorsRule, some(ALLOWED, 1), some(METHODS, 1), some(PATTERNS), some(PATTERNS), st.just(5)
    ),
    max_size=5,
)


def is_origin(allowed: str, origin: str) -> bool:
    return allowed in {origin, "*"} or (allowed == "http://*.a" and origin == "http://x.a")


def is_header(pattern: str, name: str) -> bool:
    pattern, name = pattern.lower(), name.lower()
    return pattern in {name, "*"} or (pattern == "x-ms-*" and name.startswith("x-ms-"))


def deciding(rules: list[CorsRule], origin: str, method: str) -> CorsRule | None:
    found = [
        rule
        for rule in rules
        if method in rule.allowed_methods
        and [allowed for allowed in rule.allowed_origins if is_origin(allowed, origin)]
    ]
    return found[0] if found else None


def test_what_no_header_can_carry_is_not_exposed() -> None:
    """An older data directory may hold it; the answer is sent all the same."""
    exposed = ("x-\u2603", "x-a", "x-b\r\nSet-Cookie: c=1", "a b", "\u2603*")
    rules = [CorsRule(("*",), ("GET",), (), exposed, 0)]
    response = RawResponse(200, [])
    request = RawRequest("GET", b"/a/tab", b"", {b"origin": b"http://a"})
    add_cors_headers(rules, request, response)
    assert dict(response.headers)[b"access-control-expose-headers"] == b"x-a"


@given(RULES, st.sampled_from(ORIGINS), st.sampled_from(METHODS), some(HEADERS))
def test_the_first_rule_for_origin_and_method_decides(
    rules: list[CorsRule], origin: str, method: str, wanted: tuple[str, ...]
) -> None:
    headers = {
        b"origin": origin.encode(),
        b"access-control-request-method": method.encode(),
        b"access-control-request-headers": ",".join(wanted).encode(),
    }
    rule = deciding(rules, origin, method)
    expected = rule is not None and all(
        any(is_header(pattern, name) for pattern in rule.allowed_headers) for name in wanted
    )
    try:
        response = answer_preflight(rules, RawRequest("OPTIONS", b"/", b"", headers), STAMP)
    except StorageError as error:
        assert not expected
        assert (error.code, error.headers) == ("CorsPreflightFailure", ())  # noqa: PT017
    else:
        assert expected
        assert dict(response.headers)[b"access-control-allow-origin"] == origin.encode()


def answered(rules: list[CorsRule], method: str, origin: str | None) -> dict[bytes, bytes]:
    headers = {} if origin is None else {b"origin": origin.encode()}
    response = RawResponse(200, [(b"x-ms-request-id", b"id")])
    add_cors_headers(rules, RawRequest(method, b"/", b"", headers), response)
    assert len(dict(response.headers)) == len(response.headers), "a header was sent twice"
    return dict(response.headers)


@given(RULES, st.sampled_from(ORIGINS) | st.none(), st.sampled_from(METHODS))
def test_an_answer_says_what_the_table_says(
    rules: list[CorsRule], origin: str | None, method: str
) -> None:
    """The table of auth 8.4, row by row; the answer to a write without an Origin has no CORS headers."""
    found = answered(rules, method, origin)
    if origin is None and method not in {"GET", "HEAD"}:
        assert list(found) == [b"x-ms-request-id"]
        return
    rule = (
        next((r for r in rules if method in r.allowed_methods and "*" in r.allowed_origins), None)
        if origin is None
        else deciding(rules, origin, method)
    )
    is_for_all = rule is not None and "*" in rule.allowed_origins
    allowed = b"*" if is_for_all else None if rule is None else (origin or "").encode()
    assert found.get(b"access-control-allow-origin") == allowed
    assert (b"access-control-allow-credentials" in found) == (rule is not None and not is_for_all)
    assert (b"vary" in found) == (method in {"GET", "HEAD"} and not is_for_all)
    if rule is None:
        assert b"access-control-expose-headers" not in found


def test_an_actual_request_may_have_any_headers() -> None:
    """The rules do not see their names here: the browser asked before (auth 8.4)."""
    rule = CorsRule(("http://a",), ("GET",), (), (), 0)
    assert answered([rule], "GET", "http://a")[b"access-control-allow-origin"] == b"http://a"


@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("http://example.com", "http://example.com.attacker.net"),
        ("http://example.com", "http://example.co"),
        ("http://example.com", "https://example.com"),
        ("http://example.com", "http://example.com:8080"),
        ("http://*.example.com", "http://attackerexample.com"),
        ("http://*.example.com", "http://a.example.com.attacker.net"),
        ("http://*.example.com", "http://example.com"),
    ],
)
def test_an_origin_that_is_only_similar_is_another(allowed: str, origin: str) -> None:
    response = RawResponse(200, [])
    request = RawRequest("GET", b"/a/tab", b"", {b"origin": origin.encode()})
    add_cors_headers([CorsRule((allowed,), ("GET",), (), (), 0)], request, response)
    assert b"access-control-allow-origin" not in dict(response.headers)
