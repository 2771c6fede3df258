"""A script of an allowed origin may read every error of the account, even those that come before all others."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tablestone.wire.versions import VERSION_LATEST
from wire.service_under_test import ServiceUnderTest

ORIGIN = "http://www.example.com"
RULE = (
    f"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>{ORIGIN}</AllowedOrigins>"
    "<AllowedMethods>GET</AllowedMethods><AllowedHeaders /><ExposedHeaders />"
    "<MaxAgeInSeconds>0</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"
)


@pytest.fixture
def service() -> Iterator[ServiceUnderTest]:
    with closing(ServiceUnderTest()) as service:
        done = service.send("PUT", "/?restype=service&comp=properties", body=RULE.encode())
        assert done.status == 202
        yield service


@pytest.mark.parametrize(("origin", "allowed"), [(ORIGIN, ORIGIN), ("http://other.example", None)])
def test_a_header_sent_twice(service: ServiceUnderTest, origin: str, allowed: str | None) -> None:
    twice = [("x-ms-version", VERSION_LATEST), ("x-ms-version", VERSION_LATEST), ("Origin", origin)]
    answer = service.send("GET", "/Tables", twice)
    assert answer.status == 400
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_http_where_https_is_required(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service._pipeline, "_https_only", True)
    answer = service.send("GET", "/Tables", [("Origin", ORIGIN)])
    assert (answer.status, answer.headers["x-ms-error-code"]) == (400, "AccountRequiresHttps")
    assert answer.headers["access-control-allow-origin"] == ORIGIN
