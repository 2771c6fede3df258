"""An entity and its properties: the rules for names and sizes (wire 9).

Keys are in `keys`, the ETag is in `etag`, an entity's JSON text is in `entity_json`. Does not know Atom, HTTP, tables
or engines.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tablestone import limits
from tablestone.limits import EntityLimits
from tablestone.model.edm import EdmType, EdmValue, utf16_length
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey

TIMESTAMP: Final = "Timestamp"


class Entity(NamedTuple):
    """An entity as a client writes it, without the server's Timestamp.

    `members` has the JSON text of each property by name, as it is stored and sent (`entity_json.member`). The text is
    made once, where the property is read, and then only copied.
    """

    key: EntityKey
    members: Mapping[str, str]


def require_property_name(name: str) -> None:
    """Raise `PropertyNameTooLong` or `PropertyNameInvalid` for a name that is not a C# identifier (wire 9)."""
    if utf16_length(name) > limits.PROPERTY_NAME_LENGTH_MAX:
        raise StorageError("PropertyNameTooLong")
    if not is_identifier(name):
        raise StorageError("PropertyNameInvalid")


def is_identifier(text: str) -> bool:
    """Whether C# and XML both accept the name (wire 9): Atom has elements of this name (XML 1.0, fifth edition)."""
    return text.isidentifier() and (text.isascii() or _NO_XML_NAME.isdisjoint(text))


_NO_XML_NAME: Final = frozenset("\u00aa\u00b5\u00ba\u2054")
"""Characters that an identifier may have and the name of an XML element may not."""


def _value_size(value: EdmValue) -> int:
    kind = value.type
    if kind is EdmType.STRING:
        assert isinstance(value.value, str)
        return 4 + 2 * utf16_length(value.value)
    if kind is EdmType.BINARY:
        assert isinstance(value.value, bytes)
        return 4 + len(value.value)
    return _FIXED_SIZES[kind]


_FIXED_SIZES: Final = {
    EdmType.DATE_TIME: 8,
    EdmType.GUID: 16,
    EdmType.DOUBLE: 8,
    EdmType.INT64: 8,
    EdmType.INT32: 4,
    EdmType.BOOLEAN: 1,
    EdmType.GEOGRAPHY_POINT: limits.GEOGRAPHY_POINT_SIZE_BYTES,
}


def entity_size(key: EntityKey, properties: Mapping[str, EdmValue]) -> int:
    """Bytes (wire 9): 4 + 2 a UTF-16 unit of the keys; for each property, 8 + 2 a unit of its name + its value."""
    size = 4 + 2 * (utf16_length(key.partition_key) + utf16_length(key.row_key))
    for name, value in properties.items():
        size += 8 + 2 * utf16_length(name) + _value_size(value)
    return size


def require_sizes(
    key: EntityKey, properties: Mapping[str, EdmValue], most: EntityLimits = limits.OF_SERVICE
) -> None:
    """Raise `EntityTooLarge` or `PropertyValueTooLarge`; the entity's size is checked first (wire 9)."""
    if entity_size(key, properties) > most.entity_bytes:
        raise StorageError("EntityTooLarge", _TOO_LARGE.format(most.entity_bytes >> 20))
    for _, content in properties.values():
        if isinstance(content, str):
            too_large = utf16_length(content) > most.string_length
        else:
            too_large = isinstance(content, bytes) and len(content) > most.binary_bytes
        if too_large:
            raise StorageError("PropertyValueTooLarge")


_TOO_LARGE: Final = "The entity is larger than the maximum allowed size ({}MB)."
