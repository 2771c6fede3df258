"""The cost of a client's value grows with its length, not with the square of it.

The texts fail, or match, only at their last character: code that backtracks over the others would take seconds for
each.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tablestone.model.edm import (
    parse_binary,
    parse_date_time,
    parse_double,
    parse_guid,
    parse_integer,
)
from tablestone.model.errors import StorageError
from tablestone.model.etag import parse_etag
from tablestone.query.filter_parser import parse_filter
from tablestone.wire import atom_payload, json_payload
from tablestone.wire.address import parse_query_string, parse_resource
from tablestone.wire.negotiate import negotiate

LENGTH = 40_000
SECONDS = 2.0
"""The limit: a thousand times the time of a text of this length, and a fifth of the time of its square."""


def _json(value: str) -> None:
    body = f'{{"PartitionKey":"","RowKey":"","D@odata.type":"Edm.Double","D":"{value}"}}'
    json_payload.decode_entity(body.encode(), None)


def _atom(value: str) -> None:
    body = (
        '<entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
        'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content><m:properties>'
        "<d:PartitionKey></d:PartitionKey><d:RowKey></d:RowKey>"
        f'<d:D m:type="Edm.Double">{value}</d:D></m:properties></content></entry>'
    )
    atom_payload.decode_entity(body.encode(), None)


def _path(text: str) -> None:
    parse_resource(text.encode(), "account")


def _query(text: str) -> None:
    parse_query_string(text.encode())


READERS: dict[str, Callable[[str], Any]] = {
    "a Double": parse_double,
    "a Double in JSON": _json,
    "a Double in Atom": _atom,
    "an integer": partial(parse_integer, least=0, greatest=1),
    "a date": parse_date_time,
    "a GUID": parse_guid,
    "base64": parse_binary,
    "an ETag": parse_etag,
    "a path": _path,
    "a query string": _query,
    "a filter": parse_filter,
    "a point in a filter": lambda text: parse_filter(f"a eq geography'POINT({text})'"),
}
TEXTS = {
    "digits": "1" * LENGTH,
    "zeros": "-" + "0" * LENGTH + "1",
    "digits and an x": "1" * LENGTH + "x",
    "zeros and an x": "-" + "0" * LENGTH + "x",
    "a fraction and an x": "0." + "0" * LENGTH + "x",
    "an exponent and an x": "1e" + "1" * LENGTH + "x",
    "blanks": " " * LENGTH + "x",
    "quotes": "'" * (LENGTH + 1) + "x",
    "a table and blanks": "t(" + " " * LENGTH + "x",
    "a key of quotes": "t(PartitionKey='" + "'" * LENGTH + "x",
    "a weak tag": "W/\"datetime'" + "2" * LENGTH + "x",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_a_long_text_is_read_or_refused_at_once(reader: Callable[[str], Any], text: str) -> None:
    began = time.process_time()
    with suppress(ValueError, StorageError):
        reader(text)
    assert time.process_time() - began < SECONDS


VERSIONS = {
    "0" * 5_000 + "2.0": "JsonFormatNotSupported",
    "0" * 5_000 + "3.0": None,
    "9" * 5_000 + ".0": None,
}


@pytest.mark.parametrize(("version", "refusal"), VERSIONS.items(), ids=["2", "3", "nines"])
def test_a_data_service_version_may_have_more_digits_than_python_reads(
    version: str, refusal: str | None
) -> None:
    """A number of 4,301 digits is a ValueError; no limit of the service is known."""
    headers = {b"accept": b"application/json", b"dataserviceversion": version.encode()}
    assert negotiate(headers, {}, "2019-02-02").refusal == refusal
