"""The same signed request, byte for byte, more than once, as an SDK sends it in a retry."""

import pytest

from signing import VERSION, shared_key
from wire.case_tables import prepare
from wire.service_under_test import ACCOUNT, HOST, KEY, Headers, ServiceUnderTest

_TARGET = f"/{ACCOUNT}/tab"
_GIVEN = {"given": ['POST /Tables {"TableName":"tab"}']}


@pytest.fixture
def signed(service: ServiceUnderTest) -> Headers:
    """The headers of one insert, signed once, under the name of the header that JavaScript writes."""
    prepare(service, _GIVEN)
    date = service.clock.http_date()
    signature = shared_key(
        ACCOUNT, KEY, method="POST", target=_TARGET, date=date, content_type="application/json"
    )
    return [
        ("Host", HOST),
        ("x-ms-date", date),
        ("x-ms-version", VERSION),
        ("content-type", "application/json"),
        ("authorization", signature),
    ]


def test_a_signature_may_come_again(service: ServiceUnderTest, signed: Headers) -> None:
    """Two SDKs sign once, before their retries: a second request has the first one's date and signature (auth 0.1)."""
    body = b'{"PartitionKey":"p","RowKey":"r"}'
    answers = [service.exchange("POST", _TARGET, signed, body).status for _ in range(2)]
    assert answers == [201, 409]
