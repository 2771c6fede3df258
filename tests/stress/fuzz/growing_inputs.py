"""Inputs of any length for each parser, of kinds whose cost could grow faster than their length.

The largest input in a URL or in headers has 64 KiB, all that the server accepts, and in a body an eighth of that limit.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tablestone import limits

URL: Final = limits.URL_LENGTH_MAX
HEADERS: Final = limits.HEADERS_BYTES_MAX
BODY: Final = 512 * 1024


class Growing(NamedTuple):
    """A kind of input for a parser: `make` returns one of about so many bytes, `largest` is the most."""

    parser: str
    make: Callable[[int], bytes]
    largest: int


def _repeated(unit: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: before + unit * (size // len(unit)) + after


def _numbered(unit: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    """A unit repeated, each time with another six-digit number for `%06d`."""
    length = len(unit % 0)
    return lambda size: before + b"".join(unit % n for n in range(size // length)) + after


def _nested(opening: bytes, closing: bytes, inside: bytes = b"") -> Callable[[int], bytes]:
    unit = len(opening) + len(closing)
    return lambda size: opening * (size // unit) + inside + closing * (size // unit)


def _shared(
    opening: bytes, unit: bytes, closing: bytes, before: bytes, after: bytes
) -> Callable[[int], bytes]:
    """Values in enough properties to keep each within its limit."""

    def make(size: int) -> bytes:
        value = unit * (size // _SHARES // len(unit))
        ends = [closing % n if b"%" in closing else closing for n in range(_SHARES)]
        return before + b"".join(opening % n + value + end for n, end in enumerate(ends)) + after

    return make


_SHARES: Final = 20
_ENTITY = b'{"PartitionKey":"p","RowKey":"r"'
_XMLNS = (
    b'<entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
    b'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content><m:properties>'
    b"<d:PartitionKey>p</d:PartitionKey><d:RowKey>r</d:RowKey>"
)
_XML_END = b"</m:properties></content></entry>"
_BATCH = b"multipart/mixed; boundary=b\n--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
_PART = b"--c\r\nContent-Type: application/http\r\n\r\nPOST /a/Table HTTP/1.1\r\nContent-ID: %06d\r\n\r\n{}\r\n"
_HEAD = b"--c\r\nContent-Type: application/http\r\n\r\nPOST /a/Table HTTP/1.1\r\n"
_CORS = b"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>"
_CORS_END = (
    b"</AllowedOrigins><AllowedMethods>GET</AllowedMethods><MaxAgeInSeconds>5</MaxAgeInSeconds><ExposedHeaders/>"
    b"<AllowedHeaders/></CorsRule></Cors></StorageServiceProperties>"
)

_FILTERS: Final[dict[str, Callable[[int], bytes]]] = {
    "parentheses": _nested(b"(", b")", b"n eq 1"),
    "parentheses that stay open": _repeated(b"("),
    "not": _repeated(b"not ", after=b"b"),
    "partitions, or": _numbered(b"PartitionKey eq '%06d' or ", after=b"b"),
    "rows, or": _numbered(b"RowKey eq '%06d' or ", after=b"b"),
    "ranges of rows, or": _numbered(b"RowKey gt '%06d' or ", after=b"b"),
    "rows left out, and": _numbered(b"RowKey ne '%06d' and ", after=b"b"),
    "partitions left out, and": _numbered(b"PartitionKey ne '%06d' and ", after=b"b"),
    "entities, or": _numbered(b"(PartitionKey eq '%06d' and RowKey ge 'a') or ", after=b"b"),
    "several of each, and": _numbered(
        b"(PartitionKey eq 'a' or RowKey lt '%06d') and ", after=b"b"
    ),
    "overlapping ranges": _numbered(
        b"(PartitionKey ge '%06d' and PartitionKey lt 'x') or ", after=b"b"
    ),
    "comparisons, and": _numbered(b"n ne %06d and ", after=b"b"),
    "texts, or": _numbered(b"s eq '%06d' or ", after=b"b"),
    "a long text": _repeated(b"x", b"s eq '", b"'"),
    "a text of quotes": _repeated(b"''", b"s eq '", b"'"),
    "a text of quotes that stays open": _repeated(b"''", b"s eq '"),
    "a long number": _repeated(b"9", b"n eq "),
    "a long fraction": _repeated(b"9", b"n eq 0."),
    "a long name": _repeated(b"a", after=b" eq 1"),
    "a long name of letters beyond ASCII": _repeated("é".encode(), after=b" eq 1"),
    "long bytes": _repeated(b"00", b"s eq X'", b"'"),
    "blanks": _repeated(b" ", b"n", b"eq 1"),
    "a place with blanks": _repeated(b" ", b"s eq geography'POINT(", b"1 2)'"),
    "a place that is none": _repeated(b"1 ", b"s eq geography'POINT(", b")'"),
    "a place of signs": _repeated(b"(", b"s eq geography'POINT(", b"1 2)'"),
}
_JSON: Final[dict[str, Callable[[int], bytes]]] = {
    "lists in lists": _nested(b"[", b"]"),
    "objects in objects": _nested(b'{"a":', b"}", b"1"),
    "lists that stay open": _repeated(b"["),
    "many properties": _numbered(b',"p%06d":1', _ENTITY, b"}"),
    "many properties with types": _numbered(b',"p%06d@odata.type":"Edm.Int64"', _ENTITY, b"}"),
    "long texts": _shared(b',"p%02d":"', b"x", b'"', _ENTITY, b"}"),
    "a property again and again": _repeated(b',"a":1', _ENTITY, b"}"),
    "a long text": _repeated(b"x", _ENTITY + b',"a":"', b'"}'),
    "a text of escapes": _repeated(b"\\u0041", _ENTITY + b',"a":"', b'"}'),
    "a text of escaped colons": _repeated(b"\\u003a", _ENTITY + b',"a":"', b'"}'),
    "a text of quotes": _repeated(b'\\"', _ENTITY + b',"a":"', b'"}'),
    "a long number": _repeated(b"9", _ENTITY + b',"a":', b"}"),
    "a long fraction": _repeated(b"9", _ENTITY + b',"a":0.', b"}"),
    "a long exponent": _repeated(b"0", _ENTITY + b',"a":1e', b"1}"),
    "a long name": _repeated(b"a", _ENTITY + b',"', b'":1}'),
    "blanks": _repeated(b" ", _ENTITY, b"}"),
    "control information": _numbered(b',"odata.p%06d":1', _ENTITY, b"}"),
    "a long Int64": _repeated(b"9", _ENTITY + b',"a@odata.type":"Edm.Int64","a":"', b'"}'),
    "a long Double": _repeated(b"9", _ENTITY + b',"a@odata.type":"Edm.Double","a":"', b'"}'),
    "a long DateTime": _repeated(b"9", _ENTITY + b',"a@odata.type":"Edm.DateTime","a":"', b'"}'),
    "long bytes": _repeated(b"AAAA", _ENTITY + b',"a@odata.type":"Edm.Binary","a":"', b'"}'),
    "a place with many numbers": _repeated(
        b"1,",
        _ENTITY + b',"a@odata.type":"Edm.GeographyPoint","a":{"type":"Point","coordinates":[',
        b"1]}}",
    ),
}
_XML: Final[dict[str, Callable[[int], bytes]]] = {
    "many elements": _numbered(b"<d:p%06d/>", _XMLNS, _XML_END),
    "long texts": _shared(b"<d:p%02d>", b"x", b"</d:p%02d>", _XMLNS, _XML_END),
    "deep elements": _nested(b"<a>", b"</a>"),
    "deep elements that stay open": _repeated(b"<a>"),
    "attributes": _numbered(b" a%06d=''", b"<a", b"/>"),
    "namespaces": _numbered(b" xmlns:a%06d='b'", b"<a", b"/>"),
    "a long attribute": _repeated(b"x", b"<a b='", b"'/>"),
    "a long name": _repeated(b"a", b"<", b"/>"),
    "a long text": _repeated(b"x", _XMLNS + b"<d:a>", b"</d:a>" + _XML_END),
    "references": _repeated(b"&lt;", _XMLNS + b"<d:a>", b"</d:a>" + _XML_END),
    "comments": _repeated(b"<!-- -->", _XMLNS, _XML_END),
    "a comment that stays open": _repeated(b"-", _XMLNS + b"<!--"),
    "a text of brackets": _repeated(b"]", _XMLNS + b"<d:a><![CDATA["),
    "instructions": _repeated(b"<?a ?>", _XMLNS, _XML_END),
}
_BATCHES: Final[dict[str, Callable[[int], bytes]]] = {
    "many operations": _numbered(_PART, _BATCH, b"--c--\r\n--b--\r\n"),
    "operations that cannot be read": _repeated(
        b"--c\r\nContent-Type: application/http\r\n\r\nx\r\n", _BATCH, b"--c--\r\n--b--\r\n"
    ),
    "delimiters in a line": _repeated(b"--c", _BATCH + _HEAD + b"\r\n", b"\r\n--c--\r\n--b--\r\n"),
    "delimiters of the envelope in a line": _repeated(b"--b", _BATCH + _HEAD, b"\r\n--c--\r\n"),
    "dashes": _repeated(b"-", _BATCH + _HEAD, b"\r\n--c--\r\n--b--\r\n"),
    "dashes where the boundary is dashes": _repeated(b"-", b"multipart/mixed; boundary=--\n"),
    "headers of an operation": _numbered(
        b"h%06d: 1\r\n", _BATCH + _HEAD, b"\r\n{}\r\n--c--\r\n--b--\r\n"
    ),
    "one header of an operation": _repeated(
        b"If-Match: *\r\n", _BATCH + _HEAD, b"\r\n{}\r\n--c--\r\n--b--\r\n"
    ),
    "a long target": _repeated(
        b"a", _BATCH + _HEAD[:-11], b" HTTP/1.1\r\n\r\n{}\r\n--c--\r\n--b--\r\n"
    ),
    "blanks in a head": _repeated(b" ", _BATCH + _HEAD, b"\r\n{}\r\n--c--\r\n--b--\r\n"),
    "blank lines in a head": _repeated(b"\n ", _BATCH + _HEAD, b"x\r\n--c--\r\n--b--\r\n"),
    "line ends before the envelope": _repeated(b"\r\n", b"multipart/mixed; boundary=b\n"),
    "carriage returns": _repeated(b"\r", _BATCH + _HEAD, b"\r\n--c--\r\n--b--\r\n"),
    "values with delimiters": _repeated(
        b"--c\r\nContent-Type: application/http\r\n\r\nPOST /a/T HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
        b"\r\n--b\r\n--c\r\n",
        _BATCH,
        b"--c--\r\n--b--\r\n",
    ),
}


def _on(parser: str, kinds: dict[str, Callable[[int], bytes]], largest: int) -> dict[str, Growing]:
    return {f"{parser}: {name}": Growing(parser, make, largest) for name, make in kinds.items()}


GROWING: Final[dict[str, Growing]] = {
    **_on("filter", _FILTERS, URL),
    **_on("json-entity", _JSON, BODY),
    **_on("atom-entity", _XML, BODY),
    **_on("batch", _BATCHES, BODY),
    **_on(
        "query-string",
        {
            "parameters": _numbered(b"%06d&"),
            "a parameter again and again": _repeated(b"a=1&"),
            "ampersands": _repeated(b"&"),
            "percent signs": _repeated(b"%", b"a="),
            "encoded characters": _repeated(b"%C3%BC", b"a="),
            "pluses": _repeated(b"+", b"a="),
            "selected names": _numbered(b"a%06d,", b"$select="),
            "forms": _repeated(b"application/json;odata=x,", b"$format="),
            "a continuation token": _repeated(b"AAAA", b"NextPartitionKey=1!60000!"),
        },
        URL,
    ),
    **_on(
        "path",
        {
            "slashes": _repeated(b"/", b"a", b"b"),
            "segments": _repeated(b"a/"),
            "slashes around": _repeated(b"/"),
            "a key of quotes": _repeated(b"''", b"T(PartitionKey='", b"',RowKey='r')"),
            "a key of quotes that is none": _repeated(b"''", b"T(PartitionKey='", b",RowKey='r')"),
            "blanks": _repeated(b" ", b"T(", b"PartitionKey='p')"),
            "parentheses": _repeated(b"(", b"T", b"')"),
            "names of one key": _repeated(b"a", b"T(", b"='p')"),
            "a long table": _repeated(b"a", after=b"(PartitionKey='p',RowKey='r')"),
            "encoded quotes": _repeated(b"%27%27", b"T(PartitionKey='", b"',RowKey='r')"),
        },
        URL,
    ),
    **_on(
        "headers",
        {
            "media types": _repeated(b"a/b,", b"accept: "),
            "parameters of a media type": _repeated(b";a=b", b"accept: application/json"),
            "semicolons": _repeated(b";", b"accept: application/json"),
            "a data service version": _repeated(
                b"0", b"accept: application/json\nmaxdataserviceversion: "
            ),
            "headers": _numbered(b"h%06d: 1\n"),
            "a listed header again and again": _repeated(b"if-match: *\n"),
            "a host": _repeated(b"a.", b"host: "),
        },
        HEADERS,
    ),
    **_on("token", {"a key": _repeated(b"AAAA", b"1!60000!"), "marks": _repeated(b"1!")}, URL),
    **_on(
        "etag",
        {"quotes": _repeated(b"'", b"W/\"datetime'"), "blanks": _repeated(b" ", b'W/"')},
        HEADERS,
    ),
    **_on(
        "authorization",
        {
            "a scheme": _repeated(b"a", b"a/T\nauthorization: "),
            "colons": _repeated(b":", b"a/T\nauthorization: SharedKey "),
            "a token": _repeated(b"a.", b"a/T\nauthorization: Bearer "),
        },
        HEADERS,
    ),
    **_on(
        "signed-header",
        {
            "a date": _repeated(b"1 ", b"a/T\nx-ms-date: "),
            "commas in a date": _repeated(b",", b"a/T\nx-ms-date: Wed"),
            "colons in a date": _repeated(b"1:", b"a/T\nx-ms-date: Wed, 27 Dec 2017 "),
            "a zone": _repeated(b"1", b"a/T\nx-ms-date: Wed, 27 Dec 2017 19:33:20 +"),
        },
        HEADERS,
    ),
    **_on(
        "sas",
        {
            "an address": _repeated(b"1.", b"sv=2019-02-02&tn=T&sp=r&se=2034-05-06&sip="),
            "an address of IPv6": _repeated(b"1:", b"sv=2019-02-02&tn=T&sp=r&se=2034-05-06&sip="),
            "permissions": _repeated(b"r", b"sv=2019-02-02&tn=T&se=2034-05-06&sp="),
            "an expiry": _repeated(b"2", b"sv=2019-02-02&tn=T&sp=r&se="),
            "a range of keys": _repeated(b"%00", b"sv=2019-02-02&tn=T&sp=r&se=2034-05-06&spk="),
        },
        URL,
    ),
    **_on(
        "service-properties",
        {
            "origins": _numbered(b"http://a%06d.example,", _CORS, _CORS_END),
            "commas": _repeated(b",", _CORS, _CORS_END),
            "blanks": _repeated(b" ", _CORS, _CORS_END),
        },
        BODY,
    ),
    **_on(
        "token-of-a-user",
        {"dots": _repeated(b"a."), "a payload": _repeated(b"e30", b"e30.", b".AA")},
        HEADERS,
    ),
}
"""Every kind, by the name of its parser and its own name."""
