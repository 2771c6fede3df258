"""The properties of an entity as fields of a form, and back, without loss.

A browser changes the line ends in a text area. So a text with a carriage return or another control character is edited
as a JSON string. All properties together can be edited as JSON with their types, as in the service's own answers.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from tablestone.explorer.account import property_names
from tablestone.model import entity_json
from tablestone.model.edm import EdmType, EdmValue, GeographyPoint
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools import odata
from tablestone.tools.client import RawEntity
from tablestone.tools.formats.rows import TYPE_NAMES
from tablestone.tools.odata import TypedEntity
from tablestone.tools.queries import shown_value

ESCAPED: Final = "String as JSON"
"""The type of a field whose text is a JSON string."""
EMPTY: Final = '""'
"""An empty String as JSON, and an empty Binary, in the form of a new entity: it leaves out a field without text."""
FIELD_TYPES: Final = (*TYPE_NAMES, ESCAPED)
HINTS: Final = {
    "Int32": "-2147483648 to 2147483647",
    "Int64": "a whole number of 64 bits",
    "Double": "1.5, NaN, Infinity",
    "Boolean": "true or false",
    "DateTime": "2026-01-31T12:00:00.1234567Z",
    "Guid": "00000000-0000-0000-0000-000000000000",
    "Binary": 'base64, or "" for none',
    "GeographyPoint": '{"type":"Point","coordinates":[longitude,latitude]}',
    ESCAPED: '"text with \\r\\n"',
}


OTHER_TYPE: Final = ". A property keeps its type unless {}@odata.type names another one"


class PropertyField(NamedTuple):
    """A property as it is edited. `problem` says why the text is not a value of the type."""

    name: str
    kind: str
    text: str
    problem: str = ""


class ReadForm(NamedTuple):
    """The entity of a form, or None with the reason in `problem`; and the fields, each with its own."""

    entity: TypedEntity | None
    fields: list[PropertyField]
    problem: str


class Difference(NamedTuple):
    """A property as it was shown, as it is stored now, and as it is to be written; None where it is absent."""

    name: str
    shown: PropertyField | None
    stored: PropertyField | None
    yours: PropertyField | None

    @property
    def differs(self) -> bool:
        return self.yours != self.stored

    @property
    def is_yours(self) -> bool:
        return self.yours != self.shown

    @property
    def is_theirs(self) -> bool:
        return self.stored != self.shown


def fields_of(raw: RawEntity) -> list[PropertyField]:
    """The properties of an entity as fields. A value that cannot be read is shown as text, with the reason."""
    found = []
    for name in property_names(raw):
        try:
            value = odata.property_of(raw, name)
        except ValueError as error:
            found.append(PropertyField(name, "String", str(raw[name]), str(error)))
            continue
        if value is not None:
            found.append(field_of(name, value))
    return found


def field_of(name: str, value: EdmValue) -> PropertyField:
    text = value_as_text(value)
    if value.type is EdmType.STRING and any(each < " " and each not in "\n\t" for each in text):
        return PropertyField(name, ESCAPED, entity_json.quote(text))
    return PropertyField(name, value.type.value.removeprefix("Edm."), text)


def value_as_text(value: EdmValue) -> str:
    """A value as text; a point as GeoJSON."""
    if isinstance(value.value, GeographyPoint):
        return entity_json.geography_json(value.value)
    if isinstance(value.value, float) and math.isfinite(value.value):
        return repr(value.value)  # the shortest text of this number, as the other tools show it
    return shown_value(value)


def read_form(key: EntityKey, rows: Iterable[tuple[str, ...]]) -> ReadForm:
    """The entity of a form. Each row is a name, a type and a text; a row without name and text is left out."""
    properties: dict[str, EdmValue] = {}
    fields: list[PropertyField] = []
    for name, kind, text in rows:
        if not name.strip() and not text:
            continue
        field = PropertyField(name.strip(), kind, text)
        try:
            if field.name in properties:
                raise ValueError(f"There are two properties {field.name}.")  # noqa: TRY301 - as the others
            properties[field.name] = _value(field)
        except ValueError as error:
            field = field._replace(problem=str(error))
        fields.append(field)
    wrong = [field for field in fields if field.problem]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return ReadForm(None, fields, f"Nothing is written: {wrong[0].problem.rstrip('.')}{more}.")
    try:
        odata.require_storable(key, properties)
    except ValueError as error:
        return ReadForm(None, fields, str(error))
    return ReadForm(TypedEntity(key, properties), fields, "")


def json_of(given: TypedEntity) -> str:
    """The properties as JSON, with a line for each name and for each type that JSON does not show; without the keys."""
    members = json.loads(odata.write_body(given))
    shown = {name: each for name, each in members.items() if name not in (PARTITION_KEY, ROW_KEY)}
    return json.dumps(shown, indent=2, ensure_ascii=False)


def types_of(given: TypedEntity) -> dict[str, str]:
    """The types of the properties, for the form that shows `json_of`."""
    return {name: value.type.value for name, value in given.properties.items()}


def read_json_form(key: EntityKey, text: str, types: Mapping[str, str]) -> tuple[ReadForm, int]:
    """The entity of a JSON text, and the line of a problem, else 0. A key in it must be that of the entity.

    A property without a type has that of `types_of`, if it was there: a Double stays one if it is a whole number.
    """
    try:
        raw = json.loads(text, object_pairs_hook=_members, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        return _refused(error.lineno, f"{error.msg}, at character {error.colno}")
    except RecursionError:
        return _refused(1, "It is nested too deeply")
    except ValueError as error:
        return _refused(
            _line_of(text, str(error)), f"{str(error)[:60]!r} cannot be read, or is there twice"
        )
    if not isinstance(raw, dict):
        return _refused(1, "It is no JSON object")
    for name, own in ((PARTITION_KEY, key.partition_key), (ROW_KEY, key.row_key)):
        if raw.get(name, own) != own:
            return _refused(_line_of(text, name), f"{name} is that of another entity")
    for name in raw:
        if name.endswith(odata.ANNOTATION) and name.removesuffix(odata.ANNOTATION) not in raw:
            return _refused(_line_of(text, name), f"{name} is the type of no property")
    kept = {
        name: kind
        for name, kind in types.items()
        if raw.get(name) is not None and name + odata.ANNOTATION not in raw
    }
    typed = {name + odata.ANNOTATION: kind for name, kind in kept.items()}
    read = ReadForm(None, fields_of(raw | typed), "")
    if not any(field.problem for field in read.fields):
        read = read_form(key, [field[:3] for field in read.fields])
    wrong = next((field for field in read.fields if field.problem), None)
    if wrong is not None:
        other = OTHER_TYPE.format(wrong.name) if wrong.name in kept else ""
        return _refused(_line_of(text, wrong.name), wrong.problem + other)
    return read, 0


def _refused(line: int, why: str) -> tuple[ReadForm, int]:
    return ReadForm(None, [], f"Nothing is written. Line {line}: {why.rstrip('.')}."), line


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(name)
        found[name] = value
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _line_of(text: str, name: str) -> int:
    """The line of the last member of the name, or else of the bare word."""
    quoted = re.escape(json.dumps(name, ensure_ascii=False)) + r"\s*:"
    found = list(re.finditer(f"{quoted}|{re.escape(name)}", text))
    members = [each for each in found if each[0].startswith('"')] or found
    return text.count("\n", 0, members[-1].start()) + 1 if members else 1


def _value(field: PropertyField) -> EdmValue:
    if not field.name:
        raise ValueError("The property needs a name.")
    if field.name in (PARTITION_KEY, ROW_KEY) or not odata.is_property(field.name):
        raise ValueError(f"{field.name} cannot be the name of a property.")
    if field.kind == ESCAPED:
        try:
            read = orjson.loads(field.text)
        except ValueError:
            read = None
        if not isinstance(read, str):
            raise ValueError(f"{field.name} is not a JSON string.")
        return EdmValue(EdmType.STRING, read)
    kind = TYPE_NAMES.get(field.kind)
    if kind is None:
        raise ValueError(f"{field.kind[:40]} is not a type.")
    return read_value(field.name, field.text, kind)


def read_value(name: str, text: str, kind: EdmType) -> EdmValue:
    """A text as a value of a type. `ValueError` describes to a person what the type accepts."""
    if kind is EdmType.BINARY and text.strip() == EMPTY:
        text = ""
    try:
        return odata.typed_value(name, text if kind is EdmType.STRING else text.strip(), kind)
    except ValueError as error:
        found, is_other_type, _ = str(error).partition(", not of type ")
        if not is_other_type:
            raise
        word = kind.value.removeprefix("Edm.")
        raise ValueError(f"{found}, not of type {word} ({HINTS[word]})") from None


def differences(yours: TypedEntity, stored: RawEntity, shown: RawEntity) -> list[Difference]:
    mine = {name: field_of(name, value) for name, value in yours.properties.items()}
    theirs, before = ({field.name: field for field in fields_of(raw)} for raw in (stored, shown))
    return [
        Difference(name, before.get(name), theirs.get(name), mine.get(name))
        for name in dict.fromkeys((*mine, *theirs, *before))
    ]


def with_changes(yours: TypedEntity, stored: RawEntity, shown: RawEntity) -> TypedEntity:
    """What is stored, with the properties in which `yours` differs from what was shown."""
    properties = odata.read_entity(stored).properties
    for each in differences(yours, stored, shown):
        if each.is_yours:
            properties.pop(each.name, None)
        if each.is_yours and each.yours:
            properties[each.name] = yours.properties[each.name]
    return TypedEntity(yours.key, properties)
