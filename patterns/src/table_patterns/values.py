"""Large values as bytes: of a mapping, JSON that keeps each property's EDM type."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from uuid import UUID

from azure.data.tables import EdmType, EntityProperty


def bytes_of(value: bytes | str | Mapping[str, Any]) -> tuple[str, bytes]:
    """The kind of a value and its bytes. Raises `TypeError` for another type, also of a property."""
    if isinstance(value, bytes):
        return "bytes", value
    if isinstance(value, str):
        return "text", value.encode("utf-8", "surrogatepass")
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is no bytes, str or mapping of properties.")
    if unnamed := [name for name in value if type(name) is not str]:
        raise TypeError(f"{unnamed[0]!r} is no name of a property.")
    typed = {name: _typed(name, each) for name, each in value.items() if each is not None}
    return "properties", json.dumps(typed).encode()


def value_of(kind: str, data: bytes) -> bytes | str | dict[str, Any]:
    """The value again; Edm.Int64 as an `EntityProperty`, as the client has it."""
    if kind == "bytes":
        return data
    if kind == "text":
        return data.decode("utf-8", "surrogatepass")
    return {name: _untyped(*each) for name, each in json.loads(data).items()}


def _typed(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, EntityProperty):
        plain = value.value
        if value.edm_type == EdmType.INT64:
            if isinstance(plain, int) and -(1 << 63) <= plain < 1 << 63:
                return EdmType.INT64.value, plain
        elif (found := _typed(name, plain))[0] == value.edm_type:
            return found
        raise TypeError(f"{name}: {plain!r} is no {value.edm_type}.")
    match value:
        case bool():
            return EdmType.BOOLEAN.value, value
        case str():
            return EdmType.STRING.value, value
        case int():
            if not -(1 << 31) <= value < 1 << 31:
                raise TypeError(f"{name}: {value} needs an EntityProperty with EdmType.INT64.")
            return EdmType.INT32.value, value
        case float():
            # JSON has no number for these, and other languages refuse Python's words.
            return EdmType.DOUBLE.value, value if isfinite(value) else json.dumps(value)
        case bytes():
            return EdmType.BINARY.value, base64.b64encode(value).decode()
        case UUID():
            return EdmType.GUID.value, str(value)
        case datetime() if value.utcoffset() is not None:
            return EdmType.DATETIME.value, value.astimezone(UTC).isoformat()
    raise TypeError(f"{name}: {value!r} has no EDM type.")


def _untyped(edm_type: str, value: Any) -> Any:
    match edm_type:
        case EdmType.INT64:
            return EntityProperty(value, EdmType.INT64)
        case EdmType.BINARY:
            return base64.b64decode(value)
        case EdmType.DOUBLE:
            return float(value)
        case EdmType.GUID:
            return UUID(value)
        case EdmType.DATETIME:
            return datetime.fromisoformat(value)
    return value
