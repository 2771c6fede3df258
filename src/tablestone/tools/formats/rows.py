"""What readers of files yield: rows that can be stored, and rejected rows with the reason. They number rows from 1."""

import re
from collections.abc import Container, Iterable, Mapping
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
    """A row that cannot be stored: its number, the reason, and its text as far as it could be read."""

    number: int
    reason: str
    text: str


TYPE_NAMES: Final = {kind.value.removeprefix("Edm."): kind for kind in EdmType}


def type_named(text: str, source: str) -> EdmType:
    """Parse `Double` or `Edm.Double`, in any case; `TransferRefused` lists the types."""
    wanted = text.strip().removeprefix("Edm.").lower()
    for name, kind in TYPE_NAMES.items():
        if name.lower() == wanted:
            return kind
    raise TransferRefused(f"{source}: {text!r} is no type; the types are {', '.join(TYPE_NAMES)}.")


@dataclass(frozen=True)
class Reading:
    """The options of an import that say how rows become entities."""

    partition_key: str = PARTITION_KEY
    row_key: str = ROW_KEY
    types: Mapping[str, EdmType] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    """Cells with these texts, like empty cells, are absent properties."""
    drop: frozenset[str] = frozenset()
    drop_keys: bool = False
    """Do not store the columns that the keys are made of."""
    encoding: str = "utf-8"
    delimiter: str | None = None
    """The delimiter of CSV; None finds it in the header."""


class Piece(NamedTuple):
    """A part of a template: a text, then a column with its format; at the end, `name` may be None."""

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
            # Only names: `{a.b}` and `{a[0]}` would reach into Python objects.
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
        """The key; `ValueError` if a column is absent or its format does not fit."""
        parts = []
        for literal, name, spec in self.pieces:
            parts.append(literal)
            if name is None:
                continue
            value = properties.get(name)
            if value is None:
                raise ValueError(f"the key needs {name}, which this row does not have")
            parts.append(formatted(name, value, spec))
        return "".join(parts)


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
"""A format that takes the first characters: `{name:.3}`. Of a DateTime, `.10` is the day, `.7` the month."""


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
    try:
        if isinstance(content, str) and spec.startswith("0"):
            raise ValueError(content)  # noqa: TRY301 - Python would fill text with zeros too
        return format(content, spec)
    except (ValueError, TypeError):
        shown, hint = repr(value.value), ""
        if value.type is EdmType.DATE_TIME:
            shown = key_text(value)
            hint = f"; {{{name}:.10}} is its day, and {{{name}:.7}} its month"
        raise ValueError(
            f"{name} is {shown}, which {{{name}:{spec}}} cannot format{hint}"
        ) from None


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


class RowMaker:
    """Makes rows of typed properties by the options of an import."""

    def __init__(self, reading: Reading) -> None:
        self.partition_key = KeyTemplate(reading.partition_key, "--partition-key")
        self.row_key = KeyTemplate(reading.row_key, "--row-key")
        self._types = reading.types
        self.drop = reading.drop
        """The columns that are not stored."""
        made_of = {*self.partition_key.names, *self.row_key.names}
        if reading.drop_keys:
            self.drop |= made_of
        self.key_columns = made_of - _NEVER_STORED - self.drop
        """The columns that the keys are made of and that are stored as properties too."""

    def require_columns(self, path: str, names: Container[str], shown: Iterable[str]) -> None:
        """Refuse a file without a column of a key, or one that an option names; `shown` are the columns that it has."""
        for wanted in (
            *(*self.partition_key.names, *self.row_key.names, *self._types),
            *sorted(self.drop - _NEVER_STORED),
        ):
            if wanted not in names:
                listed = list(shown)
                near = [name for name in listed if name.lower() == wanted.lower()]
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(listed)}."
                if flag := {PARTITION_KEY: "--partition-key", ROW_KEY: "--row-key"}.get(wanted):
                    hint += f" Name the column of the {wanted} with {flag}."
                raise TransferRefused(f"{path} has no column {wanted!r}; {hint}")

    def stored(self, columns: Mapping[str, EdmValue]) -> dict[str, EdmValue]:
        """The properties that an entity of these columns has."""
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
"""The service's own names; `etag` and `ETag` are valid names of properties."""


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
