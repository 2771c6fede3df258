"""Refusals and their statuses, without a browser: a silent admin address, and changes in a read-only explorer."""

import asyncio
import html
import json
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from explorer.pages_in_browser import READY_SECONDS_MAX, running_explorer
from explorer.test_explorer_bad_input import answering
from explorer.test_page_guard import COOKIE, ORIGIN, PASSED, send
from tablestone.cli.commands.serve import PATH, served_explorer
from tablestone.cli.option_sources import read_configuration
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.explorer.account import NOT_TOLD, ExplorerSettings, known_tables
from tablestone.explorer.application import CHANGE_FORMS, READ_ONLY
from tablestone.testing import TableStorage
from tablestone.tools.connection import LOCAL_KEY, local_connection, parse_connection_string

OPENED = {"cookie": COOKIE}


@pytest.mark.parametrize("path", CHANGE_FORMS)
def test_read_only_shows_no_form_that_could_only_be_refused(path: str) -> None:
    path = path.replace("{table}", "Weather")
    answer = send("GET", path, OPENED, read_only=True)
    assert answer.status_code == 403
    assert READ_ONLY in answer.text
    assert "<form" not in answer.text.partition("<main")[2]
    # One of them asks the endpoint, which is nowhere.
    assert send("GET", path, OPENED).status_code in (200, PASSED)


CHANGING = {
    *("Create", "New table", "Import a file", "Delete this table…", "⋯"),
    *("Delete", "Delete…", "Insert", "Save", "Import", "Clone"),
}
"""The words of all controls that change something, also of those in a menu."""


def test_read_only_shows_no_way_to_change() -> None:
    with TableStorage() as storage:
        storage.seed({"Weather": [{"PartitionKey": "p", "RowKey": "r", "V": 1}]})
        connection = parse_connection_string(storage.connection_string)
        for path in ("/", "/tables/Weather", "/tables/Weather/entity?pk=p&rk=r"):
            for read_only in (True, False):
                page = send("GET", path, OPENED, connection=connection, read_only=read_only).text
                found = re.findall(
                    r"<(?:button|a|summary)\b[^>]*>(.*?)</", page.partition("<main")[2]
                )
                words = {html.unescape(re.sub("<[^>]*>", "", each)) for each in found}
                assert len(words) > 2
                assert (CHANGING & words == set()) == read_only, words


def test_an_admin_address_that_does_not_answer() -> None:
    """The same sentence as `tablestone insight`, without the URL of the tables before it."""
    answer = send("GET", "/heat", OPENED, admin="http://127.0.0.1:9")
    assert answer.status_code == PASSED
    assert (
        '<p class="problem" role="alert">The admin address 127.0.0.1:9 does not answer (Connection refused)'
        in answer.text
    )


@pytest.mark.parametrize(("given", "status"), [("true", 200), ("read-only", 403)])
def test_the_explorer_beside_a_server_can_be_read_only(given: str, status: int) -> None:
    configuration = read_configuration({"explorer": given, "engine": "memory"}, {})
    path, mount = served_explorer(configuration, [DEVELOPMENT_ACCOUNT])
    nowhere = "http://127.0.0.1:9"
    application = mount(nowhere, nowhere)[PATH]
    token = path.partition("token=")[2]

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            cookie = {"cookie": f"tablestone_explorer_80={token}"}
            return await client.get("/tables/Weather/delete", headers=cookie)

    assert asyncio.run(ask()).status_code == status


def test_the_sizes_of_an_endpoint_without_an_admin_address() -> None:
    """The protocol has none: the page says so, and names what would have them."""
    assert known_tables(ExplorerSettings(local_connection())) == ({}, NOT_TOLD)


def test_the_sizes_behind_an_admin_address_that_does_not_answer() -> None:
    settings = ExplorerSettings(local_connection(), admin="http://127.0.0.1:9")
    known, note = known_tables(settings)
    assert known == {}
    assert note.startswith("The admin address 127.0.0.1:9 does not answer")


@pytest.mark.parametrize("code", ["FeatureNotSupportedForAccount", "NotImplemented"])
@pytest.mark.parametrize("path", ["/service", "/tables/Weather/policies"])
def test_the_page_says_what_an_endpoint_does_not_have(code: str, path: str) -> None:
    """Cosmos DB has no access policies and no service properties; Azurite long had no properties."""
    said = f'<m:error xmlns:m="m"><m:code>{code}</m:code><m:message>Not here.</m:message></m:error>'
    with answering(lambda _path: (501, "application/xml", said.encode())) as place:
        answer = send("GET", path, OPENED, connection=parse_connection_string(place))
    assert answer.status_code == 502
    assert f"answers {code}" in answer.text
    assert 'aria-label="Pages"' in answer.text


ODD: dict[str, Any] = {"PartitionKey": "p", "RowKey": "r", "V@odata.type": "Edm.Int32", "V": "zz"}
NO_SERVICE = "does not answer as a table service does"
ODD_ANSWERS: list[tuple[str, str, str, str]] = [
    # what the endpoint answers, the page, its status, words on the page
    ("[" * 100_000, "/", "502", NO_SERVICE),
    ("[" * 100_000, "/service", "502", NO_SERVICE),
    ("[" * 100_000, "/tables/T", "502", NO_SERVICE),
    ('{"value": [{"TableName": null}]}', "/", "502", NO_SERVICE),
    ('{"value": null}', "/tables/T", "502", "answered a query with something else"),
    ('{"value": [1]}', "/tables/T", "502", "answered a query with something else"),
    ("<!doctype html><title>Hello</title>", "/tables/T", "502", NO_SERVICE),
    (json.dumps({"value": [ODD]}), "/tables/T/size", "200", 'data-entities="1"'),
    (json.dumps({"value": [ODD]}), "/tables/T?request=x&name=y", "200", "zz"),
]


@pytest.mark.parametrize(("body", "path", "status", "words"), ODD_ANSWERS)
def test_an_odd_answer_is_explained(body: str, path: str, status: str, words: str) -> None:
    with answering(lambda _path: (200, "application/json", body.encode())) as place:
        answer = send("GET", path, OPENED, connection=parse_connection_string(place))
    assert str(answer.status_code) == status
    assert words in answer.text


def test_a_file_that_needs_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builds without Python leave out pyarrow, which reads Parquet."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "tablestone.tools.formats.parquet", raising=False)
    with TableStorage() as storage:
        answer = send(
            "POST",
            "/tables/T/import",
            OPENED | {"origin": ORIGIN},
            data={"look": "1"},
            files={"file": ("rows.parquet", b"PAR1")},
            connection=parse_connection_string(storage.connection_string),
        )
    assert answer.status_code == 501
    assert "This file needs pyarrow: pip install" in html.unescape(answer.text)


def test_an_unknown_type_is_refused() -> None:
    form = {"pk": "p", "rk": "r", "name": "a", "kind": "Nope", "text": "1"}
    answer = send("POST", "/tables/T/new", OPENED | {"origin": ORIGIN}, data=form)
    assert answer.status_code == 400
    assert "Nope is not a type" in answer.text


UNFIT_SIGNATURES: list[tuple[dict[str, str], str]] = [
    # the fields, of which the page disables some; the sentence
    ({"policy": "whole"}, "A stored access policy belongs to a table"),
    ({"start_pk": "a", "may_r": "1"}, "A range of keys belongs to a table"),
    (
        {"table": "Weather", "may_w": "1", "may_l": "1"},
        "A table signature can permit read, add, update and delete only, not write or list.",
    ),
]


@pytest.mark.parametrize(("form", "sentence"), UNFIT_SIGNATURES)
def test_a_signature_that_the_page_would_disable_is_refused(
    form: dict[str, str], sentence: str
) -> None:
    answer = send("POST", "/signature", OPENED | {"origin": ORIGIN}, data=form)
    assert answer.status_code == 400
    assert sentence in answer.text


@pytest.mark.parametrize(
    ("code", "status"), [("KeyBasedAuthenticationNotPermitted", 400), ("AuthenticationFailed", 200)]
)
def test_no_signature_is_made_with_a_key_that_is_off(code: str, status: int) -> None:
    said = json.dumps({"odata.error": {"code": code, "message": {"value": ""}}}).encode()
    with answering(lambda _path: (403, "application/json", said)) as place:
        answer = send(
            "POST",
            "/signature",
            OPENED | {"origin": ORIGIN},
            data={"table": "Weather", "may_r": "1"},
            connection=parse_connection_string(place),
        )
    assert answer.status_code == status
    assert ("every signature made with it" in answer.text) == (status == 400)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("2020-01-01T00:00:00Z", "has expired: it ended at 2020-01-01T00:00:00Z."),
        ("2100-01-01T00:00:00Z", "AuthenticationFailed</p>"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/tables/T", "/service"])
def test_an_expired_signature_is_explained(path: str, end: str, words: str) -> None:
    said = {"odata.error": {"code": "AuthenticationFailed", "message": {"value": ""}}}
    body = json.dumps(said).encode()
    with answering(lambda _path: (403, "application/json", body)) as place:
        url = place.partition("TableEndpoint=")[2]
        signed = f"TableEndpoint={url};SharedAccessSignature=sv=2019-02-02&se={end}&sig=x"
        answer = send("GET", path, OPENED, connection=parse_connection_string(signed))
    assert answer.status_code == 403
    assert words in answer.text


def test_the_only_table_of_a_signature_is_opened() -> None:
    """Its holder may not list tables, so the first page is that table."""
    url = "http://127.0.0.1:9/devstoreaccount1"
    signed = f"TableEndpoint={url};SharedAccessSignature=sv=2019-02-02&tn=flights&sp=r&sig=x"
    answer = send("GET", "/", OPENED, connection=parse_connection_string(signed))
    assert answer.status_code == 303
    assert answer.headers["location"] == "/tables/flights"


REFUSED = b'{"odata.error": {"code": "AuthorizationFailure", "message": {"value": "Not for you."}}}'


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/", 403, "type its whole name"),
        ("/?find=no table", 403, "AuthorizationFailure"),
        ("/?find=Flights", 303, ""),
    ],
)
def test_a_caller_who_may_not_list_tables_opens_one_by_its_name(
    path: str, status: int, words: str
) -> None:
    """As with an account signature that has no access to containers."""
    with answering(lambda _path: (403, "application/json", REFUSED)) as place:
        answer = send("GET", path, OPENED, connection=parse_connection_string(place))
    assert answer.status_code == status
    assert words in answer.text
    assert answer.headers.get("location", "/tables/Flights") == "/tables/Flights"


@pytest.mark.slow
def test_an_explorer_ends_although_a_page_waits(tmp_path: Path) -> None:
    """The endpoint accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/devstoreaccount1"
        place = f"AccountName=devstoreaccount1;AccountKey={LOCAL_KEY};TableEndpoint={url}"
        with running_explorer(place, settings=tmp_path) as process, socket.socket() as client:
            token = process.address.partition("token=")[2]
            port = urlsplit(process.base).port
            assert port is not None
            client.connect(("127.0.0.1", port))
            cookie = f"tablestone_explorer_{port}={token}"
            request = (
                f"GET /tables/T HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
            )
            client.sendall(request.encode())
            asked, _ = listener.accept()
            process.process.send_signal(signal.SIGINT)
            # Without the limit, the process would wait for the endpoint: a minute, three times.
            process.process.communicate(timeout=READY_SECONDS_MAX)
            asked.close()
        assert process.process.returncode == 0
