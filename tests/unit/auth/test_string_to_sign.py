"""Signatures against the specification's vectors, and every change that must invalidate one (auth 1, 5.2)."""

from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from spec_tables import Row, load
from tablestone.auth.account import Account
from tablestone.auth.authenticate import authenticate
from tablestone.auth.shared_key import (
    canonicalized_resource,
    signed_paths,
    string_to_sign_shared_key,
    string_to_sign_shared_key_lite,
)
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY, DEVELOPMENT_ACCOUNT_NAME
from tablestone.model.errors import StorageError
from tablestone.wire.address import parse_query_string
from tablestone.wire.messages import RawRequest

_TABLE = load("string_to_sign.toml")
_DATE = "Mon, 06 May 2024 07:08:09 GMT"
_OTHER_KEY = "c2Vjb25kIGtleSBvZiB0aGUgZGV2ZWxvcG1lbnQgYWNjb3VudA=="
_SKEW = 15 * 60


def _rows(kind: str) -> list[Any]:
    rows: list[Row] = _TABLE[kind]
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["source"] for row in rows)
    return [pytest.param(row, id=row["id"]) for row in rows]


def _account(row: Row, *keys: str) -> Account:
    name = row.get("account", DEVELOPMENT_ACCOUNT_NAME)
    return Account(name, keys or (row.get("key", DEVELOPMENT_ACCOUNT_KEY),))


def _request(row: Row) -> RawRequest:
    path, _, query = row["target"].encode().partition(b"?")
    name = row.get("account", DEVELOPMENT_ACCOUNT_NAME)
    headers = {
        b"authorization": f"{row['scheme']} {name}:{row['signature']}".encode(),
        b"x-ms-date": row.get("date", _DATE).encode(),
    }
    for header in ("content_type", "content_md5"):
        if header in row:
            headers[header.replace("_", "-").encode()] = row[header].encode()
    return RawRequest(row["method"], path, query, headers)


def _outcome(request: RawRequest, account: Account, row: Row, *, late_by: int = 0) -> str | None:
    """The error's code; None for a request accepted `late_by` seconds after its date."""
    signed_at = round(parsedate_to_datetime(row.get("date", _DATE)).timestamp())
    now = (signed_at + late_by) * TICKS_PER_SECOND + UNIX_EPOCH_TICKS
    try:
        authenticate(request, account, parse_query_string(request.query_string), "2019-02-02", now)
    except StorageError as error:
        return error.code
    return None


VECTORS = pytest.mark.parametrize("row", _rows("vector"))


@VECTORS
def test_the_string_to_sign_is_the_documented_one(row: Row) -> None:
    request = _request(row)
    comp = parse_query_string(request.query_string).get("comp")
    account = _account(row)
    to_sign = {
        "SharedKey": string_to_sign_shared_key,
        "SharedKeyLite": string_to_sign_shared_key_lite,
    }[row["scheme"]]
    date = request.headers[b"x-ms-date"]
    texts = [
        to_sign(
            row["method"],
            request.headers,
            date,
            canonicalized_resource(
                account.name.encode(), path, None if comp is None else comp.encode()
            ),
        )
        for path in signed_paths(request.raw_path, account.name_bytes)
    ]
    expected = row["to_sign"].replace("DATE", date.decode()).encode()
    assert expected in texts
    assert account.keys[0].signature(expected).decode() == row["signature"]


@VECTORS
def test_a_signed_request_is_let_in(row: Row) -> None:
    assert _outcome(_request(row), _account(row), row) is None


@VECTORS
def test_either_key_may_have_signed(row: Row) -> None:
    key = row.get("key", DEVELOPMENT_ACCOUNT_KEY)
    assert _outcome(_request(row), _account(row, _OTHER_KEY, key), row) is None
    assert _outcome(_request(row), _account(row, key, _OTHER_KEY), row) is None
    assert _outcome(_request(row), _account(row, _OTHER_KEY), row) == "AuthenticationFailed"


@VECTORS
@pytest.mark.parametrize(
    ("late_by", "code"),
    [
        (0, None),
        (_SKEW, None),
        (-_SKEW, None),
        (_SKEW + 1, "AuthenticationFailed"),
        (-_SKEW - 1, "AuthenticationFailed"),
    ],
)
def test_a_date_may_be_fifteen_minutes_off(row: Row, late_by: int, code: str | None) -> None:
    """limits.CLOCK_SKEW_SECONDS_MAX, to the second, either way (auth 1.4)."""
    assert _outcome(_request(row), _account(row), row, late_by=late_by) == code


@VECTORS
@pytest.mark.parametrize("change", ["path", "date", "signature", "comp", "cut", "no date"])
def test_what_is_signed_may_not_change(row: Row, change: str) -> None:
    request = _request(row)
    headers = dict(request.headers)
    if change == "path":
        request.raw_path += b"x"
    elif change == "date":
        headers[b"x-ms-date"] = (
            headers[b"x-ms-date"].replace(b":09", b":10").replace(b":45", b":46")
        )
    elif change == "signature":
        headers[b"authorization"] = headers[b"authorization"][:-44] + b"A" * 43 + b"="
    elif change == "comp":
        request.query_string = b"" if b"comp" in request.query_string else b"comp=acl"
    elif change == "cut":
        headers[b"authorization"] = headers[b"authorization"][:-1]
    else:
        del headers[b"x-ms-date"]
    request.headers = headers
    assert _outcome(request, _account(row), row) == "AuthenticationFailed"


@VECTORS
@pytest.mark.parametrize("change", ["method", "content-type", "content-md5"])
def test_lite_covers_only_date_and_resource(row: Row, change: str) -> None:
    """SharedKey covers verb, Content-MD5 and Content-Type too; Lite does not (auth 1.2, 1.3)."""
    request = _request(row)
    if change == "method":
        request.method = "PATCH"
    else:
        request.headers = {**request.headers, change.encode(): b"text/plain"}
    expected = None if row["scheme"] == "SharedKeyLite" else "AuthenticationFailed"
    assert _outcome(request, _account(row), row) == expected


@VECTORS
@pytest.mark.parametrize("recase", [str.lower, str.upper])
def test_the_scheme_is_read_in_any_case(row: Row, recase: Any) -> None:
    request = _request(row)
    scheme, _, rest = request.headers[b"authorization"].decode().partition(" ")
    authorization = f"{recase(scheme)} {rest}".encode()
    request.headers = {**request.headers, b"authorization": authorization}
    assert _outcome(request, _account(row), row) is None


@VECTORS
def test_date_stands_in_for_x_ms_date(row: Row) -> None:
    """Only if x-ms-date is absent: with both, x-ms-date was signed (auth 1.4)."""
    request = _request(row)
    headers = dict(request.headers)
    headers[b"date"] = headers.pop(b"x-ms-date")
    request.headers = headers
    assert _outcome(request, _account(row), row) is None
    request.headers = {**_request(row).headers, b"date": b"Mon, 01 Jan 2001 00:00:00 GMT"}
    assert _outcome(request, _account(row), row) is None


@VECTORS
def test_other_parameters_are_not_signed(row: Row) -> None:
    request = _request(row)
    request.query_string += b"&timeout=5&prefix=x"
    assert _outcome(request, _account(row), row) is None


@pytest.mark.parametrize(
    ("target", "signed"),
    [
        ("/devstoreaccount1-secondary/X", "/devstoreaccount1/devstoreaccount1/X"),
        ("/devstoreaccount1-secondary/X", "/devstoreaccount1/devstoreaccount1-secondary/X"),
        ("/devstoreaccount1-secondary/devstoreaccount1/X", "/devstoreaccount1/devstoreaccount1/X"),
    ],
)
def test_the_secondary_may_be_signed_in_three_ways(target: str, signed: str) -> None:
    """The forms in the table of auth 1.5 that clients send."""
    account = _account({})
    given = account.keys[0].signature(f"{_DATE}\n{signed}".encode()).decode()
    row = {"scheme": "SharedKeyLite", "method": "GET", "target": target, "signature": given}
    assert _outcome(_request(row), account, row) is None


@pytest.mark.parametrize("row", _rows("refused"))
def test_an_authorization_is_refused(row: Row) -> None:
    headers = {b"x-ms-date": _DATE.encode()}
    if row["authorization"] != "-":
        headers[b"authorization"] = row["authorization"].encode()
    now = round(parsedate_to_datetime(_DATE).timestamp()) * TICKS_PER_SECOND + UNIX_EPOCH_TICKS
    query = row["query"].encode()
    request = RawRequest("GET", b"/devstoreaccount1/Tables", query, headers)
    with pytest.raises(StorageError) as raised:
        authenticate(request, _account({}), parse_query_string(query), row["version"], now)
    assert (raised.value.code, raised.value.status) == (row["code"], row["status"])
