"""The rows that readers of files yield, numbered from 1, and how the options of an import make them from columns."""

import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from string import Formatter
from typing import Final, NamedTuple

from tablestone.limits import KEY_LENGTH_MAX
from tablestone.model import edm
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import TIMESTAMP
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey
from tablestone.tools.errors import TransferRefused
from tablestone.tools.odata import TypedEntity, require_storable, write_body


class Row(NamedTuple):
    """A row that can be stored: its number, its key, and the JSON of the write."""

    number: int
    key: EntityKey
    body: bytes


class Rejected(NamedTuple):
    """A row that cannot be stored: its number, the reason, and the text that could be read."""

    number: int
    reason: str
    text: str


TYPE_NAMES: Final = {kind.value.removeprefix("Edm."): kind for kind in EdmType}
_TYPES: Final = {name.lower(): kind for name, kind in TYPE_NAMES.items()}


def find_type(text: str) -> EdmType | None:
    """The type with a name such as `Double` or `Edm.Double`, in upper or lower case; None if there is none."""
    return _TYPES.get(text.removeprefix("Edm.").lower())


def type_named(text: str, source: str) -> EdmType:
    """The type of an option or a title; `TransferRefused` lists the types."""
    kind = find_type(text.strip())
    if kind is None:
        types = ", ".join(TYPE_NAMES)
        raise TransferRefused(f"{source}: {text!r} is no type; the types are {types}.")
    return kind


@dataclass(frozen=True)
class Reading:
    """The options of an import that define how rows become entities."""

    partition_key: str = PARTITION_KEY
    row_key: str = ROW_KEY
    types: Mapping[str, EdmType] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    """Cells with these texts are absent properties, as empty cells are."""
    drop: frozenset[str] = frozenset()
    drop_keys: bool = False
    """Do not store the columns from which the keys are made."""
    encoding: str = "utf-8"
    delimiter: str | None = None
    """The delimiter of CSV; None: find it in the header."""


class Piece(NamedTuple):
    """A part of a template: a text, then a column with its format. The last part may have no column."""

    text: str
    name: str | None
    spec: str


class KeyTemplate:
    """The template of a key: the name of a column, or a text like `{year}-{month:02}`."""

    def __init__(self, text: str, source: str) -> None:
        self.pieces: list[Piece] = []
        if not text:
            raise TransferRefused(
                f"{source} is empty: it names a column, or is a text with {{column}} in it."
            )
        if "{" not in text:
            self.pieces.append(Piece("", text, ""))
            return
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            raise TransferRefused(f"{source} {text!r} is no template: {error}.") from None
        for literal, name, spec, conversion in parsed:
            # Accept only names: `{a.b}` and `{a[0]}` would reach into Python objects.
            if name is not None and (not name.isidentifier() or conversion):
                raise TransferRefused(f"{source} {text!r}: {name!r} is not the name of a column.")
            if any(
                int(digits[:9]) > KEY_LENGTH_MAX for digits in re.findall("[1-9][0-9]*", spec or "")
            ):
                raise TransferRefused(
                    f"{source} {text!r}: a key has {KEY_LENGTH_MAX:,} characters at most, so {spec!r} is too wide."
                )
            self.pieces.append(Piece(literal, name, spec or ""))

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.pieces if name is not None]

    def render(self, properties: Mapping[str, EdmValue]) -> str:
        """The key of a row; `ValueError` if a column is absent or its format does not fit."""
        key = ""
        for literal, name, spec in self.pieces:
            key += literal
            if name is not None:
                value = properties.get(name)
                if value is None:
                    raise ValueError(f"the key needs {name}, which this row does not have")
                key += formatted(name, value, spec)
        return key


def without_absent(columns: Iterable[tuple[str, EdmValue | None]]) -> dict[str, EdmValue]:
    """The values that are there; `ValueError` if two columns, of two types, have one for the same property."""
    found: dict[str, EdmValue] = {}
    for name, value in columns:
        if value is not None:
            if name in found:
                raise ValueError(f"{name} has two values, of two types")
            found[name] = value
    return found


def key_text(value: EdmValue) -> str:
    """A value as the text of a key, or of a cell."""
    kind, content = value
    if isinstance(content, str):
        return content
    if isinstance(content, bool):
        return "true" if content else "false"
    if isinstance(content, float):
        return edm.format_double(content)
    if isinstance(content, bytes):
        return edm.format_binary(content)
    if kind is EdmType.DATE_TIME:
        assert isinstance(content, int)
        return edm.format_date_time(content)
    return str(content)


CUT: Final = re.compile(r"\.([0-9]+)")
"""A format that keeps the first characters: `{name:.3}`. For a DateTime, `.10` is the day, `.7` the month."""


def formatted(name: str, value: EdmValue, spec: str) -> str:
    """Format a value by the spec of a template; `ValueError` if it does not fit."""
    if not spec:
        return key_text(value)
    cut = CUT.fullmatch(spec)
    if cut and value.type in (EdmType.STRING, EdmType.DATE_TIME):
        return key_text(value)[: int(cut[1])]
    content: object = value.value
    if isinstance(content, str):
        content = _number(content)
    if not (isinstance(content, str) and spec.startswith("0")):  # Python would pad text with zeros
        with suppress(ValueError, TypeError):
            return format(content, spec)
    shown, hint = repr(value.value), ""
    if value.type is EdmType.DATE_TIME:
        shown = key_text(value)
        hint = f"; {{{name}:.10}} is its day, and {{{name}:.7}} its month"
    raise ValueError(f"{name} is {shown}, which {{{name}:{spec}}} cannot format{hint}")


def _number(text: str) -> int | float | str:
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


class RowMaker:
    """Makes rows from typed columns, by the options of an import."""

    def __init__(self, reading: Reading) -> None:
        self.partition_key = KeyTemplate(reading.partition_key, "--partition-key")
        self.row_key = KeyTemplate(reading.row_key, "--row-key")
        self._types = reading.types
        made_of = {*self.partition_key.names, *self.row_key.names}
        self.drop = reading.drop | (made_of if reading.drop_keys else set())
        """The columns that are not stored."""
        self.key_columns = made_of - _NEVER_STORED - self.drop
        """The columns of the keys that are stored as properties too."""

    def require_columns(self, path: str, names: Container[str], shown: Iterable[str]) -> None:
        """Refuse a file that lacks a column of a key or of an option. `shown` are its columns, for the message."""
        of_keys = *self.partition_key.names, *self.row_key.names
        for wanted in (*of_keys, *self._types, *sorted(self.drop - _NEVER_STORED)):
            if wanted not in names:
                listed = list(shown)
                near = [name for name in listed if name.lower() == wanted.lower()]
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(listed)}."
                if flag := {PARTITION_KEY: "--partition-key", ROW_KEY: "--row-key"}.get(wanted):
                    hint += f" Name the column of the {wanted} with {flag}."
                raise TransferRefused(f"{path} has no column {wanted!r}; {hint}")

    def stored(self, columns: Mapping[str, EdmValue]) -> dict[str, EdmValue]:
        return {
            name: value
            for name, value in columns.items()
            if name not in _NEVER_STORED and name not in self.drop
        }

    def make(self, number: int, given: Mapping[str, EdmValue]) -> Row:
        """The row; `ValueError` says why it cannot be stored."""
        key = EntityKey(self.partition_key.render(given), self.row_key.render(given))
        properties = self.stored(given)
        require_storable(key, properties)
        return Row(number, key, write_body(TypedEntity(key, properties)))


_NEVER_STORED: Final = frozenset((PARTITION_KEY, ROW_KEY, TIMESTAMP))
"""The service's own names. Properties may be named `etag` and `ETag`."""


def parse_types(texts: tuple[str, ...]) -> dict[str, EdmType]:
    """Parse `temp=Double,id=Guid`."""
    types = {}
    for text in texts:
        for pair in filter(None, (part.strip() for part in text.split(","))):
            name, equals, kind = pair.partition("=")
            if not equals:
                raise TransferRefused(f"--types {pair!r} is not of the form NAME=TYPE.")
            types[name] = type_named(kind, "--types")
    return types
