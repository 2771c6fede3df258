"""Decoding: checks a request's method, address, headers, parameters and body, and turns them into an operation.

The operation is valid by construction: later steps do not check it again. `routes` has the function here that decodes a
method on a kind of resource. Knows HTTP and the service's rules for values; does not know what is stored.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn

from tablestone import limits
from tablestone.limits import EntityLimits
from tablestone.model.edm import EdmType
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.etag import parse_etag
from tablestone.model.filter_tree import FilterNode, property_names
from tablestone.model.keys import (
    TABLE_NAME,
    EntityKey,
    require_key_length,
    require_new_table_name,
    table_name_error,
)
from tablestone.model.operations import (
    EXAMINED_HEADER,
    IF_MATCH_ANY,
    PARTIAL_HEADER,
    CountForm,
    CreateTable,
    DeleteEntity,
    DeleteTable,
    GetEntity,
    GetTable,
    IfMatch,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    Operation,
    Projection,
    QueryEntities,
    QueryTables,
    ReadConditions,
    UpdateEntity,
)
from tablestone.query.filter_parser import ENTITY_PROPERTIES, TABLE_PROPERTIES, parse_filter
from tablestone.wire import atom_payload, json_payload
from tablestone.wire.address import Address, AddressKind, Parameters, select_as_sent
from tablestone.wire.continuation import parse_entity_token, parse_table_token
from tablestone.wire.messages import NO_CONTENT_TYPE, RawRequest
from tablestone.wire.negotiate import ATOM_TYPES, RETURN_NO_CONTENT, Negotiated
from tablestone.wire.versions import VERSION_JSON, VERSION_JSON_ONLY, VERSION_UPSERTS

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "MERGE", "PATCH", "DELETE", "OPTIONS"))
_WITHOUT_ANSWER_BODY: Final = frozenset(("HEAD", "DELETE", "PUT", "MERGE", "PATCH"))
_TUNNELLED: Final = frozenset(("MERGE", "PUT", "DELETE", "PATCH"))
ORDER_BY: Final = "$orderby"
_UNSUPPORTED_OPTIONS: Final = frozenset(
    (
        *(ORDER_BY, "$skip", "$expand", "$count", "$inlinecount"),
        *("$skiptoken", "$apply", "$search", "$compute"),
    )
)
_VERSION_OF_BARE_DELETE: Final = "2019-02-02"
"""The one version whose answer to a DELETE without If-Match is known (wire 3.10)."""
_NO_ETAGS: Final = (
    "If-Match or If-None-Match headers cannot be specified if the target type does not have etag "
    "properties defined."
)
_BOTH_CONDITIONS: Final = (
    "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. Please specify either one of "
    "the headers or none of them."
)


class DecodedRequest(NamedTuple):
    """The input of decoding: a request whose address is parsed and whose body is read."""

    raw: RawRequest
    method: str
    """The method that is meant (`effective_method`)."""
    address: Address
    parameters: Parameters
    body: bytes
    version: str
    is_part: bool = False
    """Whether the request is part of a batch."""
    extended: bool = False
    """Whether the server has the extensions of queries."""
    entity_limits: EntityLimits = limits.OF_SERVICE

    @property
    def is_count(self) -> bool:
        return self.address.kind is AddressKind.COUNT and self.extended and self.method == "GET"

    def filter(self, declared: Mapping[str, EdmType] = ENTITY_PROPERTIES) -> FilterNode | None:
        text = self.parameters.get("$filter", "")
        return parse_filter(text, declared=declared, extended=self.extended)


def effective_method(request: RawRequest) -> str:
    """The method of the request. X-HTTP-Method replaces POST, and may only repeat any other (wire 3.10)."""
    if request.method not in _METHODS:
        raise StorageError("InvalidHttpVerb")
    tunnelled = request.headers.get(b"x-http-method")
    if tunnelled is None:
        return request.method
    meant = tunnelled.decode("latin-1").strip().upper()
    if meant == request.method:
        return meant
    if request.method != "POST":
        raise StorageError("XMethodNotUsingPost")
    if "," in meant:
        raise StorageError("XMethodIncorrectCount")
    if meant not in _TUNNELLED:
        raise StorageError("XMethodIncorrectValue")
    return meant


def require_answerable(method: str, negotiated: Negotiated) -> None:
    """Raise for a form that the answer's body cannot have."""
    if negotiated.refusal is None or method in _WITHOUT_ANSWER_BODY:
        return
    if method != "POST" or negotiated.preference != RETURN_NO_CONTENT:
        raise StorageError(negotiated.refusal)


def require_supported_options(parameters: Parameters, extension: str = "") -> None:
    """Raise `NotImplemented` for a query option that the service does not have, except for an extension's."""
    for name in parameters:
        if name in _UNSUPPORTED_OPTIONS and name != extension:
            raise StorageError("NotImplemented")
    timeout = parameters.get("timeout")
    if timeout is not None and not (timeout.isascii() and timeout.isdecimal()):
        raise StorageError("InvalidQueryParameterValue")


def table_in_url(address: Address) -> str:
    """The table that an entity operation names; raises if it is not a valid name (wire 1.4)."""
    if not TABLE_NAME.fullmatch(address.table):
        raise table_name_error(address.table)
    return address.table


class _Reader(NamedTuple):
    table_name: Callable[[bytes], str]
    entity: Callable[[bytes, EntityKey | None, EntityLimits], Entity]


_JSON: Final = _Reader(json_payload.decode_table_name, json_payload.decode_entity)
_ATOM: Final = _Reader(atom_payload.decode_table_name, atom_payload.decode_entity)


def _reader(decoded: DecodedRequest) -> _Reader:
    content_type = decoded.raw.headers.get(b"content-type")
    if not content_type and not decoded.body:
        raise json_payload.unreadable()
    if not content_type:
        raise StorageError("InvalidInput", NO_CONTENT_TYPE)
    find = _reader_for_short if len(content_type) <= _SHORT else _reader_for
    return find(content_type, decoded.version)


def _reader_for(content_type: bytes, version: str) -> _Reader:
    """The reader for a Content-Type; raises the form's own error if the version lacks the form (wire 5.1)."""
    media_type = content_type.split(b";", 1)[0].strip().lower().decode("latin-1")
    if media_type == "application/json":
        if version < VERSION_JSON:
            raise StorageError("JsonFormatNotSupported")
        return _JSON
    if media_type in ATOM_TYPES:
        if version >= VERSION_JSON_ONLY:
            raise StorageError("AtomFormatNotSupported")
        return _ATOM
    raise StorageError("MediaTypeNotSupported")


_SHORT: Final = 512
"""Bytes of the longest Content-Type, and of the longest query with `$select`, that are cached parsed."""
_reader_for_short = functools.lru_cache(maxsize=256)(_reader_for)


def _if_match(request: RawRequest, method: str) -> IfMatch | None:
    """The condition of a write, from If-Match (wire 4)."""
    if_match = request.text(b"if-match")
    if b"if-none-match" in request.headers:
        text = f"If-None-Match HTTP header cannot be specified for {method} operations."
        raise StorageError("InvalidInput", text if if_match is None else _BOTH_CONDITIONS)
    if if_match is None:
        return None
    if_match = if_match.strip()
    if not if_match:
        raise StorageError("InvalidInput", early=False)
    return IF_MATCH_ANY if if_match == "*" else parse_etag(if_match)


def _refuse_conditions(request: RawRequest) -> None:
    """Tables have no ETags (wire 4)."""
    if b"if-match" in request.headers or b"if-none-match" in request.headers:
        raise StorageError("InvalidInput", _NO_ETAGS)


def _top(parameters: Parameters) -> int:
    """`$top`: 0 to 1000 (wire 6.7)."""
    text = parameters.get("$top")
    if text is None:
        return limits.PAGE_ENTITIES_MAX
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or int(text) > limits.PAGE_ENTITIES_MAX:
        raise StorageError("InvalidInput", early=False)
    return int(text)


def _projection(decoded: DecodedRequest) -> Projection | None:
    """`$select`, if it was sent; a blank value or `*` selects everything (wire 5.6)."""
    text = decoded.parameters.get("$select")
    if text is None:
        return None
    if decoded.version < VERSION_UPSERTS:
        raise StorageError("NotImplemented")
    query_string = decoded.raw.query_string
    if len(query_string) + len(text) > _SHORT:
        return _projection_of(text, query_string)
    return _projection_of_short(text, query_string)


def _projection_of(text: str, query_string: bytes) -> Projection:
    if not text.strip():
        return Projection(None, "")
    return Projection(_select(text), select_as_sent(query_string))


def _select(text: str) -> tuple[str, ...] | None:
    if _NO_IDENTIFIER.match(text):
        raise StorageError("InvalidInput", "An identifier was expected at position 0.")
    listed = text.removesuffix(",")  # one comma at the end names nothing
    names = {name.strip() for name in listed.split(",")}
    if len(names) > limits.SELECT_NAMES_MAX or "" in names:
        raise StorageError("InvalidInput")
    if "*" in names:
        return None
    # Control information such as `odata.etag` is no property: `$select` neither adds nor removes it (wire 5.2).
    selected = (name for name in names if "@" not in name and not name.startswith("odata."))
    return tuple(sorted(selected, key=_order_in_answer))


_SYSTEM_FIRST: Final = ("PartitionKey", "RowKey", "Timestamp")


def _order_in_answer(name: str) -> tuple[int, bytes]:
    """Sorts the system properties first, in their order, then the rest in ordinal order."""
    rank = _SYSTEM_FIRST.index(name) if name in _SYSTEM_FIRST else len(_SYSTEM_FIRST)
    return rank, name.encode("utf-16-be", "surrogatepass")


_NO_IDENTIFIER: Final = re.compile(r"\s*(?:\d|[^\w\s*])")
_projection_of_short = functools.lru_cache(maxsize=256)(_projection_of)


def get_table(decoded: DecodedRequest) -> Operation:
    return GetTable(decoded.address.table)


def create_table(decoded: DecodedRequest) -> Operation:
    _refuse_conditions(decoded.raw)
    name = _reader(decoded).table_name(decoded.body)
    require_new_table_name(name)
    return CreateTable(name)


def delete_table(decoded: DecodedRequest) -> Operation:
    _refuse_conditions(decoded.raw)
    return DeleteTable(decoded.address.table)


def query_tables(decoded: DecodedRequest) -> Operation:
    parameters = decoded.parameters
    filter_node = decoded.filter(TABLE_PROPERTIES)
    if not property_names(filter_node) <= TABLE_PROPERTIES.keys():
        raise StorageError("InvalidInput")
    return QueryTables(filter_node, _top(parameters), parse_table_token(parameters))


_EXAMINED: Final = EXAMINED_HEADER.encode("ascii")


def query_entities(decoded: DecodedRequest) -> Operation:
    parameters = decoded.parameters
    reverse = decoded.extended and _is_reverse(parameters)
    return QueryEntities(
        table_in_url(decoded.address),
        decoded.filter(),
        _top(parameters),
        _projection(decoded),
        parse_entity_token(parameters, reverse=reverse),
        counts_examined=_EXAMINED in decoded.raw.headers,
        reverse=reverse,
    )


_ORDER: Final = re.compile(r"\s*PartitionKey(?:\s+(asc|desc))?\s*,\s*RowKey(?:\s+(asc|desc))?\s*")
_ORDERS: Final = (
    "Entities are in the order of their keys, or with '$orderby=PartitionKey desc,RowKey desc' in the reverse order. "
    "No other order is implemented."
)


def _is_reverse(parameters: Parameters) -> bool:
    """Whether `$orderby`, an extension, asks for the last keys first. Both keys have the same direction."""
    text = parameters.get(ORDER_BY)
    if text is None:
        return False
    match = _ORDER.fullmatch(text)
    if match is None or (match[1] or "asc") != (match[2] or "asc"):
        raise StorageError("NotImplemented", _ORDERS)
    return match[1] == "desc"


_PARTIAL: Final = PARTIAL_HEADER.encode("ascii")
_NOT_OF_COUNTS: Final = ("$top", "$select")


def count_entities(decoded: DecodedRequest) -> Operation:
    for name in _NOT_OF_COUNTS:
        if name in decoded.parameters:
            raise StorageError("InvalidInput", f"A count has no query option {name}.")
    is_partial = decoded.raw.headers.get(_PARTIAL, b"").strip().lower() == b"true"
    return QueryEntities(
        table_in_url(decoded.address),
        decoded.filter(),
        limits.PAGE_ENTITIES_MAX,
        None,
        parse_entity_token(decoded.parameters),
        counts_examined=_EXAMINED in decoded.raw.headers,
        counts=CountForm.PARTIAL if is_partial else CountForm.WHOLE,
    )


def get_entity(decoded: DecodedRequest) -> Operation:
    table = table_in_url(decoded.address)
    parameters, headers = decoded.parameters, decoded.raw.headers
    filter_node = projection = None
    if parameters:
        filter_node = decoded.filter()
        projection = _projection(decoded)
    if filter_node is None and b"if-match" not in headers and b"if-none-match" not in headers:
        return GetEntity(table, decoded.address.key, projection)
    tags = [decoded.raw.text(name) for name in (b"if-match", b"if-none-match")]
    if None not in tags:
        raise StorageError("InvalidInput", _BOTH_CONDITIONS)
    match, none_match = (
        None if text is None else IF_MATCH_ANY if text.strip() == "*" else parse_etag(text.strip())
        for text in tags
    )
    conditions = ReadConditions(filter_node, match, none_match)
    return GetEntity(table, decoded.address.key, projection, conditions)


def insert(decoded: DecodedRequest) -> Operation:
    """An insert; its If-Match header is ignored (wire 14 row 21)."""
    table = table_in_url(decoded.address)
    entity = _reader(decoded).entity(decoded.body, None, decoded.entity_limits)
    require_key_length(entity.key)
    return InsertEntity(table, entity)


def _entity_write(
    decoded: DecodedRequest,
    method: str,
    under_condition: Callable[[str, Entity, IfMatch], Operation],
    upsert: Callable[[str, Entity], Operation],
) -> Operation:
    table = table_in_url(decoded.address)
    if_match = _if_match(decoded.raw, method)
    if if_match is None and decoded.version < VERSION_UPSERTS:
        raise StorageError("MissingRequiredHeader")
    entity = _reader(decoded).entity(decoded.body, decoded.address.key, decoded.entity_limits)
    if if_match is not None:  # no entity with too long a key is found (wire 9)
        return under_condition(table, entity, if_match)
    require_key_length(entity.key)
    return upsert(table, entity)


def replace(decoded: DecodedRequest) -> Operation:
    return _entity_write(decoded, "PUT", UpdateEntity, InsertOrReplaceEntity)


def merge(decoded: DecodedRequest) -> Operation:
    return _entity_write(decoded, "MERGE", MergeEntity, InsertOrMergeEntity)


def delete_entity(decoded: DecodedRequest) -> Operation:
    table = table_in_url(decoded.address)
    if_match = _if_match(decoded.raw, "DELETE")
    if if_match is None:
        is_alone = decoded.raw.method == "DELETE" and not decoded.is_part
        is_known = is_alone and decoded.version == _VERSION_OF_BARE_DELETE
        raise StorageError("InvalidInput" if is_known else "MissingRequiredHeader")
    return DeleteEntity(table, decoded.address.key, if_match)


def read_below_entity_set(decoded: DecodedRequest) -> NoReturn:
    """Refused late, as recorded (wire 1.2)."""
    table_in_url(decoded.address)
    raise StorageError("NotImplemented", early=False)


def not_implemented(_decoded: DecodedRequest) -> NoReturn:
    raise StorageError("NotImplemented")
