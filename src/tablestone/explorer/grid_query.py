"""The query of the grid: in an address, with its continuation token, and saved by name in a file of the user.

An address may come from another person, so each part of it is checked. A filter may contain private values, so only the
user can read the file.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import orjson

from tablestone.explorer.account import ExplorerSettings
from tablestone.limits import ENTITY_PROPERTIES_MAX
from tablestone.tools.client import ContinuationToken
from tablestone.tools.connection import settings_directory, write_private_json
from tablestone.tools.errors import FieldRefused, TransferFailed, TransferRefused
from tablestone.tools.queries import parse_order

TOKEN_LENGTH_MAX: Final = 32 * 1024
"""The explorer accepts addresses of 64 KiB. The token of two keys of the greatest length needs 11 KiB."""
TOP_MAX: Final = 10_000_000
QUERIES_MAX: Final = 500
"""Saved queries of one table."""
NAME_LENGTH_MAX: Final = 80
FILE_NAME: Final = "explorer_queries.json"
_writing: Final = Lock()

Kept = dict[str, dict[str, dict[str, str]]]
"""The parameters of queries, by URL of the account and table, and by name."""


@dataclass(frozen=True)
class GridQuery:
    """A query as a person wrote it. `order` is `NAME` or `NAME desc`; `top` is None for all."""

    filter: str = ""
    select: tuple[str, ...] = ()
    order: str = ""
    top: int | None = None

    @property
    def in_address(self) -> dict[str, object]:
        """The query as parameters of an address. `path_to` leaves out the empty ones."""
        return {
            "filter": self.filter,
            "select": ",".join(self.select),
            "order": self.order,
            "top": self.top,
        }

    @property
    def ordered_by(self) -> tuple[tuple[str, bool], ...]:
        """The property of the order and whether it is descending; empty without an order."""
        return parse_order((self.order,)) if self.order else ()


def read_query(parameters: Mapping[str, str]) -> GridQuery:
    """The query of an address. Raises `FieldRefused` for a wrong parameter."""
    text = parameters.get("top", "").strip()
    top = read_number(text)
    if text and not (top and top <= TOP_MAX):
        raise FieldRefused("top", f"Top must be a number from 1 to {TOP_MAX:,}, not {text[:40]!r}.")
    query = GridQuery(
        filter=parameters.get("filter", "").strip(),
        select=read_names(parameters.get("select", "")),
        order=parameters.get("order", "").strip(),
        top=top,
    )
    try:
        parse_order((query.order,) if query.order else ())
    except TransferRefused:
        sentence = f"Order must be a property, or a property and desc, not {query.order[:40]!r}."
        raise FieldRefused("order", sentence) from None
    return query


def read_names(text: str) -> tuple[str, ...]:
    """Names separated by commas, without repetitions."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > ENTITY_PROPERTIES_MAX:
        raise FieldRefused("select", f"At most {ENTITY_PROPERTIES_MAX} properties can be selected.")
    return names


def read_number(text: str | None) -> int | None:
    """A whole number of at most 18 digits; None for any other text."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def write_token(token: ContinuationToken | None) -> str | None:
    """A continuation token as a word for an address. Raises `TransferFailed` if it is too long."""
    if token is None:
        return None
    word = base64.urlsafe_b64encode(orjson.dumps(list(token))).decode("ascii").rstrip("=")
    if len(word) > TOKEN_LENGTH_MAX:
        raise TransferFailed("The service gives a continuation token that no address can hold.")
    return word


def read_token(text: str | None) -> ContinuationToken | None:
    """Read what `write_token` wrote. Raises `TransferRefused` for any other text."""
    if not text:
        return None
    try:
        first, second = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(first, str) and isinstance(second, str):
            return ContinuationToken(first, second)
    except (ValueError, TypeError):
        pass
    raise TransferRefused("The address names a page that does not exist.")


def saved_queries_file(environment: Mapping[str, str]) -> Path | None:
    """The file of saved queries, next to the profiles; None for a user without a home directory."""
    try:
        return settings_directory(environment) / FILE_NAME
    except TransferRefused:
        return None


def queries_of(settings: ExplorerSettings, table: str) -> dict[str, GridQuery]:
    if settings.saved_queries is None:
        return {}
    kept = _read(settings.saved_queries).get(_table_url(settings, table), {})
    found = {}
    for name, parameters in sorted(kept.items()):
        try:
            found[name] = read_query(parameters)
        except (TransferRefused, AttributeError):
            continue  # the file was edited by hand, or written by a later version
    return found


def save_query(settings: ExplorerSettings, table: str, name: str, query: GridQuery) -> None:
    """Save a query under a name, replacing an earlier one. Raises `TransferRefused` if it cannot be saved."""
    name = name.strip()
    if not name or len(name) > NAME_LENGTH_MAX:
        raise TransferRefused(f"The query needs a name of 1 to {NAME_LENGTH_MAX} characters.")
    with _changing_queries(settings, table) as queries:
        if name not in queries and len(queries) >= QUERIES_MAX:
            raise TransferRefused(f"{QUERIES_MAX} queries are saved for this table: delete one.")
        queries[name] = {key: str(text) for key, text in query.in_address.items() if text}


def forget_query(settings: ExplorerSettings, table: str, name: str) -> None:
    with _changing_queries(settings, table) as queries:
        queries.pop(name, None)


@contextmanager
def _changing_queries(
    settings: ExplorerSettings, table: str
) -> Iterator[dict[str, dict[str, str]]]:
    """The queries of a table, to change in the block. Its end writes them."""
    path = settings.saved_queries
    if path is None:
        raise TransferRefused("This explorer cannot save queries.")
    with _writing:
        kept = _read(path)
        yield kept.setdefault(_table_url(settings, table), {})
        write_private_json(path, kept)


def _table_url(settings: ExplorerSettings, table: str) -> str:
    return f"{settings.connection.url}/{table}"


def _read(path: Path) -> Kept:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise TransferRefused(f"{path}, the file of saved queries, cannot be read.") from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise TransferRefused(f"{path} is not a file of saved queries.")
    return found
