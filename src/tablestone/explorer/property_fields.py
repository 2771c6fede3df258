"""The properties of an entity as fields of a form, and the fields as typed values: nothing is lost in between.

A browser changes the line ends of a text area. So a text with a carriage return or another control character is edited
as a JSON string.
"""

from __future__ import annotations

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
    "String": "text",
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
    """A property as it is edited. `problem` says why its text is no value of its type."""

    name: str
    kind: str
    text: str
    problem: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the text needs more than a line."""
        return len(self.text) > 60 or "\n" in self.text


class ReadForm(NamedTuple):
    """The fields of a form: the entity if all of them are right, and the fields with their problems if not."""

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
        """Whether the types or the texts differ."""
        return self.yours is None or self.stored is None or self.yours[:3] != self.stored[:3]


def fields_of(raw: RawEntity) -> list[PropertyField]:
    """The properties of an entity as fields; one that our types refuse keeps its text, with the reason."""
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
    """A property as a field."""
    text = value_as_text(value)
    if value.type is EdmType.STRING and _needs_escapes(text):
        return PropertyField(name, ESCAPED, entity_json.quote(text))
    return PropertyField(name, value.type.value.removeprefix("Edm."), text)


def value_as_text(value: EdmValue) -> str:
    """A value as text; a point in the form that GeoJSON gives it."""
    if isinstance(value.value, GeographyPoint):
        return entity_json.geography_json(value.value)
    if isinstance(value.value, float) and math.isfinite(value.value):
        return repr(value.value)  # the shortest text of this number, as the other tools show it
    return shown_value(value)


def _needs_escapes(text: str) -> bool:
    """Whether a text area would change the text, or hide a part of it."""
    return any(character < " " and character not in "\n\t" for character in text)


def read_form(key: EntityKey, rows: Iterable[tuple[str, ...]]) -> ReadForm:
    """The entity of a form. Each row is a name, a type and a text; one without name and text is left out."""
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
    """A text as a value of a type; the `ValueError` says for people which texts the type has."""
    try:
        return odata.typed_value(name, text if kind is EdmType.STRING else text.strip(), kind)
    except ValueError as error:
        found, is_other_type, _ = str(error).partition(", not of type Edm.")
        if not is_other_type:
            raise
        word = kind.value.removeprefix("Edm.")
        raise ValueError(f"{found}, which is no {word} ({HINTS[word]})") from None


def differences(yours: TypedEntity, stored: RawEntity) -> list[Difference]:
    """The properties of both versions, side by side."""
    mine = {name: field_of(name, value) for name, value in yours.properties.items()}
    theirs = {field.name: field for field in fields_of(stored)}
    names = dict.fromkeys((*mine, *theirs))
    return [Difference(name, mine.get(name), theirs.get(name)) for name in names]
