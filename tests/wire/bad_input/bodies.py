"""Bad bodies: their framing, their encoding, their JSON and their XML.

The source of a row is a section of the specification ("wire", "auth"), or of HTTP itself ("RFC 9110", "RFC 9112"). If
the specification allows several codes, the row names all of them.
"""

from hostile_xml import HOSTILE
from wire.bad_input.bad_request import INSERT, TABLE, BadRequest, plain


def entity(members: bytes) -> bytes:
    return b'{"PartitionKey":"p","RowKey":"new",' + members + b"}"


FRAMING = (
    plain("torn body", "RFC 9112 8", body=INSERT[:20], content_length="41", torn=True),
    plain("torn body, none of it", "RFC 9112 8", content_length="41", torn=True),
    plain(
        "torn body of chunks",
        "RFC 9112 8",
        body=b"29\r\n" + INSERT[:20],
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    plain(
        "torn between two chunks, the JSON being whole",
        "RFC 9112 8",
        body=b"29\r\n" + INSERT + b"\r\n",
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    plain(
        "a chunk whose size is no number",
        "RFC 9112 7.1",
        body=b"many\r\n" + INSERT + b"\r\n0\r\n\r\n",
        content_length="",
        more_headers=(("Transfer-Encoding", "chunked"),),
        torn=True,
    ),
    BadRequest(
        "Content-Length too long: the next request's first line is swallowed",
        "wire 5.5",
        body=INSERT + b"GET / HTTP/1.1\r\n\r\n",
        content_length=str(len(INSERT) + 18),
    ),
    # The bytes after the body are not HTTP, and end the connection; their answer may come first.
    plain("Content-Length too short", "RFC 9112 6.3", body=INSERT, content_length="30"),
    plain("Content-Length of nothing", "RFC 9112 6.3", body=INSERT, content_length="0"),
    BadRequest(
        "a Content-Length over 4 MiB, and nothing of it comes",
        "wire 9",
        codes=("RequestBodyTooLarge",),
        statuses=(413,),
        body=INSERT,
        content_length="1099511627776",
    ),
    BadRequest(
        "no Content-Length",
        "wire 2.1, 11.2",
        codes=("MissingContentLengthHeader",),
        statuses=(411,),
        content_length="",
    ),
    plain("Content-Length no number", "RFC 9112 6.3", body=INSERT, content_length="many"),
    plain("Content-Length negative", "RFC 9112 6.3", body=INSERT, content_length="-1"),
    plain(
        "Content-Length beyond 64 bits",
        "RFC 9112 6.3",
        body=INSERT,
        content_length="99999999999999999999999",
    ),
    plain(
        "two Content-Lengths that differ",
        "RFC 9112 6.3",
        body=INSERT,
        more_headers=(("Content-Length", "5"),),
    ),
    BadRequest(
        "a body one byte over 4 MiB",
        "wire 9",
        codes=("RequestBodyTooLarge",),
        statuses=(413,),
        body=entity(b'"s":"' + b"x" * (4 * 1024 * 1024 - 41 + 1) + b'"'),
    ),
)

ENCODING = (
    BadRequest("invalid UTF-8 in a value", "wire 5.5", body=entity(b'"s":"\xff\xfe"')),
    BadRequest("UTF-8 cut within a character", "wire 5.5", body=entity(b'"s":"\xe2\x82"')),
    BadRequest("overlong UTF-8", "wire 5.5", body=entity(b'"s":"\xc0\xaf"')),
    BadRequest("a surrogate as UTF-8", "wire 5.5", body=entity(b'"s":"\xed\xa0\x80"')),
    BadRequest("a body in UTF-16", "wire 5.5", body=INSERT.decode().encode("utf-16")),
    BadRequest("a lone high surrogate", "wire 5.5", body=entity(b'"s":"\\ud800"')),
    BadRequest("a lone low surrogate", "wire 5.5", body=entity(b'"s":"\\udc00"')),
    BadRequest("surrogates in wrong order", "wire 5.5", body=entity(b'"s":"\\udc00\\ud800"')),
    BadRequest(
        "a lone surrogate in a name",
        "wire 5.5, 9",
        codes=("InvalidInput", "PropertyNameInvalid"),
        body=entity(b'"a\\ud800":1'),
    ),
    BadRequest(
        "a lone surrogate in a key", "wire 5.5", body=b'{"PartitionKey":"p","RowKey":"\\ud800"}'
    ),
    BadRequest(
        "invalid UTF-8 in the URL's key",
        "wire 1.2, 1.3",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='%FF')",
        body=b"{}",
    ),
    BadRequest(
        "a surrogate as UTF-8 in the URL's key",
        "wire 1.2, 1.3",
        method="PUT",
        path=f"/{TABLE}(PartitionKey='p',RowKey='%ED%A0%80')",
        body=b"{}",
    ),
    BadRequest(
        "invalid UTF-8 in a filter",
        "wire 6.5",
        method="GET",
        path=f"/{TABLE}()?$filter=s%20eq%20'%FF'",
        content_type="",
    ),
)

SYNTAX = (
    BadRequest("a body that is empty", "wire 5.5"),
    BadRequest("JSON cut short", "wire 5.5", body=INSERT[:-1]),
    BadRequest("JSON with more after it", "wire 5.5", body=INSERT + b"{}"),
    BadRequest("a list where an entity belongs", "wire 5.5", body=b"[" + INSERT + b"]"),
    BadRequest("a text where an entity belongs", "wire 5.5", body=b'"entity"'),
    BadRequest("null where an entity belongs", "wire 5.5", body=b"null"),
    BadRequest("a bare NaN", "wire 5.3, 5.5", body=entity(b'"d":NaN')),
    BadRequest("a double that overflows", "wire 5.3", body=entity(b'"d":1e400')),
    BadRequest("100,000 digits", "wire 5.3", body=entity(b'"d":' + b"9" * 100_000)),
    BadRequest("a list as a value", "wire 5.4", body=entity(b'"l":[1]')),
    BadRequest("an object as a value", "wire 5.4", body=entity(b'"o":{"a":1}')),
    BadRequest(
        "lists 100,000 deep", "wire 5.5", body=entity(b'"l":' + b"[" * 100_000 + b"]" * 100_000)
    ),
    BadRequest(
        "objects 100,000 deep",
        "wire 5.5",
        body=entity(b'"o":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ),
    BadRequest("lists 100,000 deep, never closed", "wire 5.5", body=b"[" * 100_000),
    BadRequest(
        "a point whose coordinates are 100,000 deep",
        "the GeographyPoint extension",
        body=entity(
            b'"g@odata.type":"Edm.GeographyPoint","g":{"type":"Point","coordinates":'
            + b"[" * 100_000
            + b"]" * 100_000
            + b"}"
        ),
    ),
)

DUPLICATES = tuple(
    BadRequest(
        f"the same member twice: {name}",
        "wire 5.5",
        codes=("DuplicatePropertiesSpecified",),
        body=body,
    )
    for name, body in (
        ("a property", entity(b'"a":1,"a":2')),
        ("a property with the same value", entity(b'"a":1,"a":1')),
        ("a property, once in escapes", entity(b'"a":1,"\\u0061":2')),
        ("a property, once null", entity(b'"a":1,"a":null')),
        ("a property, where another holds a colon", entity(b'"b":":","a":1,"a":2')),
        ("a property, where another holds an escaped colon", entity(b'"b":"\\u003a","a":1,"a":2')),
        (
            "a property, where another holds an escaped colon in capitals",
            entity(b'"b":"\\u003A","a":1,"a":2'),
        ),
        ("a property, once before a blank and a colon", entity(b'"a":1,"a" :2')),
        ("an annotation", entity(b'"a@odata.type":"Edm.Int64","a@odata.type":"Edm.Guid","a":"1"')),
        ("the RowKey", entity(b'"RowKey":"other"')),
        ("the PartitionKey", entity(b'"PartitionKey":"p"')),
    )
)

ENTRY = (
    b'<entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
    b'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content><m:properties>'
    b"<d:PartitionKey>p</d:PartitionKey><d:RowKey>new</d:RowKey>%b</m:properties></content></entry>"
)
XML = tuple(
    BadRequest(
        f"Atom: {name}",
        "wire 5.7",
        content_type="application/atom+xml",
        version="2015-07-08",
        body=body,
    )
    for name, body in (
        *HOSTILE.items(),
        (
            "an external entity",
            b'<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + ENTRY % b"<d:a>&x;</d:a>",
        ),
        (
            "a document type elsewhere",
            b'<!DOCTYPE e SYSTEM "http://127.0.0.1:9/e.dtd">' + ENTRY % b"",
        ),
        ("an entity that is not declared", ENTRY % b"<d:a>&nbsp;</d:a>"),
        ("not closed", ENTRY[:-8] % b""),
        ("bytes that are no UTF-8", ENTRY % b"<d:a>\xff</d:a>"),
        ("a NUL", ENTRY % b"<d:a>\0</d:a>"),
        ("a prefix that is not declared", ENTRY % b"<x:a>1</x:a>"),
        ("JSON", INSERT),
        ("nothing", b""),
        (
            "10,000 properties",
            ENTRY % b"".join(b"<d:p%d>1</d:p%d>" % (n, n) for n in range(10_000)),
        ),
    )
)

CASES = FRAMING + ENCODING + SYNTAX + DUPLICATES + XML
