"""The queries that a person saved under names, for each table of each account, in one file of the user.

Knows the file and its form; knows no page. A filter may have private values in it, so only the user may read the file.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from tablestone.explorer.explored_account import ExplorerSettings
from tablestone.explorer.grid_query import GridQuery, read_query
from tablestone.tools.refusals import TransferRefused

QUERIES_MAX: Final = 500
"""Queries that are kept for one table."""
NAME_LENGTH_MAX: Final = 80
FILE_NAME: Final = "explorer_queries.json"
_writing: Final = Lock()


class SavedQuery(NamedTuple):
    """A query under a name."""

    name: str
    query: GridQuery


def queries_of(settings: ExplorerSettings, table: str) -> list[SavedQuery]:
    """The saved queries of a table, by name."""
    if settings.saved_queries is None:
        return []
    kept = _read(settings.saved_queries).get(_place(settings, table), {})
    found = []
    for name, parameters in sorted(kept.items()):
        try:
            found.append(SavedQuery(name, read_query(parameters)))
        except (TransferRefused, AttributeError):
            continue  # written by hand, or by a later version
    return found


def save_query(settings: ExplorerSettings, table: str, name: str, query: GridQuery) -> None:
    """Keep a query under a name; one of that name is replaced. `TransferRefused` if it cannot be kept."""
    name = name.strip()
    if not name or len(name) > NAME_LENGTH_MAX:
        raise TransferRefused(f"The query needs a name of 1 to {NAME_LENGTH_MAX} characters.")
    with _writing:
        path = _file(settings)
        kept = _read(path)
        queries = kept.setdefault(_place(settings, table), {})
        if name not in queries and len(queries) >= QUERIES_MAX:
            raise TransferRefused(f"{QUERIES_MAX} queries are saved for this table: delete one.")
        queries[name] = {key: str(text) for key, text in query.in_address.items() if text}
        _write(path, kept)


def forget_query(settings: ExplorerSettings, table: str, name: str) -> None:
    """Forget the query of that name, if there is one."""
    with _writing:
        path = _file(settings)
        kept = _read(path)
        if kept.get(_place(settings, table), {}).pop(name, None) is not None:
            _write(path, kept)


def _place(settings: ExplorerSettings, table: str) -> str:
    return f"{settings.connection.url}/{table}"


def _file(settings: ExplorerSettings) -> Path:
    if settings.saved_queries is None:
        raise TransferRefused("This explorer saves no queries.")
    return settings.saved_queries


def _read(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise TransferRefused(f"{path}, which has the saved queries, cannot be read.") from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise TransferRefused(f"{path} is not a file of saved queries.")
    return found


def _write(path: Path, kept: dict[str, dict[str, dict[str, str]]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, written = tempfile.mkstemp(dir=path.parent, prefix=".queries-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=2, ensure_ascii=False)
        Path(written).replace(path)
    except OSError as error:
        raise TransferRefused(f"{path} cannot be written: {error.strerror}.") from None
