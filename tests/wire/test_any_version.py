"""`--any-version`: where a request or a signature can name an unknown version, under each value of the option."""

import re

import pytest

from sas_signing import completed, query_of, signed
from tablestone.wire.versions import VERSION_LATEST, UnknownVersions
from wire.case_tables import error_of, prepare
from wire.service_under_test import ACCOUNT, KEY, Headers, ServiceUnderTest

LATER, ALL, NONE = UnknownVersions.LATER, UnknownVersions.ALL, UnknownVersions.NONE
ENTITY = "/tab(PartitionKey='p',RowKey='r')"
GIVEN = ['POST /Tables {"TableName":"tab"}', 'POST /tab {"PartitionKey":"p","RowKey":"r"}']

# The version that is sent, and the one that answers; an answer of None is the error.
SERVED = [
    (LATER, "2099-01-01", VERSION_LATEST),
    (LATER, "2019-02-03", None),
    (LATER, "1999-01-01", None),
    (LATER, "12.0.0b1", None),
    (ALL, "2099-01-01", VERSION_LATEST),
    (ALL, "2019-02-03", "2019-02-02"),
    (ALL, "1999-01-01", None),
    (ALL, "12.0.0b1", None),
    (NONE, "2099-01-01", None),
    (NONE, "2019-02-03", None),
    (NONE, "1999-01-01", None),
    (NONE, "12.0.0b1", None),
]
EACH = pytest.mark.parametrize(("unknown", "sent", "served"), SERVED)


def _outcome(
    unknown: UnknownVersions, path: str, headers: Headers
) -> tuple[int, str | None, str | None]:
    """The status, the version of the answer, and the code of an error."""
    service = ServiceUnderTest(unknown_versions=unknown)
    prepare(service, {"given": GIVEN})
    response = service.send("GET", path, headers)
    service.close()
    code = error_of(response)[0] if response.status >= 400 else None
    return response.status, response.headers.get("x-ms-version"), code


@EACH
def test_a_header(unknown: UnknownVersions, sent: str, served: str | None) -> None:
    outcome = _outcome(unknown, ENTITY, [("x-ms-version", sent)])
    refused = (400, None, "InvalidHeaderValue")
    assert outcome == (refused if served is None else (200, served, None))


@EACH
def test_an_api_version(unknown: UnknownVersions, sent: str, served: str | None) -> None:
    outcome = _outcome(unknown, f"{ENTITY}?api-version={sent}", [("x-ms-version", "-")])
    refused = (400, None, "InvalidHeaderValue")
    assert outcome == (refused if served is None else (200, served, None))


@EACH
@pytest.mark.parametrize(
    "stated", [{"tn": "tab"}, {"ss": "t", "srt": "o"}], ids=["of a table", "of an account"]
)
def test_a_signature(
    unknown: UnknownVersions, sent: str, served: str | None, stated: dict[str, str]
) -> None:
    """Beside a known `x-ms-version`, which is the version of the answer; and as the version of the request."""
    query = query_of(signed(ACCOUNT, KEY, completed(stated | {"sp": "r", "sv": sent})))
    path = f"{ENTITY}?{query}"
    outcome = _outcome(unknown, path, [("Authorization", "-"), ("x-ms-version", "2020-12-06")])
    if served is None:
        assert outcome[0::2] == (403, "AuthenticationFailed")
    else:
        assert outcome == (200, "2020-12-06", None)
    outcome = _outcome(unknown, path, [("Authorization", "-"), ("x-ms-version", "-")])
    refused = (400, None, "InvalidHeaderValue")
    assert outcome == (refused if served is None else (200, served, None))


@EACH
def test_a_batch(unknown: UnknownVersions, sent: str, served: str | None) -> None:
    """The header of the batch counts. Those of its operations mean nothing, whatever they say (wire 7.1)."""
    service = ServiceUnderTest(unknown_versions=unknown)
    prepare(service, {"given": GIVEN})
    part = f"MERGE /{ACCOUNT}{ENTITY} HTTP/1.1\r\nx-ms-version: {sent}\r\nContent-Type: application/json\r\n\r\n{{}}"
    lines = ["--b", "Content-Type: multipart/mixed; boundary=c", "", "--c"]
    lines += ["Content-Type: application/http", "", part, "--c--", "--b--", ""]
    body = "\r\n".join(lines).encode()
    headers = [("Content-Type", "multipart/mixed; boundary=b")]
    inside = service.send("POST", "/$batch", headers, body)
    assert re.findall(rb"HTTP/1.1 \d+", inside.body) == [b"HTTP/1.1 204"]
    outside = service.send("POST", "/$batch", [*headers, ("x-ms-version", sent)], body)
    assert outside.status == (400 if served is None else 202)
    service.close()
