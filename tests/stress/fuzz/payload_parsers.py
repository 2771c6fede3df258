"""The parsers of bodies: entities in JSON and Atom, table names, XML of the service, batches.

An entity is stored, written in every form and read again; policies are written and read again.
"""

import re
from typing import Final

from stress.fuzz.parser import ACCOUNT, NOW, Parser
from tablestone.model.entity import Entity
from tablestone.model.entity_json import (
    entity_renderer,
    in_ordinal_order,
    read_raw,
    select_members,
    split_members,
    typed_properties,
    version_of,
    without_metadata,
)
from tablestone.model.keys import EntityKey
from tablestone.model.operations import Projection, SignedIdentifier
from tablestone.wire import atom_payload, json_payload, service_resources
from tablestone.wire.address import format_table_path
from tablestone.wire.batch import BatchRequest, parse_batch
from tablestone.wire.encode import PayloadWriter
from tablestone.wire.messages import RawRequest
from tablestone.wire.negotiate import AtomForm, MetadataLevel
from tablestone.wire.xml_input import parse_xml

BASE: Final = f"http://127.0.0.1:10002/{ACCOUNT}/"
KEY: Final = EntityKey("p", "r")
_WRITERS: Final[tuple[PayloadWriter, ...]] = (
    *(json_payload.JsonWriter(BASE, ACCOUNT, level) for level in MetadataLevel),
    atom_payload.AtomWriter(BASE, ACCOUNT, AtomForm.ODATA_3, NOW),
)
_MINIMAL: Final = json_payload.JsonWriter(BASE, ACCOUNT, MetadataLevel.MINIMAL)


def _as_json(member: str) -> str:
    """A stored member as JSON shows it, without the sign of zero; Atom keeps it (wire 5.7)."""
    return member.removesuffix("-0.0") + "0.0" if member.endswith(":-0.0") else member


def _use_entity(entity: Entity) -> None:
    """Store an entity, write it in every form, select from it, and read it again."""
    stored = entity_renderer(entity.key, in_ordinal_order(entity.members))(NOW)
    raw = read_raw(stored)
    assert version_of(stored) == NOW
    assert split_members(stored).keys() == entity.members.keys()
    names = tuple(typed_properties(raw))
    for projection in (None, Projection((*names[:3], "absent"), "s")):
        for writer in _WRITERS:
            writer.entity("Table", stored, projection)
            writer.entities("Table", [writer.listed("Table", stored, projection)], projection)
    select_members(stored, names)
    without_metadata(stored)
    again = json_payload.decode_entity(_MINIMAL.entity("Table", stored, None), None)
    assert again.key == entity.key
    assert again.members == {name: _as_json(text) for name, text in entity.members.items()}


def _parse_table_name(content: bytes) -> str:
    if content[:1] == b"{":
        return json_payload.decode_table_name(content)
    return atom_payload.decode_table_name(content)


def _use_identifiers(found: tuple[SignedIdentifier, ...]) -> None:
    written = service_resources.write_signed_identifiers(found)
    assert service_resources.read_signed_identifiers(written) == found


def _parse_properties(content: bytes) -> object:
    """Service properties, in a version that supports them."""
    is_old = b"<Metrics>" in content
    return service_resources.read_service_properties(
        content, "2012-02-12" if is_old else "2019-02-02"
    )


def _parse_batch(content: bytes) -> BatchRequest:
    """The first line is the Content-Type."""
    content_type, _, body = content.partition(b"\n")
    return parse_batch(content_type, body, RawRequest("POST", b"/account/$batch", b"", {}))


def _use_batch(batch: BatchRequest) -> None:
    for part in batch.parts:
        assert part.request.raw_path.startswith(b"/")
        assert not re.search(rb"[\r\n\0]", part.content_id or b""), "it breaks the answer"


_JSON_WORDS = (
    *(
        b'"PartitionKey":',
        b'"RowKey":',
        b'"Timestamp":',
        b'@odata.type":',
        b'"odata.etag":',
        b"null",
    ),
    *(b'"Edm.Int64"', b'"Edm.Double"', b'"Edm.Guid"', b'"Edm.Binary"', b'"Edm.DateTime"', b"NaN"),
    *(b'"Edm.GeographyPoint"', b'"Infinity"', b"\\ud800", b"\\u003a", b"true", b"1e999", b"-0.0"),
)
_XML_WORDS = (
    *(
        b"<d:a>",
        b"</d:a>",
        b'm:type="Edm.Int64"',
        b'm:null="true"',
        b"<!DOCTYPE e>",
        b"<![CDATA[",
        b"]]>",
    ),
    *(b"&lt;", b"&#0;", b"&#xD800;", b"xmlns:d=", b"<?x ?>", b"<!--", b"-->", b"/>", b'"', b"&x;"),
)
_ENTRY = (
    b'<entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
    b'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content><m:properties>'
    b"<d:PartitionKey>p</d:PartitionKey><d:RowKey>r</d:RowKey><d:TableName>Table</d:TableName>"
    b'<d:n m:type="Edm.Int64">5</d:n><d:f m:type="Edm.Double">-0</d:f></m:properties></content></entry>'
)
_CHANGE_SET = (
    b"multipart/mixed; boundary=b\n--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n"
    b"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"POST http://h/devstoreaccount1/Table HTTP/1.1\r\nContent-ID: 1\r\nContent-Length: 2\r\n\r\n{}\r\n--c\r\n"
    b"Content-Type: application/http\r\n\r\nDELETE /devstoreaccount1/Table(PartitionKey='p',RowKey='r') HTTP/1.1\r\n"
    b"If-Match: *\r\n\r\n\r\n--c--\r\n--b--\r\n"
)
_LONE_QUERY = (
    b'multipart/mixed; boundary="b"\n--b\nContent-Type: application/http\n\n'
    b"GET /devstoreaccount1/Table() HTTP/1.1\n\n\n--b--\n"
)
_CORS = (
    b"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>http://a.example,*</AllowedOrigins><AllowedMethods>"
    b"GET,PUT</AllowedMethods><MaxAgeInSeconds>5</MaxAgeInSeconds><ExposedHeaders>x-ms-*</ExposedHeaders>"
    b"<AllowedHeaders>*</AllowedHeaders></CorsRule></Cors>"
    b"</StorageServiceProperties>"
)
_METRICS = (
    b"<StorageServiceProperties><Logging><Version>1.0</Version><Read>true</Read><Write>true</Write><Delete>true"
    b"</Delete><RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy></Logging><HourMetrics><Version>"
    b"1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>false</Enabled>"
    b"</RetentionPolicy></HourMetrics></StorageServiceProperties>"
)

PAYLOAD_PARSERS: Final[dict[str, Parser]] = {
    "json-entity": Parser(
        lambda content: json_payload.decode_entity(content, None),
        (
            b'{"PartitionKey":"p","RowKey":"r","s":"x","n":1,"d":1.5,"b":true,"z":null}',
            b'{"PartitionKey":"p","RowKey":"r","l@odata.type":"Edm.Int64","l":"5","g@odata.type":"Edm.Guid",'
            b'"g":"00000000-0000-0000-0000-000000000001","t@odata.type":"Edm.DateTime","t":"2017-01-05T03:25:45Z"}',
            b'{"odata.etag":"W/\\"x\\"","PartitionKey":"p","RowKey":"r","y@odata.type":"Edm.Binary","y":"AAE=",'
            b'"o@odata.type":"Edm.GeographyPoint","o":{"type":"Point","coordinates":[1,2]}}',
        ),
        _JSON_WORDS,
        use=_use_entity,
    ),
    "json-entity-at-a-key": Parser(
        lambda content: json_payload.decode_entity(content, KEY),
        (b'{"s":"x","d@odata.type":"Edm.Double","d":"NaN"}', b"{}"),
        _JSON_WORDS,
        use=_use_entity,
    ),
    "atom-entity": Parser(
        lambda content: atom_payload.decode_entity(content, None),
        (_ENTRY,),
        _XML_WORDS,
        use=_use_entity,
    ),
    "table-name": Parser(
        _parse_table_name, (b'{"TableName":"Table"}', _ENTRY), _XML_WORDS, use=format_table_path
    ),
    "xml": Parser(parse_xml, (b'<a b="c"><d/>e&amp;</a>',), _XML_WORDS),
    "signed-identifiers": Parser(
        service_resources.read_signed_identifiers,
        (
            b"<SignedIdentifiers><SignedIdentifier><Id>a</Id><AccessPolicy><Start>2017-01-05</Start><Expiry>"
            b"2018-01-05T03:25:45.1234567Z</Expiry><Permission>raud</Permission></AccessPolicy></SignedIdentifier>"
            b"</SignedIdentifiers>",
        ),
        _XML_WORDS,
        use=_use_identifiers,
    ),
    "service-properties": Parser(_parse_properties, (_CORS, _METRICS), _XML_WORDS),
    "key-info": Parser(
        service_resources.read_key_info,
        (
            b"<KeyInfo><Start>2017-01-05T03:25:45Z</Start><Expiry>2017-01-06T03:25:45Z</Expiry></KeyInfo>",
        ),
        _XML_WORDS,
    ),
    "batch": Parser(
        _parse_batch,
        (_CHANGE_SET, _LONE_QUERY),
        (
            b"--b",
            b"--c",
            b"--",
            b"boundary=",
            b"Content-Length: 4\r\n",
            b"HTTP/1.1",
            b"Content-ID: ",
            b"\r\n\r\n",
        ),
        use=_use_batch,
    ),
}
