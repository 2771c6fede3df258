"""Shared access signatures on requests: faults, permissions, and key ranges (auth 2, 3)."""

import itertools
from urllib.parse import quote

import pytest

from sas_signing import completed, query_of, signed
from spec_tables import Row, load
from wire.case_tables import check, error_of, prepare, rows, send
from wire.service_under_test import ACCOUNT, KEY, SECOND_KEY, Response, ServiceUnderTest

FILE = "sas.toml"
_OWN = ("sas", "altered", "key", "client", "scheme", "fills")
_CASES = rows(FILE)
_LETTERS = "rwdlacu"


def _signed_row(row: Row) -> Row:
    """The row as `case_tables.send` takes it: the signature in its URL, and no Authorization but its own."""
    key = SECOND_KEY if row.get("key") == "second" else KEY
    plain = {name: value for name, value in row.items() if name not in _OWN}
    line = "target" if "target" in row else "send"
    if "fills" in row:
        signature = quote(signed(ACCOUNT, key, row["fills"])["sig"], safe="")
        return plain | {line: row[line].replace("SIG", signature)}
    if "sas" not in row:
        return plain
    parameters = signed(ACCOUNT, key, completed(row["sas"])) | row.get("altered", {})
    query = query_of({name: value for name, value in parameters.items() if value != "-"})
    mark = "&" if "?" in row[line] else "?"
    headers = {"Authorization": "-"} | row.get("headers", {})
    return plain | {line: f"{row[line]}{mark}{query}", "headers": headers}


def _send(service: ServiceUnderTest, row: Row) -> Response:
    service.client = row.get("client", service.client)
    service.scheme = row.get("scheme", service.scheme)
    return send(service, _signed_row(row))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in _CASES])
def test_the_service_answers(service: ServiceUnderTest, row: Row) -> None:
    assert row["source"]
    prepare(service, row)
    check(row, _send(service, row))


_ENDPOINTS: list[Row] = load(FILE)["endpoint"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in _ENDPOINTS])
def test_a_client_whose_endpoint_ends_with_a_slash(service: ServiceUnderTest, row: Row) -> None:
    """The path that each client sends in host style, and the answer (wire 1.2)."""
    prepare(service, {"given": _GIVEN})
    host = {"Host": f"{ACCOUNT}.table.localhost:10002"}
    check(row, _send(service, {**row, "sas": {"tn": "tab", "sp": "r"}, "headers": host}))


def test_no_row_comes_twice() -> None:
    ids = [row["id"] for row in [*_CASES, *_ENDPOINTS, *load(FILE)["need"]]]
    assert len(ids) == len(set(ids))


# Permissions

_NEEDS: list[Row] = load(FILE)["need"]
_GIVEN: list[str] = load(FILE)["given"]
NEEDS = pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in _NEEDS])
# Each letter, every two, all but each one, and all.
_SETS_OF_LETTERS = [
    "".join(letters)
    for size in (1, 2, len(_LETTERS) - 1, len(_LETTERS))
    for letters in itertools.combinations(_LETTERS, size)
]


def _filled() -> ServiceUnderTest:
    service = ServiceUnderTest()
    prepare(service, {"given": _GIVEN})
    return service


def _outcomes(row: Row, signatures: list[dict[str, str]]) -> list[str]:
    """The code with which each is refused, "" where the operation succeeded."""
    outcomes = []
    service = _filled()
    for sas in signatures:
        response = _send(service, row | {"sas": sas})
        outcomes.append(error_of(response)[0] if response.status >= 400 else "")
        if response.status < 400:
            service.close()
            service = _filled()
    service.close()
    return outcomes


def _is_met(alternatives: list[str], letters: str) -> bool:
    return any(set(alternative) <= set(letters) for alternative in alternatives)


@NEEDS
def test_an_account_sas_permits_what_its_letters_say(row: Row) -> None:
    signatures = [{"ss": "t", "srt": row["srt"], "sp": letters} for letters in _SETS_OF_LETTERS]
    for sas, code in zip(signatures, _outcomes(row, signatures), strict=True):
        is_met = _is_met(row["account"], sas["sp"])
        assert code == ("" if is_met else "AuthorizationPermissionMismatch"), sas


@NEEDS
def test_an_account_sas_permits_on_its_resource_types(row: Row) -> None:
    types = ("s", "c", "o", "sc", "so", "co", "sco")
    signatures = [{"ss": "t", "srt": letters, "sp": _LETTERS} for letters in types]
    for sas, code in zip(signatures, _outcomes(row, signatures), strict=True):
        is_met = row["srt"] in sas["srt"]
        assert code == ("" if is_met else "AuthorizationResourceTypeMismatch"), sas


@NEEDS
def test_a_table_sas_permits_what_its_letters_say(row: Row) -> None:
    """And what no letter permits is an `AuthorizationFailure` (auth 3.8)."""
    signatures = [{"tn": "tab", "sp": letters} for letters in _SETS_OF_LETTERS]
    refusal = "AuthorizationPermissionMismatch" if row["table"] else "AuthorizationFailure"
    for sas, code in zip(signatures, _outcomes(row, signatures), strict=True):
        assert code == ("" if _is_met(row["table"], sas["sp"]) else refusal), sas


# Batches (auth 3.7)

_BOUNDARY = "batch_36522ad7-fc75-4b56-8c71-56071383e77b"
_CHANGES = "changeset_36522ad7-fc75-4b56-8c71-56071383e77c"
_LEFTOVERS = "?tn=other&spk=z&epk=z&sip=10.0.0.1&si=nothing&sig=x"


def _part(method: str, path: str, body: str = "", headers: str = "") -> str:
    return (
        "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        f"{method} http://127.0.0.1:10002/{ACCOUNT}{path} HTTP/1.1\r\n"
        f"Accept: application/json;odata=nometadata\r\nContent-Type: application/json\r\n{headers}\r\n{body}\r\n"
    )


def _batch(service: ServiceUnderTest, sas: dict[str, str], *parts: str) -> Response:
    """A change set, or a lone query."""
    if len(parts) == 1 and "\r\nGET " in parts[0]:
        body = f"--{_BOUNDARY}\r\n{parts[0]}--{_BOUNDARY}--\r\n"
    else:
        inner = "".join(f"--{_CHANGES}\r\n{part}" for part in parts)
        body = (
            f"--{_BOUNDARY}\r\nContent-Type: multipart/mixed; boundary={_CHANGES}\r\n\r\n"
            f"{inner}--{_CHANGES}--\r\n--{_BOUNDARY}--\r\n"
        )
    content_type = f"multipart/mixed; boundary={_BOUNDARY}"
    headers = {"Content-Type": content_type}
    return _send(service, {"send": "POST /$batch", "headers": headers, "body": body, "sas": sas})


def _insert(row_key: str, *, table: str = "tab", partition_key: str = "a") -> str:
    body = f'{{"PartitionKey":"{partition_key}","RowKey":"{row_key}"}}'
    return _part("POST", f"/{table}{_LEFTOVERS}", body)


def _holds(service: ServiceUnderTest, table: str = "tab") -> int:
    return service.send("GET", f"/{table}()").body.count(b'"RowKey"')


@pytest.fixture
def tables(service: ServiceUnderTest) -> ServiceUnderTest:
    """The tables of the file, five entities in the first."""
    prepare(service, {"given": _GIVEN})
    return service


@pytest.mark.parametrize(
    "sas",
    [
        {"tn": "tab", "sp": "a"},
        {"tn": "TAB", "sp": "a", "spk": "a", "epk": "a"},
        {"ss": "t", "srt": "o", "sp": "a"},
    ],
)
def test_a_batch_is_carried_out(tables: ServiceUnderTest, sas: dict[str, str]) -> None:
    """What clients leave of a signature on the inner URLs means nothing (auth 3.7)."""
    response = _batch(tables, sas, _insert("x"), _insert("y"))
    assert response.status == 202
    assert response.body.count(b"HTTP/1.1 201") == 2
    assert _holds(tables) == 7


_MISMATCH = "This request is not authorized to perform this operation using this permission."
_FAILURE = "This request is not authorized to perform this operation."


@pytest.mark.parametrize(
    ("sas", "code", "text"),
    [
        ({"tn": "tab", "sp": "a"}, "AuthorizationPermissionMismatch", _MISMATCH),
        ({"tn": "tab", "sp": "u"}, "AuthorizationPermissionMismatch", _MISMATCH),
        ({"ss": "t", "srt": "o", "sp": "rda"}, "AuthorizationPermissionMismatch", _MISMATCH),
        ({"tn": "tab", "sp": "raud", "epk": "a", "erk": "2"}, "AuthorizationFailure", _FAILURE),
        (
            {"ss": "t", "srt": "sc", "sp": "raud"},
            "AuthorizationResourceTypeMismatch",
            _FAILURE.replace("operation.", "operation using this resource type."),
        ),
    ],
)
def test_one_denied_operation_fails_the_whole_change_set(
    tables: ServiceUnderTest, sas: dict[str, str], code: str, text: str
) -> None:
    """The merge and the insert are allowed; the upsert needs both letters and lies outside the range (auth 3.7)."""
    first = (
        _insert("1x")
        if sas["sp"] != "u"
        else _part("MERGE", "/tab(PartitionKey='a',RowKey='1')", "{}", "If-Match: *\r\n")
    )
    upsert = _part("PUT", "/tab(PartitionKey='a',RowKey='9')", "{}")
    response = _batch(tables, sas, first, upsert)
    assert response.status == 202
    assert response.body.count(b"HTTP/1.1 ") == 1
    index = 0 if code == "AuthorizationResourceTypeMismatch" else 1
    assert f'"code":"{code}"'.encode() in response.body
    assert f'"value":"{index}:{text}\\n'.encode() in response.body
    assert b"HTTP/1.1 403" in response.body
    assert _holds(tables) == 5


def test_a_lone_denied_operation_has_its_index(tables: ServiceUnderTest) -> None:
    response = _batch(tables, {"tn": "tab", "sp": "rud"}, _insert("x"))
    assert response.status == 202
    assert f'"value":"0:{_MISMATCH}\\n'.encode() in response.body


@pytest.mark.parametrize(("rows", "index"), [("x", ""), ("xy", "0:")])
def test_what_an_old_signature_denies_is_not_there(
    tables: ServiceUnderTest, rows: str, index: str
) -> None:
    """Before 2015-04-05 it is 404 in a batch too, whose index is that of any `ResourceNotFound` (auth 2.5, 3.7)."""
    sas = {"tn": "tab", "sp": "rud", "sv": "2015-02-21"}
    response = _batch(tables, sas, *map(_insert, rows))
    assert (
        b"HTTP/1.1 404 Not Found\r\nX-Content-Type-Options: nosniff\r\nCache-Control"
        in response.body
    )
    assert b'"code":"ResourceNotFound"' in response.body
    assert f'"value":"{index}The specified resource does not exist.\\n'.encode() in response.body
    assert _holds(tables) == 5


def test_an_operation_on_another_table_is_not_authenticated(tables: ServiceUnderTest) -> None:
    response = _batch(tables, {"tn": "tab", "sp": "raud"}, _insert("x", table="other"))
    assert response.status == 202
    assert b'"code":"AuthenticationFailed"' in response.body
    assert b'"value":"0:Server failed to authenticate' in response.body
    assert (_holds(tables), _holds(tables, "other")) == (5, 1)


@pytest.mark.parametrize(
    ("sas", "code"),
    [
        ({"tn": "tab", "sp": "raud", "se": "2017-01-01"}, "AuthenticationFailed"),
        ({"tn": "tab", "sp": "raud", "sip": "10.0.0.1"}, "AuthorizationSourceIPMismatch"),
        ({"ss": "b", "srt": "o", "sp": "raud"}, "AuthorizationServiceMismatch"),
    ],
)
def test_a_bad_signature_refuses_the_batch(
    tables: ServiceUnderTest, sas: dict[str, str], code: str
) -> None:
    response = _batch(tables, sas, _insert("x"))
    assert (response.status, error_of(response)[0]) == (403, code)
    assert _holds(tables) == 5


def test_a_query_in_a_batch_keeps_to_the_range(tables: ServiceUnderTest) -> None:
    sas = {"tn": "tab", "sp": "r", "spk": "b", "epk": "b"}
    response = _batch(tables, sas, _part("GET", "/tab()?$select=n"))
    assert b'{"value":[{"n":3},{"n":4}]}' in response.body
    response = _batch(tables, sas, _part("GET", "/tab(PartitionKey='a',RowKey='1')"))
    assert b'"code":"ResourceNotFound"' in response.body
    assert b"0:The specified resource does not exist." in response.body
    response = _batch(tables, sas | {"sp": "aud"}, _part("GET", "/tab()"))
    assert f'"value":"0:{_MISMATCH}\\n'.encode() in response.body


# Stored access policies (auth 3.9, 7)


def _set_policies(service: ServiceUnderTest, *policies: tuple[str, str]) -> None:
    """Ids and the members of their policies."""
    inside = "".join(
        f"<SignedIdentifier><Id>{name}</Id><AccessPolicy>{policy}</AccessPolicy></SignedIdentifier>"
        for name, policy in policies
    )
    body = f"<SignedIdentifiers>{inside}</SignedIdentifiers>".encode()
    headers = [("Content-Type", "application/xml"), ("Accept", "application/xml")]
    assert service.send("PUT", "/tab?comp=acl", headers, body).status == 204


def _answer(service: ServiceUnderTest, sas: dict[str, str], send: str = "GET /tab()") -> str:
    """The error's code, or ""."""
    response = _send(service, {"send": send, "sas": sas})
    return error_of(response)[0] if response.status >= 400 else ""


_EXPIRY = "<Expiry>2018-01-01</Expiry>"
_READS = f"{_EXPIRY}<Permission>r</Permission>"
_BY_POLICY = {"tn": "tab", "si": "p", "se": "-"}


def test_a_policy_completes_a_signature(tables: ServiceUnderTest) -> None:
    _set_policies(tables, ("other", ""), ("p", _READS))
    assert _answer(tables, _BY_POLICY) == ""
    assert _answer(tables, _BY_POLICY | {"spk": "b", "epk": "b"}) == ""
    assert _answer(tables, _BY_POLICY | {"sp": "r"}) == "AuthenticationFailed"
    assert _answer(tables, _BY_POLICY | {"se": "2018-01-01"}) == "AuthenticationFailed"
    assert _answer(tables, _BY_POLICY | {"si": "P"}) == "AuthenticationFailed"
    _set_policies(tables, ("p", "<Permission>r</Permission>"))
    assert _answer(tables, _BY_POLICY) == "AuthenticationFailed"
    assert _answer(tables, _BY_POLICY | {"se": "2018-01-01"}) == ""


def test_a_changed_policy_acts_on_the_very_next_request(tables: ServiceUnderTest) -> None:
    _set_policies(tables, ("p", _READS))
    assert _answer(tables, _BY_POLICY) == ""
    _set_policies(tables, ("p", f"{_EXPIRY}<Permission>d</Permission>"))
    assert _answer(tables, _BY_POLICY) == "AuthorizationPermissionMismatch"
    _set_policies(tables, ("p", "<Expiry>2017-01-01</Expiry><Permission>r</Permission>"))
    assert _answer(tables, _BY_POLICY) == "AuthenticationFailed"
    _set_policies(tables, ("p", f"<Start>2017-01-06</Start>{_READS}"))
    assert _answer(tables, _BY_POLICY) == "AuthenticationFailed"
    _set_policies(tables, ("p", _READS))
    assert _answer(tables, _BY_POLICY) == ""
    _set_policies(tables)
    assert _answer(tables, _BY_POLICY) == "AuthenticationFailed"


def test_a_policy_goes_with_its_table(tables: ServiceUnderTest) -> None:
    _set_policies(tables, ("p", _READS))
    assert _answer(tables, _BY_POLICY) == ""
    prepare(tables, {"given": ["DELETE /Tables('tab')", 'POST /Tables {"TableName":"tab"}']})
    assert _answer(tables, _BY_POLICY) == "AuthenticationFailed"


def test_a_batch_by_policy(tables: ServiceUnderTest) -> None:
    _set_policies(tables, ("p", f"{_EXPIRY}<Permission>a</Permission>"))
    assert b"HTTP/1.1 201" in _batch(tables, _BY_POLICY, _insert("x")).body
    _set_policies(tables, ("p", _READS))
    assert _MISMATCH.encode() in _batch(tables, _BY_POLICY, _insert("y")).body
    assert _holds(tables) == 6
