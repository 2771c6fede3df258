"""The properties of an entity as fields of a form, and back, without loss.

A browser changes the line ends in a text area. So a text with a carriage return or another control character is edited
as a JSON string.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

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
FIELD_TYPES: Final = (*TYPE_NAMES, ESCAPED)
HINTS: Final = {
    "Int32": "-2147483648 to 2147483647",
    "Int64": "a whole number of 64 bits",
    "Double": "1.5, NaN, Infinity",
    "Boolean": "true or false",
    "DateTime": "2026-01-31T12:00:00.1234567Z",
    "Guid": "00000000-0000-0000-0000-000000000000",
    "Binary": "base64",
    "GeographyPoint": '{"type":"Point","coordinates":[longitude,latitude]}',
    ESCAPED: '"text with \\r\\n"',
}


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
    """A property in two versions of an entity; None where it is absent."""

    name: str
    yours: PropertyField | None
    stored: PropertyField | None

    @property
    def differs(self) -> bool:
        return self.yours is None or self.stored is None or self.yours[:3] != self.stored[:3]


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
    try:
        return odata.typed_value(name, text if kind is EdmType.STRING else text.strip(), kind)
    except ValueError as error:
        found, is_other_type, _ = str(error).partition(", not of type ")
        if not is_other_type:
            raise
        word = kind.value.removeprefix("Edm.")
        raise ValueError(f"{found}, not of type {word} ({HINTS[word]})") from None


def differences(yours: TypedEntity, stored: RawEntity) -> list[Difference]:
    mine = {name: field_of(name, value) for name, value in yours.properties.items()}
    theirs = {field.name: field for field in fields_of(stored)}
    names = dict.fromkeys((*mine, *theirs))
    return [Difference(name, mine.get(name), theirs.get(name)) for name in names]
