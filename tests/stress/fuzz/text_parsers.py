"""The parsers of texts in URLs and headers: filters, paths, query strings, tokens, ETags, and values of properties.

A filter is planned, and the plan is compared with the filter on one entity. What the server would write for a parsed
text is parsed again.
"""

import math
from contextlib import suppress
from functools import partial
from typing import Final

from stress.fuzz.parser import ACCOUNT, NOW, Parser, headers_of, on_text, text_of
from tablestone.auth.account import Account
from tablestone.auth.shared_access_signature import Conditions, parse_conditions
from tablestone.model import edm
from tablestone.model.entity_json import entity_renderer, read_raw, typed_property
from tablestone.model.errors import StorageError
from tablestone.model.etag import format_etag, parse_etag
from tablestone.model.filter_tree import FilterNode
from tablestone.model.keys import EntityKey, decode_key, encode_key
from tablestone.model.shared_access import parse_instant
from tablestone.query.evaluate import compile_filter
from tablestone.query.filter_parser import TABLE_PROPERTIES, parse_filter
from tablestone.query.plan import plan_query
from tablestone.tables.filter_pushdown import hint_of
from tablestone.wire.address import (
    Address,
    AddressKind,
    format_entity_path,
    parse_host,
    parse_query_string,
    parse_resource,
    readable_parameters,
    select_as_sent,
)
from tablestone.wire.continuation import (
    format_token,
    parse_entity_token,
    parse_table_token,
    parse_token,
)
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import negotiate

KEY: Final = EntityKey("p", "r")
_STORED: Final = entity_renderer(
    KEY, ['"s":"x"', '"n":1', '"d":1.5', '"b":true', '"l@odata.type":"Edm.Int64","l":"5"']
)(NOW)
_RAW: Final = read_raw(_STORED)


def _is_true(node: FilterNode) -> bool:
    return compile_filter(node)(partial(typed_property, _RAW))


def _use_filter(node: FilterNode | None) -> None:
    """Plan it, and compare the plan with the filter on one entity."""
    plan = plan_query(node)
    if node is None:
        return
    place = (encode_key(KEY.partition_key), encode_key(KEY.row_key))
    inside = any(start <= place and (end is None or place < end) for start, end in plan.ranges)
    residual = plan.residual is None or _is_true(plan.residual)
    assert (inside and residual) == _is_true(node), "the plan differs from the filter"
    if plan.residual is not None:
        hint_of(plan.residual)


def _parse_filter_of_tables(text: str) -> FilterNode | None:
    return parse_filter(text, declared=TABLE_PROPERTIES)


def _use_filter_of_tables(node: FilterNode | None) -> None:
    if node is not None:
        compile_filter(node)(lambda _name: edm.EdmValue(edm.EdmType.STRING, "Table"))


def _parse_path(content: bytes) -> Address:
    return parse_resource(content, ACCOUNT)


def _use_address(address: Address) -> None:
    if address.kind is AddressKind.ENTITY:
        written = format_entity_path(address.table, address.key)
        assert not written.isascii() or _parse_path(written.encode("ascii")) == address


def _parse_query(content: bytes) -> object:
    readable_parameters(content)
    select_as_sent(content)
    parameters = parse_query_string(content)
    negotiate({}, parameters, "2019-02-02")
    return parse_table_token(parameters), parse_entity_token(parameters)


def _use_token(text: str) -> None:
    assert parse_token(format_token(text)) == text


def _parse_etag(content: bytes) -> int:
    return parse_etag(content.decode("latin-1"))


def _use_version(version: int) -> None:
    if edm.DATE_TIME_MIN <= version <= edm.DATE_TIME_MAX:
        assert parse_etag(format_etag(version)) == version


def _parse_headers(content: bytes) -> object:
    headers = headers_of(content)
    for version in ("2011-08-18", "2013-08-15", "2019-02-02"):
        negotiate(headers, {}, version)
    return parse_host(headers.get(b"host", b""))


def _parse_conditions(text: str) -> Conditions:
    """A signature's address range and protocol, with a `;` between them."""
    addresses, _, protocol = text.partition(";")
    return parse_conditions({"sip": addresses, "spr": protocol})


def _use_conditions(conditions: Conditions) -> None:
    for client in ("127.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", ""):
        with suppress(StorageError):
            conditions.require(RawRequest("GET", b"/", b"", {}, "http", client))


def _use_double(number: float) -> None:
    again = edm.parse_double(edm.format_double(number))
    assert again == number or math.isnan(again)


def _parse_binary(text: str) -> bytes:
    assert edm.parse_binary(edm.rewrite_binary(text)) == edm.parse_binary(text)
    return edm.parse_binary(text)


def _use_date_time(written: str) -> None:
    assert edm.rewrite_date_time(written) == written


def _parse_integer(text: str) -> int:
    return edm.parse_integer(text, edm.INT64_MIN, edm.INT64_MAX)


def _use_keys(text: str) -> None:
    """Two keys with a line feed between them: their bytes sort as UTF-16, and decode to the same keys (wire 6.10)."""
    first, _, second = text.partition("\n")
    for key in (first, second):
        assert decode_key(encode_key(key)) == key
    is_less = first.encode("utf-16-be") < second.encode("utf-16-be")
    assert (encode_key(first) < encode_key(second)) == is_less


def _parse_account(text: str) -> Account:
    """A name and a key, as an operator configures them, with a `:` between them."""
    name, _, key = text.partition(":")
    return Account(name, [key])


TEXT_PARSERS: Final[dict[str, Parser]] = {
    "filter": Parser(
        on_text(parse_filter),
        (
            b"PartitionKey eq 'p' and RowKey ge 'a' and (n gt 5L or not (d lt 1.5))",
            b"t eq datetime'2017-01-05T03:25:45Z' or g eq guid'00000000-0000-0000-0000-000000000001'",
            b"x eq X'00ff' and b eq true and p eq geography'SRID=4326;POINT(1 2)'",
        ),
        (
            *(
                b" and ",
                b" or ",
                b"not ",
                b" eq ",
                b" ne ",
                b" gt ",
                b" ge ",
                b" lt ",
                b" le ",
                b"(",
                b")",
            ),
            *(
                b"PartitionKey",
                b"RowKey",
                b"Timestamp",
                b"null",
                b"true",
                b"datetime'",
                b"guid'",
                b"X'",
            ),
            *(
                b"binary'",
                b"geography'",
                b"5L",
                b"1.5D",
                b"1e3",
                b"NaN",
                b"INF",
                b"-INF",
                b"''",
                b"substringof(",
            ),
        ),
        use=_use_filter,
    ),
    "filter-of-tables": Parser(
        on_text(_parse_filter_of_tables),
        (b"TableName ge 'a' and TableName lt 'b'",),
        use=_use_filter_of_tables,
    ),
    "path": Parser(
        _parse_path,
        (
            b"Table(PartitionKey='p',RowKey='r')",
            b"Table%28RowKey%3D'a%27%27b'%2CPartitionKey='%C3%BC'%29",
            b"Tables('Table')",
            b"Table()",
            b"$batch",
        ),
        (
            b"PartitionKey='",
            b"RowKey='",
            b"%27",
            b"''",
            b"%2F",
            b"%5C",
            b"Tables",
            b"$metadata",
            b"//",
        ),
        use=_use_address,
    ),
    "query-string": Parser(
        _parse_query,
        (
            b"$filter=PartitionKey%20eq%20'p'&$top=5&$select=a,b%2Cc&NextPartitionKey=1!4!cA--&NextRowKey=1!4!cg--",
            b"comp=acl&restype=service&timeout=5&$format=application/json;odata=nometadata",
        ),
        (
            b"&",
            b"=",
            b"%26",
            b"+",
            b"NextTableName=",
            b"$format=",
            b"application/json;odata=",
            b"comp=",
        ),
    ),
    "token": Parser(
        on_text(parse_token),
        (b"1!4!cA--", b"1!8!cGFydA--", b"plain"),
        (b"1!", b"!", b"--"),
        use=_use_token,
    ),
    "etag": Parser(
        _parse_etag,
        (b"W/\"datetime'2017-01-05T03%3A25%3A45.588957Z'\"",),
        (b'W/"', b"datetime'", b"''", b"%3a"),
        use=_use_version,
    ),
    "headers": Parser(
        _parse_headers,
        (
            b"accept: application/json;odata=minimalmetadata, */*\nprefer: return-no-content\nhost: a.table.example:1",
            b"accept: application/atom+xml,application/xml\nmaxdataserviceversion: 3.0;NetFx\nhost: [::1]:10002",
        ),
        (
            b"accept:",
            b"prefer:",
            b"host:",
            b"application/json",
            b";odata=",
            b"maxdataserviceversion:",
            b"[::1]",
        ),
    ),
    "conditions": Parser(
        on_text(_parse_conditions),
        (b"127.0.0.1-127.0.0.9;https,http", b"::1;https", b"10.0.0.1;"),
        use=_use_conditions,
    ),
    "instant": Parser(
        on_text(parse_instant),
        (b"2017-01-05T03:25:45.1234567Z", b"2017-01-05", b"2017-01-05T03:25+14:00"),
        refusals=(ValueError,),
        use=edm.format_date_time_fixed,
    ),
    "double": Parser(
        on_text(edm.parse_double),
        (b"1.5", b"-1e-300", b"123456789012345678", b"NaN", b"-INF"),
        refusals=(ValueError,),
        use=_use_double,
    ),
    "binary": Parser(on_text(_parse_binary), (b"AAECAw==", b"AA=="), refusals=(ValueError,)),
    "date-time": Parser(
        on_text(edm.rewrite_date_time),
        (
            b"2017-01-05T03:25:45.588957Z",
            b"1601-01-02 00:00+01:00",
            b"9999-12-31T23:59:59.99999999+14:00",
        ),
        refusals=(ValueError,),
        use=_use_date_time,
    ),
    "integer": Parser(
        on_text(_parse_integer), (b"5", b"-9223372036854775808", b"+0005"), refusals=(ValueError,)
    ),
    "guid": Parser(
        on_text(edm.parse_guid), (b"00000000-0000-0000-0000-00000000000a",), refusals=(ValueError,)
    ),
    "keys": Parser(text_of, (b"a\nb", "\ue000\n\U00010000".encode(), b"\0\n\0\0"), use=_use_keys),
    "account": Parser(on_text(_parse_account), (b"account1:AAECAw==",), refusals=(ValueError,)),
}
