"""Every difference that the comparison ignores, each with its reason. Everything else must be the same."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from .outgoing import SERVICE_BASE

if TYPE_CHECKING:
    from .cassettes import Exchange
    from .target import Answer, Target

# Besides headers: Content-Length where the service streamed with Transfer-Encoding, and the length of a missing body.
# The base URL differs by construction, and the account in `odata.type` follows from it: they become {BASE} and
# {ACCOUNT}. Timestamps and ETags that the server makes are bound to the recording's (`bindings`); request ids, error
# times and the time of the last replication are checked for their form; boundaries become {BATCH} and {CHANGESET},
# the creation time in a table's continuation token {CREATED}. The reason phrase of a success, which the recorder
# sometimes replaced.
IGNORED_HEADERS = {
    "connection": "hop by hop: one recording happened to end its connection",
    "date": "the clock's; its presence and form are checked",
    "keep-alive": "hop by hop",
    "x-ms-request-id": "scrubbed from the recordings; its presence and form are checked",
}
IGNORED_HEADER_VALUES = {
    ("vary", "Origin"): "CORS rules that other tests had left on the recorded account (wire 2.2)"
}
STREAMED = ("transfer-encoding", "chunked")

GUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
HTTP_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    r"\d{4} \d\d:\d\d:\d\d GMT"
)
BATCH_BOUNDARY = re.compile(rf"batchresponse_{GUID.pattern}")
CHANGESET_BOUNDARY = re.compile(rf"changesetresponse_{GUID.pattern}")
# An error's text, its request id and its time with seven digits (wire 8.1).
ERROR_MESSAGE = re.compile(
    rf"(?P<text>.*)\nRequestId:(?P<id>{GUID.pattern})\n"
    r"Time:(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z)",
    re.DOTALL,
)
STAMPS = (
    (re.compile(r"datetime'[^']*'"), "datetime'{STAMP}'"),
    (re.compile(r'"Timestamp":"[^"]*"'), '"Timestamp":"{STAMP}"'),
    (re.compile(rf"RequestId:{GUID.pattern}"), "RequestId:{ID}"),
    (re.compile(r"Time:[-0-9T:.]+Z"), "Time:{TIME}"),
    (re.compile(r"<updated>[^<]+<"), "<updated>{TIME}<"),
    (re.compile(r"(<d:Timestamp[^>]*>)[^<]+<"), r"\1{STAMP}<"),
    (re.compile(r"<LastSyncTime>[^<]+<"), "<LastSyncTime>{TIME}<"),
)
RECORDED_TYPE = re.compile(r'("odata\.type":"|<category term=")\w+\.')
TABLE_TOKEN = re.compile(r"1!(\d+)!(\S*)")
CREATED = re.compile("\x01[0-9a-f]{16}$")


def neutral_recording(text: str) -> str:
    neutral = SERVICE_BASE.sub("{BASE}", text)
    neutral = RECORDED_TYPE.sub(r"\1{ACCOUNT}.", neutral)
    return neutral_boundaries(neutral)


def neutral_answer(text: str, target: Target) -> str:
    neutral = text.replace(target.endpoint, "{BASE}")
    for before in ('"odata.type":"', '<category term="'):
        neutral = neutral.replace(f"{before}{target.account_name}.", before + "{ACCOUNT}.")
    return neutral_boundaries(neutral)


def neutral_boundaries(text: str) -> str:
    return CHANGESET_BOUNDARY.sub("{CHANGESET}", BATCH_BOUNDARY.sub("{BATCH}", text))


def neutral_stamps(text: str) -> str:
    """A body's text in which values that the server generates are replaced."""
    for pattern, neutral in STAMPS:
        text = pattern.sub(neutral, text)
    return text


def recorded_headers(exchange: Exchange) -> dict[str, str]:
    return {
        name: neutral_header(name, neutral_recording(value))
        for name, value in exchange.headers.items()
        if is_compared(name, value)
    }


def answered_headers(answer: Answer, target: Target, exchange: Exchange) -> dict[str, str]:
    streamed = exchange.headers.get(STREAMED[0]) == STREAMED[1]
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        if not is_compared(name, value) or (streamed and name == "content-length"):
            continue
        neutral = neutral_header(name, neutral_answer(value, target))
        headers[name] = f"{headers[name]}, {neutral}" if name in headers else neutral
    return headers


def is_compared(name: str, value: str) -> bool:
    return (
        name not in IGNORED_HEADERS
        and (name, value) not in IGNORED_HEADER_VALUES
        and (name, value) != STREAMED
    )


def neutral_header(name: str, value: str) -> str:
    return neutral_table_token(value) if name == "x-ms-continuation-nexttablename" else value


def neutral_table_token(token: str) -> str:
    """`1!len!text` with its text decoded and the creation time blanked (wire 6.9); another form unchanged."""
    parsed = TABLE_TOKEN.fullmatch(token)
    if parsed is None or int(parsed[1]) != len(parsed[2]):
        return token
    try:
        text = base64.b64decode(parsed[2].replace("-", "="), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return token
    return CREATED.sub("\x01{CREATED}", text)
