"""Failed authentication by version, Accept and scheme: the table of auth 11, all of its combinations."""

from typing import Final

import pytest

from sas_signing import query_of, signed
from spec_tables import Row, load
from wire.case_tables import error_of
from wire.service_under_test import ACCOUNT, ServiceUnderTest

_WRONG_KEY: Final = "d3Jvbmc="
_TABLE_SAS = {"sv": "2019-02-02", "se": "2030-01-01", "sp": "r", "tn": "tab"}
_ACCOUNT_SAS = {"sv": "2019-02-02", "se": "2030-01-01", "sp": "r", "ss": "t", "srt": "o"}
_SCHEMES: Final = {
    "SharedKey": ("SharedKey devstoreaccount1:AAAA", ""),
    "SharedKeyLite": ("SharedKeyLite devstoreaccount1:AAAA", ""),
    "a token": ("Bearer abc", ""),
    "another scheme": ("Digest abc", ""),
    "nothing": ("-", ""),
    "a table SAS": ("-", query_of(signed(ACCOUNT, _WRONG_KEY, _TABLE_SAS))),
    "an account SAS": ("-", query_of(signed(ACCOUNT, _WRONG_KEY, _ACCOUNT_SAS))),
    "a signature without sv": ("-", "tn=tab&se=2030-01-01&sp=r&sig=AAAA"),
}
"""The Authorization header ("-" is none) and the query string of each scheme; none of them authenticates."""
_ACCEPTS: Final = {
    "-": "xml",
    "*/*": "xml",
    "application/atom+xml,application/xml": "xml",
    "application/json;odata=nometadata": "json",
}
_OLD_LENGTH: Final = 437
"""The bytes of the answer in the trace of 2009-09-19."""


@pytest.mark.parametrize(
    ("row", "version", "scheme"),
    [
        pytest.param(row, version, scheme, id=f"{row['id']}: {version}, {scheme}")
        for row in load("failed_authentication.toml")["case"]
        for version in row["versions"]
        for scheme in row["schemes"]
    ],
)
def test_the_answer_to_failed_authentication(
    service: ServiceUnderTest, row: Row, version: str, scheme: str
) -> None:
    authorization, query = _SCHEMES[scheme]
    for accept, asked in _ACCEPTS.items():
        headers = [("Authorization", authorization), ("x-ms-version", version), ("Accept", accept)]
        response = service.send("GET", f"/tab()?{query}", headers)
        code, _, form = error_of(response)
        assert (response.status, code) == (row["status"], row["code"])
        is_old = row["form"] == "old"
        assert form == ("version" if is_old else asked)
        assert response.headers.get("x-ms-error-code") == (None if is_old else code)
        if is_old:
            assert len(response.body) == _OLD_LENGTH
            assert response.headers["server"] == "Microsoft-HTTPAPI/2.0"
            assert "x-ms-version" not in response.headers
