"""Entities from dataclasses and back: one function each way.

A dataclass has the fields `partition_key` and `row_key`; each other field is a property of its name, of the EDM type
that its annotation says:

    str, bool, bytes, uuid.UUID, float   Edm.String, Boolean, Binary, Guid, Double
    int, Int64                           Edm.Int32, Edm.Int64
    datetime                             Edm.DateTime; it needs a zone, and is read in UTC
    Decimal, an Enum                     Edm.String: the digits as they are, the member's name
    T | None                             as T; None is not stored, so it is refused where a default is another

What has another type is refused, rather than stored as something that does not come back.
"""

import dataclasses
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from azure.data.tables import EdmType, EntityProperty

Int64 = Annotated[int, EdmType.INT64]
"""The type of a field whose ints have 64 bits; a plain `int` has 32, as the service's clients have it."""

_KEYS: Final = {"partition_key": "PartitionKey", "row_key": "RowKey"}
_PLAIN: Final = (str, bool, bytes, UUID)
_Made = TypeVar("_Made")


class FieldError(ValueError):
    """A field that cannot be stored, or a property that is no value of its field."""


def to_entity(value: Any) -> dict[str, Any]:
    """The entity of a dataclass's instance. Raises `FieldError` for a value that its field's type does not allow."""
    entity = {}
    hints = _fields_of(type(value))
    defaults = {
        field.name
        for field in dataclasses.fields(value)
        if field.default is not None and not _is_required(field)
    }
    for name, hint in hints.items():
        stored = getattr(value, name)
        kind, optional = _kind_of(name, hint)
        if stored is None and optional:
            if name in defaults:
                raise FieldError(f"{name}: None is not stored, and would come back as the default.")
            continue
        try:
            entity[_KEYS.get(name, name)] = _to_property(kind, stored)
        except (TypeError, ValueError, OverflowError) as error:
            raise FieldError(f"{name}: {error}") from None
    return entity


def from_entity(made: type[_Made], entity: Mapping[str, Any]) -> _Made:
    """The instance of a dataclass that an entity holds. Properties without a field are left out.

    Raises `FieldError` for a property of another type, and for a missing one whose field has no default.
    """
    given: dict[str, Any] = {}
    required = {
        field.name
        for field in dataclasses.fields(made)  # type: ignore[arg-type]  # `_fields_of` checks it
        if _is_required(field)
    }
    for name, hint in _fields_of(made).items():
        kind, optional = _kind_of(name, hint)
        stored = entity.get(_KEYS.get(name, name))
        if stored is None:
            if name in required and not optional:
                raise FieldError(f"{name}: the entity has no such property.")
            if name in required:
                given[name] = None
            continue
        try:
            given[name] = _from_property(kind, stored)
        except (TypeError, ValueError, KeyError, InvalidOperation):
            raise FieldError(f"{name}: {stored!r} is no {_name_of(kind)}.") from None
    return made(**given)


def _fields_of(made: type) -> dict[str, Any]:
    if not dataclasses.is_dataclass(made):
        raise TypeError(f"{made!r} is no dataclass.")
    hints = get_type_hints(made, include_extras=True)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(made) if field.init}
    if missing := set(_KEYS) - set(fields):
        raise TypeError(f"{made.__name__} has no field {' and no field '.join(sorted(missing))}.")
    if taken := {*_KEYS.values(), "Timestamp"} & set(fields):
        raise TypeError(f"{min(taken)}: the service has this property itself.")
    return fields


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _kind_of(name: str, hint: Any) -> tuple[Any, bool]:
    """The type of a field without None, and whether None is allowed."""
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        others = [each for each in get_args(hint) if each is not type(None)]
        optional = len(others) < len(get_args(hint))
        hint = others[0] if len(others) == 1 else hint
    if not _is_enum(hint) and hint not in (*_PLAIN, int, Int64, float, datetime, Decimal):
        raise TypeError(f"{name}: no EDM type is known for {hint!r}.")
    if name in _KEYS and (optional or not (_is_enum(hint) or hint in (str, Decimal))):
        raise TypeError(f"{name}: a key is a str.")
    return hint, optional


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _to_property(kind: Any, value: Any) -> Any:
    if isinstance(value, Enum) and not (_is_enum(kind) and value.name in kind.__members__):
        # An IntEnum as an int: the client would store its name. Several members of a Flag have no name of their own.
        raise TypeError(f"{value!r} would not come back as {_name_of(kind)}.")
    if kind in (int, Int64):
        bits = 32 if kind is int else 64
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{value!r} is no int.")
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"{value} needs more than {bits} bits.")
        return value if kind is int else EntityProperty(value, EdmType.INT64)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {_name_of(kind)}.")
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{value!r} has no zone.")
        return value.astimezone(UTC)
    if isinstance(value, Decimal):
        return str(value)
    return value.name if isinstance(value, Enum) else value


def _from_property(kind: Any, stored: Any) -> Any:
    value = stored.value if isinstance(stored, EntityProperty) else stored
    if kind in (int, Int64):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if kind is int and isinstance(stored, EntityProperty):
            raise TypeError  # an Int64, which would be stored as an Int32
        return value
    if kind is datetime:
        # The client's own subclass carries the digits below a microsecond; a plain one compares and copies as usual.
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise TypeError
        return datetime.fromisoformat(value.isoformat()).astimezone(UTC)
    if kind is Decimal:
        return Decimal(value if isinstance(value, str) else None)  # type: ignore[arg-type]  # a TypeError
    if _is_enum(kind):
        return kind[value]
    if not isinstance(value, kind):
        raise TypeError
    return value


def _name_of(kind: Any) -> str:
    return "int" if kind == Int64 else str(kind.__name__)
