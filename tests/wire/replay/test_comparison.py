"""The replay's comparison: the recorded answers themselves pass it, and each kind of difference is found."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from .bindings import Bindings
from .cassettes import Exchange
from .comparison import AnswerComparison
from .normalised import GUID
from .outgoing import SERVICE_BASE, request_to_send
from .target import Answer, Target

if TYPE_CHECKING:
    from .cassettes import Recording
    from .comparison import Difference

ENDPOINT = "http://127.0.0.1:10002/devstoreaccount1"
# Never connected: the comparison only asks it for its names.
TARGET = Target(ENDPOINT, "devstoreaccount1", "")
A_REQUEST_ID = "827a22af-0002-001b-5203-67b895000000"


def as_our_own(exchange: Exchange) -> Answer:
    """The recorded answer as a perfect server would give it now, at its own address."""
    text = SERVICE_BASE.sub(ENDPOINT, exchange.body.decode())
    text = re.sub(r'("odata\.type":")\w+\.', r"\1devstoreaccount1.", text)
    # The errors of a batch and its outer answer have the same id; a scrubbed one may be any.
    found = re.search(rf"RequestId:({GUID.pattern})", text)
    headers = [
        (name, SERVICE_BASE.sub(ENDPOINT, value)) for name, value in exchange.headers.items()
    ]
    headers.append(("x-ms-request-id", found[1] if found else A_REQUEST_ID))
    return Answer(exchange.status, tuple(headers), text.encode(), exchange.reason)


def compared(exchange: Exchange, answer: Answer, bindings: Bindings) -> list[Difference]:
    request = request_to_send(exchange, bindings, ENDPOINT)
    return AnswerComparison(exchange, request, answer, TARGET, bindings).run()


@pytest.mark.slow
@pytest.mark.network
def test_the_live_service_passes_its_own_replay(recordings: list[Recording]) -> None:
    for recording in recordings:
        bindings = Bindings()
        for exchange in recording.exchanges:
            assert compared(exchange, as_our_own(exchange), bindings) == [], exchange.name


def exchange_of(
    method: str, path: str, status: int, headers: dict[str, str], body: str, sent: str = ""
) -> Exchange:
    common = {"date": "Thu, 05 Jan 2017 03:25:45 GMT", "x-ms-version": "2019-02-02"}
    return Exchange(
        recording="a_recording",
        index=0,
        method=method,
        host="a.table.core.windows.net",
        path=path,
        query="",
        request_headers={},
        request_body=sent.encode(),
        status=status,
        reason="",
        headers=common | headers,
        body=body.encode(),
    )


# In the form of wire 15.
TAG = "W/\"datetime'2017-01-05T03%3A25%3A45.588957Z'\""
ENTITY = exchange_of(
    "GET",
    "/t(PartitionKey='p',RowKey='r')",
    200,
    {"content-type": "application/json;odata=minimalmetadata", "etag": TAG},
    '{"odata.metadata":"https://a.table.core.windows.net/$metadata#t/@Element",'
    '"odata.etag":"W/\\"datetime\'2017-01-05T03%3A25%3A45.588957Z\'\\"",'
    '"PartitionKey":"p","RowKey":"r","Timestamp":"2017-01-05T03:25:45.588957Z","d":5.0,"s":"x"}',
)
FAILURE = exchange_of(
    "GET",
    "/t(PartitionKey='p',RowKey='r')",
    404,
    {"content-type": "application/json;odata=minimalmetadata"},
    '{"odata.error":{"code":"ResourceNotFound","message":{"lang":"en-US","value":'
    '"The specified resource does not exist.\\nRequestId:827a22af-0002-001b-5203-67b895000000'
    '\\nTime:2017-01-05T03:27:45.3069754Z"}}}',
)
BATCH = exchange_of(
    "POST",
    "/$batch",
    202,
    {
        "content-type": (
            "multipart/mixed; boundary=batchresponse_e69b1c6c-62ff-471e-ab88-9a4aeef0880b"
        )
    },
    "--batchresponse_e69b1c6c-62ff-471e-ab88-9a4aeef0880b\r\n"
    "Content-Type: multipart/mixed; "
    "boundary=changesetresponse_a6253244-7e21-42a8-a149-479ee9e94a25\r\n\r\n"
    "--changesetresponse_a6253244-7e21-42a8-a149-479ee9e94a25\r\n"
    "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n"
    f"DataServiceVersion: 1.0;\r\nETag: {TAG}\r\n\r\n\r\n"
    "--changesetresponse_a6253244-7e21-42a8-a149-479ee9e94a25--\r\n"
    "--batchresponse_e69b1c6c-62ff-471e-ab88-9a4aeef0880b--\r\n",
    "--batch_1\r\n\r\n--changeset_1\r\n\r\n"
    "PUT https://a.table.core.windows.net/t(PartitionKey='p',RowKey='r') HTTP/1.1\r\n\r\n{}\r\n",
)


@dataclass(frozen=True)
class Flaw:
    """One replacement in the answer's body or headers, and where the replay must notice it."""

    exchange: Exchange
    old: str
    new: str
    where: str


FLAWS = [
    Flaw(ENTITY, '"d":5.0', '"d":5', "body.d"),
    Flaw(ENTITY, '"d":5.0', '"d":"5.0"', "body.d"),
    Flaw(ENTITY, '"s":"x"', '"s":"X"', "body.s"),
    Flaw(ENTITY, '"d":5.0,"s":"x"', '"s":"x","d":5.0', "body members"),
    Flaw(ENTITY, '"s":"x"', '"s":"x","s":"x"', "body members"),
    Flaw(ENTITY, ',"s":"x"', "", "body members"),
    Flaw(ENTITY, "#t/@Element", "#t", "body.odata.metadata"),
    Flaw(ENTITY, "http://127.0.0.1:10002", "http://localhost:10002", "body.odata.metadata"),
    Flaw(ENTITY, '588957Z"', '5889570Z"', "body.Timestamp"),
    Flaw(ENTITY, '588957Z"', '588958Z"', "body.Timestamp"),
    Flaw(ENTITY, "588957Z'\\", "588958Z'\\", "body.odata.etag"),
    Flaw(ENTITY, "minimalmetadata", "nometadata", "header content-type"),
    Flaw(ENTITY, '{"odata', "<", "body"),
    Flaw(ENTITY, '"s":"x"', '"s":"\\u0078"', "body spelling"),
    Flaw(ENTITY, '"s":"x"', '"s": "x"', "body spelling"),
    Flaw(FAILURE, "does not exist", "is not there", "body.odata.error.message.value"),
    Flaw(FAILURE, "67b895000000", "67b895000001", "body.odata.error.message.value RequestId"),
    Flaw(FAILURE, "3069754Z", "306Z", "body.odata.error.message.value"),
    Flaw(BATCH, "204 No Content", "204", "part 0 status line"),
    Flaw(BATCH, "DataServiceVersion: 1.0;", "DataServiceVersion: 3.0;", "part 0 header lines"),
    Flaw(
        BATCH,
        "X-Content-Type-Options: nosniff\r\nCache-Control: no-cache",
        "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff",
        "part 0 header lines",
    ),
    Flaw(BATCH, "ETag: ", "Etag: ", "part 0 header lines"),
    Flaw(BATCH, "\r\n\r\n\r\n", "\r\n\r\n", "part 0 ending"),
    Flaw(BATCH, "application/http", "application/http; msgtype=response", "part 0 MIME headers"),
    Flaw(BATCH, "880b--\r\n", "880b--", "batch closing"),
    Flaw(BATCH, "multipart/mixed; ", "multipart/mixed;", "batch opening"),
    Flaw(BATCH, "\r\n", "\n", "batch"),
]


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: f"{flaw.where}: {flaw.new[:30]!r}")
def test_a_flaw_is_seen(flaw: Flaw) -> None:
    sound = as_our_own(flaw.exchange)
    assert compared(flaw.exchange, sound, Bindings()) == []
    headers = tuple((name, value.replace(flaw.old, flaw.new)) for name, value in sound.headers)
    if flaw.where.startswith("header"):
        flawed = Answer(sound.status, headers, sound.body)
    else:
        flawed = Answer(
            sound.status,
            sound.headers,
            sound.body.decode().replace(flaw.old, flaw.new, 1 + 99 * (flaw.old == "\r\n")).encode(),
        )
    assert flaw.where in [
        difference.where for difference in compared(flaw.exchange, flawed, Bindings())
    ]


def test_a_missing_an_extra_and_a_doubled_header_are_seen() -> None:
    sound = as_our_own(ENTITY)
    without = tuple(pair for pair in sound.headers if pair[0] != "x-ms-version")
    for headers, where in (
        (without, "header x-ms-version"),
        ((*sound.headers, ("x-powered-by", "us")), "header x-powered-by"),
        ((*sound.headers, ("x-ms-version", "2019-02-02")), "header x-ms-version"),
        (sound.headers[:-1], "header x-ms-request-id"),
    ):
        answer = Answer(sound.status, headers, sound.body)
        seen = compared(ENTITY, answer, Bindings())
        assert [difference.where for difference in seen] == [where]


def test_another_status_is_seen() -> None:
    sound = as_our_own(ENTITY)
    answer = Answer(201, sound.headers, sound.body)
    assert [difference.where for difference in compared(ENTITY, answer, Bindings())] == ["status"]


def test_an_etag_that_changes_without_a_write_is_seen() -> None:
    bindings = Bindings()
    sound = as_our_own(ENTITY)
    assert compared(ENTITY, sound, bindings) == []
    later = Answer(
        sound.status,
        tuple((name, value.replace("588957Z", "6Z")) for name, value in sound.headers),
        sound.body.replace(b"588957Z", b"6Z"),
    )
    assert {difference.where for difference in compared(ENTITY, later, bindings)} == {
        "header etag",
        "body.odata.etag",
        "body.Timestamp",
    }


def test_another_reason_phrase_of_an_error_is_seen() -> None:
    exchange = replace(FAILURE, reason="Not Found")
    sound = replace(as_our_own(exchange), reason="Not Found")
    assert compared(exchange, sound, Bindings()) == []
    (found,) = compared(exchange, replace(sound, reason="Gone"), Bindings())
    assert found.where == "reason phrase"
