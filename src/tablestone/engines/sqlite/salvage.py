"""Damaged data directories: finds pages that were altered, and the rows that can still be read.

This reads all pages and the write-ahead log without SQLite, beside any other process, and checks the log by its
checksums and encrypted pages by their tags. Salvage walks the trees, then every page that no tree reaches; if it finds
a row more than once, the latest version counts. Any byte may be damaged: impossible content raises `BadPage`. Format:
https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from tablestone.engines.contract import EngineRefused, Key, StoredRow
from tablestone.engines.kind import EncryptionKey, Opening
from tablestone.engines.sqlite.data_directory import (
    DATABASE_NAME,
    LOG_NAME,
    PAGE_SIZE_BYTES,
    DataDirectory,
)
from tablestone.engines.sqlite.encryption import (
    MAGIC,
    RESERVED_BYTES,
    DatabaseFile,
    PageCipher,
    require_fitting_key,
)
from tablestone.engines.sqlite.write_ahead_log import StoredLog, counted_frames

INDEX_INTERIOR: Final = 2
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
TABLE_LEAF: Final = 13
TABLE_KINDS: Final = frozenset({TABLE_INTERIOR, TABLE_LEAF})
INDEX_KINDS: Final = frozenset({INDEX_INTERIOR, INDEX_LEAF})
KINDS: Final = TABLE_KINDS | INDEX_KINDS
FILE_HEADER_BYTES: Final = 100
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than any row has: a damaged length must not take memory."""
INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""By the type of a column in a record."""

Value = bytes | int | str | None


class BadPage(Exception):
    """This page, or this cell, is damaged."""


class TreePage(NamedTuple):
    kind: int
    content: bytes
    cells: list[int]
    """Offsets; 0 for an impossible one."""
    last_child: int
    """0 on a leaf."""


class Payload(NamedTuple):
    local: bytes
    """The first bytes, in the cell."""
    length: int
    """Of the whole payload."""
    continues_on: int
    """The number of a page, or 0."""


def take_apart(number: int, content: bytes | None, usable: int) -> TreePage:
    """Parse a page of a tree; `BadPage` if it is not one."""
    if content is None:
        raise BadPage
    start = FILE_HEADER_BYTES if number == 1 else 0
    kind = content[start]
    if kind not in KINDS:
        raise BadPage
    is_interior = kind in {INDEX_INTERIOR, TABLE_INTERIOR}
    (count,) = struct.unpack_from(">H", content, start + 3)
    cells_at = start + (12 if is_interior else 8)
    end = cells_at + 2 * count
    if end > usable:
        raise BadPage
    cells = list(struct.unpack_from(f">{count}H", content, cells_at))
    last_child = struct.unpack_from(">I", content, start + 8)[0] if is_interior else 0
    return TreePage(
        kind, content, [each if end <= each < usable else 0 for each in cells], last_child
    )


def child_of(page: TreePage, cell: int) -> int:
    """The child to the left of a cell of an interior page."""
    require(cell > 0)
    return int.from_bytes(page.content[cell : cell + 4], "big")


def table_leaf_cell(page: TreePage, cell: int, usable: int) -> tuple[int, Payload]:
    require(cell > 0)
    length, at = varint(page.content, cell)
    rowid, at = varint(page.content, at)
    return rowid, _payload(page.content, at, length, usable, local_max=usable - 35)


def index_cell(page: TreePage, cell: int, usable: int) -> Payload:
    """On a leaf or an interior page."""
    require(cell > 0)
    length, at = varint(page.content, cell + (4 if page.kind == INDEX_INTERIOR else 0))
    return _payload(page.content, at, length, usable, local_max=(usable - 12) * 64 // 255 - 23)


def _payload(content: bytes, at: int, length: int, usable: int, *, local_max: int) -> Payload:
    require(length <= PAYLOAD_BYTES_MAX)
    local, continues_on = length, 0
    if length > local_max:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= local_max else least
        require(at + local + 4 <= usable)
        continues_on = int.from_bytes(content[at + local : at + local + 4], "big")
        require(continues_on > 0)
    require(at + local <= usable)
    return Payload(content[at : at + local], length, continues_on)


def record(payload: bytes) -> list[Value]:
    """The columns of a record. No table has floating point: it raises `BadPage`."""
    end, at = varint(payload, 0)
    body = end
    require(end <= len(payload))
    values: list[Value] = []
    while at < end:
        kind, at = varint(payload, at)
        if kind == 0:
            length = 0
            values.append(None)
        elif kind in INTEGER_BYTES:
            length = INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[body : body + length], "big", signed=True))
        elif kind in {8, 9}:
            length = 0
            values.append(kind - 8)
        elif kind >= 12:
            length = (kind - 12) // 2
            content = payload[body : body + length]
            values.append(content.decode("utf-8", "replace") if kind % 2 else content)
        else:
            raise BadPage
        body += length
        require(body <= len(payload))
    require(at == end and body == len(payload))
    return values


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the offset after it."""
    value = 0
    for offset in range(at, at + 8):
        require(offset < len(content))
        byte = content[offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + 1
    require(at + 8 < len(content))
    value = value << 8 | content[at + 8]
    return value - (1 << 64) if value >= 1 << 63 else value, at + 9


def require(holds: bool) -> None:  # noqa: FBT001 - as `assert`
    if not holds:
        raise BadPage


class StoredPages:
    """The pages of a data directory and its `key`, if it has one. `OSError` if the database cannot be opened."""

    def __init__(self, directory: Path, key: EncryptionKey | None = None) -> None:
        self._file = DatabaseFile(directory / DATABASE_NAME)
        self._cipher = None if key is None else PageCipher(key)
        self.usable_bytes = PAGE_SIZE_BYTES - (0 if key is None else RESERVED_BYTES)
        self.count = -(-self._file.size // PAGE_SIZE_BYTES)
        self.log = StoredLog(directory / LOG_NAME, PAGE_SIZE_BYTES)
        if self.log.pages is not None:
            self.count = self.log.pages

    def read(self, number: int) -> bytes | None:
        """A page; the first has number 1. None if it is cut off, or is encrypted and was altered."""
        content = self._stored(number)
        if content is None or self._cipher is None:
            return content
        return self._cipher.opened(number, content)

    def altered(self) -> list[int]:
        """The encrypted pages that were altered; without encryption nothing shows it."""
        if self._cipher is None:
            return []
        numbers = range(1, self.count + 1)
        return [number for number in numbers if not self._is_whole(number, self._cipher)]

    def _is_whole(self, number: int, cipher: PageCipher) -> bool:
        content = self._stored(number)
        return content is not None and cipher.is_whole(number, content)

    def _stored(self, number: int) -> bytes | None:
        """A page as the log or the database has it."""
        offset = self.log.offsets.get(number)
        if offset is not None:
            return self.log.read(offset)
        if not 1 <= number <= self.count:
            return None
        content = self._file.read((number - 1) * PAGE_SIZE_BYTES, PAGE_SIZE_BYTES)
        return content if len(content) == PAGE_SIZE_BYTES else None

    def close(self) -> None:
        self._file.close()
        self.log.close()


SHOWN_MAX: Final = 100
"""Altered pages in a list."""
LOOKS: Final = 5
"""Attempts to read the log: another process may restart it during one."""
LOG_DAMAGED: Final = (
    "the write-ahead log is damaged: acknowledged writes that follow the damage are lost. "
    "Restore a backup if they matter"
)


def altered_files(directory: DataDirectory) -> list[str]:
    """A sentence for each altered page, or one for a damaged log. Raises `apsw.Error`, `OSError`."""
    with closing(directory.connect_reader()) as held, closing(directory.connect_reader()) as other:
        # Until this read transaction ends, pages that are not in the log do not change.
        held.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        if all(_log_is_damaged(directory, other) for _attempt in range(LOOKS)):
            return [LOG_DAMAGED]
        with closing(StoredPages(directory.path, directory.key)) as pages:
            altered = pages.altered()
    sentences = [f"page {number} was altered since it was written" for number in altered]
    more = len(altered) - SHOWN_MAX
    return [*sentences[:SHOWN_MAX], f"and {more:,} more pages"] if more > 0 else sentences


def _log_is_damaged(directory: DataDirectory, connection: apsw.Connection) -> bool:
    """Whether a frame that SQLite counts is damaged in the file, or commits follow a damaged one."""
    counted = counted_frames(connection)
    with closing(StoredPages(directory.path)) as pages:
        log = pages.log
    return log.lost_commits or log.frames < min(counted, counted_frames(connection))


ROWID_MIN: Final = -(1 << 63)
ROWID_MAX: Final = (1 << 63) - 1
ROOTS: Final = ((3, 4), (2, 3))
"""The root pages of the table and of the index: with auto-vacuum, and in a database without it."""

OTHER_TABLES: Final = frozenset({"archive_state", "change_log", "change_records", "index_entries"})
"""The tables without rows of their own: the record of changes, how far it is archived, and index entries, which follow
from the rows."""


class FoundRow(NamedTuple):
    rowid: int
    """`SalvagedRows.keys_at` finds the row's key in the index by it."""
    row: StoredRow


class SalvagedRows:
    """The readable rows of a database. Only `pages` and `lost_writes` are known before all were read."""

    def __init__(self, pages: StoredPages) -> None:
        self._pages = pages
        self.pages = pages.count
        self.lost_writes = pages.log.lost_commits
        """Whether the damage hides acknowledged writes completely, even their keys."""
        self._usable = pages.usable_bytes
        self._seen: set[int] = set()
        """Pages that were read already, or are free."""
        self._gaps: list[tuple[int, int]] = []
        """Ranges of rowids, without the first and with the last, in which rows may be missing."""
        self._found = array("q")
        """The rowids from the tree, ascending."""
        self._loose: set[int] = set()
        """The rowids from other pages."""
        self._missing: dict[int, Key] = {}
        self.is_complete = True
        """Whether `lost_keys` has all lost rows."""
        self._index_pages: set[int] = set()
        self.damaged_pages: set[int] = set()
        self.uncertain_rows = 0
        """Rows of pages that nothing refers to: they may have been deleted."""

    def rows(self) -> Iterator[FoundRow]:
        """Every readable row once, in any order. The values may be damaged."""
        self.damaged_pages.update(self._pages.altered())
        try:
            schema = take_apart(1, self._pages.read(1), self._usable)
            require(schema.content.startswith(MAGIC))
        except BadPage:
            self.damaged_pages.add(1)
        table, index = self._roots()
        yield from self._table(table, ROWID_MIN, ROWID_MAX)
        for rowid, key in self._entries(index):
            if not self._has(rowid):
                self._missing[rowid] = key
        self._pass_over_other_tables()
        if self._gaps:
            yield from self._rows_of_other_pages()

    def lost_keys(self) -> list[Key]:
        """The keys of rows that exist and could not be read."""
        return [key for rowid, key in self._missing.items() if rowid not in self._loose]

    def keys_at(self, rowids: Collection[int]) -> dict[int, Key]:
        """The keys of these rows from the index, which has its own copies of them."""
        if not rowids:
            return {}
        self._seen -= self._index_pages
        return {rowid: key for rowid, key in self._entries(self._roots()[1]) if rowid in rowids}

    def _roots(self) -> tuple[int, int]:
        """The root pages of the two trees, found by their kinds, because the schema may be damaged too."""
        for table, index in ROOTS:
            kinds = [(self._pages.read(number) or b"\0")[0] for number in (table, index)]
            if kinds[0] in TABLE_KINDS and kinds[1] in INDEX_KINDS:
                return table, index
        # One of the two is damaged: the header says whether the database has auto-vacuum.
        header = self._pages.read(1) or b""
        return ROOTS[0] if any(header[52:56]) else ROOTS[1]

    def _page(self, number: int, kinds: Collection[int]) -> TreePage:
        """Read a page of a tree once. `BadPage` if it is damaged, of another kind, or in a tree already."""
        if number in self._seen or not 1 <= number <= self._pages.count:
            raise BadPage
        self._seen.add(number)
        try:
            page = take_apart(number, self._pages.read(number), self._usable)
            require(page.kind in kinds)
        except BadPage:
            self.damaged_pages.add(number)
            raise
        return page

    def _table(self, number: int, low: int, high: int) -> Iterator[FoundRow]:
        """The rows below a page with `low < rowid <= high`."""
        try:
            page = self._page(number, TABLE_KINDS)
        except BadPage:
            self._gaps.append((low, high))
            return
        if page.kind == TABLE_LEAF:
            yield from self._leaf(number, page, low, high)
            return
        last = low
        for cell in page.cells:
            try:
                child = child_of(page, cell)
                key, _ = varint(page.content, cell + 4)
                require(last < key <= high)
            except BadPage:
                self.damaged_pages.add(number)
                self._gaps.append((last, high))
                continue
            yield from self._table(child, last, key)
            last = key
        yield from self._table(page.last_child, last, high)

    def _leaf(self, number: int, page: TreePage, low: int, high: int) -> Iterator[FoundRow]:
        last = low
        for cell in page.cells:
            try:
                found = self._row(page, cell)
                require(last < found.rowid <= high)
            except BadPage:
                self.damaged_pages.add(number)
                self._gaps.append((low, high))
                continue
            last = found.rowid
            self._found.append(last)
            yield found

    def _row(self, page: TreePage, cell: int) -> FoundRow:
        rowid, payload = table_leaf_cell(page, cell, self._usable)
        return FoundRow(rowid, StoredRow(*self._columns(payload, (bytes, bytes, int, bytes))))

    def _columns(self, payload: Payload, types: tuple[type, ...]) -> list[Any]:
        """The columns of a record of these types. Notes the pages on which its payload continues as seen."""
        whole, continued = self._whole(payload)
        values = record(whole)
        require(tuple(map(type, values)) == types)
        self._seen.update(continued)
        return values

    def _whole(self, payload: Payload) -> tuple[bytes, list[int]]:
        """All bytes of a payload, and the pages on which it continues."""
        parts, left, number = (
            [payload.local],
            payload.length - len(payload.local),
            payload.continues_on,
        )
        continued: list[int] = []
        while left > 0:
            content = None if number in self._seen else self._pages.read(number)
            if content is None:  # no two payloads share an overflow page
                raise BadPage
            continued.append(number)
            parts.append(content[4 : min(self._usable, 4 + left)])
            left -= len(parts[-1])
            number = int.from_bytes(content[:4], "big")
        require(number == 0)
        return b"".join(parts), continued

    def _entries(self, root: int) -> Iterator[tuple[int, Key]]:
        """The readable rowids and keys of the index."""
        before = set(self._seen)
        waiting = [root]
        while waiting:
            number = waiting.pop()
            try:
                page = self._page(number, INDEX_KINDS)
            except BadPage:
                self.is_complete = False
                continue
            if page.kind == INDEX_INTERIOR:
                waiting.append(page.last_child)
            for cell in page.cells:
                try:
                    if page.kind == INDEX_INTERIOR:
                        waiting.append(child_of(page, cell))
                    yield self._entry(page, cell)
                except BadPage:
                    self.damaged_pages.add(number)
                    self.is_complete = False
        self._index_pages = self._seen - before

    def _entry(self, page: TreePage, cell: int) -> tuple[int, Key]:
        payload = index_cell(page, cell, self._usable)
        partition, row, rowid = self._columns(payload, (bytes, bytes, int))
        return rowid, Key(partition, row)

    def _pass_over_other_tables(self) -> None:
        """Note the pages of the other tables as seen: they hold no rows of their own."""
        waiting = self._roots_of_other_tables()
        while waiting:
            number = waiting.pop()
            with suppress(BadPage):
                page = self._page(number, KINDS)
                if page.last_child:
                    waiting.append(page.last_child)
                for cell in page.cells:
                    try:
                        if page.last_child:
                            waiting.append(child_of(page, cell))
                        if page.kind == TABLE_LEAF:
                            _, payload = table_leaf_cell(page, cell, self._usable)
                        elif page.kind in INDEX_KINDS:
                            payload = index_cell(page, cell, self._usable)
                        else:
                            continue
                        self._seen.update(self._whole(payload)[1])
                    except BadPage:
                        self.damaged_pages.add(number)

    def _roots_of_other_tables(self) -> list[int]:
        """The root pages of the other tables, as the schema says."""
        try:
            schema = take_apart(1, self._pages.read(1), self._usable)
            cells = [table_leaf_cell(schema, cell, self._usable)[1] for cell in schema.cells]
            entries = [record(payload.local) for payload in cells]
        except BadPage:
            return []
        return [
            entry[3]
            for entry in entries
            if len(entry) == 5 and entry[2] in OTHER_TABLES and isinstance(entry[3], int)
        ]

    def _rows_of_other_pages(self) -> Iterator[FoundRow]:
        """The rows of leaves that no tree reaches, if the index has them or cannot tell."""
        self._seen.update(self._free_pages())
        uncertain: dict[Key, FoundRow] = {}
        for number in range(2, self._pages.count + 1):
            if number in self._seen:
                continue
            with suppress(BadPage):
                page = take_apart(number, self._pages.read(number), self._usable)
                if page.kind == TABLE_LEAF:
                    yield from self._loose_rows(page, uncertain)
        for found in uncertain.values():
            self.uncertain_rows += 1
            self._loose.add(found.rowid)
            yield found

    def _loose_rows(self, page: TreePage, uncertain: dict[Key, FoundRow]) -> Iterator[FoundRow]:
        for cell in page.cells:
            try:
                found = self._row(page, cell)
            except BadPage:
                continue
            rowid, key = found.rowid, Key(found.row.partition, found.row.row)
            if rowid in self._loose or not any(low < rowid <= high for low, high in self._gaps):
                continue
            if self._missing.get(rowid) == key:
                self._loose.add(rowid)
                yield found
            elif not self.is_complete and rowid not in self._missing and not self._has(rowid):
                other = uncertain.get(key)
                if other is None or other.row.version < found.row.version:
                    uncertain[key] = found

    def _free_pages(self) -> Iterator[int]:
        """The readable part of the list of free pages."""
        header = self._pages.read(1)
        if header is None:
            return
        number = int.from_bytes(header[32:36], "big")
        trunks: set[int] = set()
        while number and number not in trunks and (content := self._pages.read(number)):
            if number in self._seen:
                return
            trunks.add(number)
            yield number
            count = int.from_bytes(content[4:8], "big")
            if count > self._usable // 4 - 2:
                return
            for offset in range(8, 8 + 4 * count, 4):
                free = int.from_bytes(content[offset : offset + 4], "big")
                if free not in self._seen:
                    yield free
            number = int.from_bytes(content[:4], "big")

    def _has(self, rowid: int) -> bool:
        index = bisect_left(self._found, rowid)
        return index < len(self._found) and self._found[index] == rowid


@contextmanager
def damaged_storage(path: Path, key: EncryptionKey | None = None) -> Iterator[SalvagedRows]:
    """A snapshot of the readable rows of a data directory, also beside a running server. Changes nothing.

    `key` encrypts the directory, if one does. `EngineRefused` if there is no database, or the key is not its own.
    """
    if not (path / DATABASE_NAME).is_file():
        raise EngineRefused(f"The data directory {path} holds no Tablestone data.")
    connection: apsw.Connection | None = None
    try:
        require_fitting_key(path, path / DATABASE_NAME, key)
        # A read transaction keeps the snapshot: SQLite copies no later part of the log, and does not restart it.
        with suppress(apsw.Error, EngineRefused):
            connection = DataDirectory(path, Opening.READ_ONLY, key=key).connect_reader()
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        pages = StoredPages(path, key)
        try:
            yield SalvagedRows(pages)
        finally:
            if connection is not None:
                # Before the files: to close a file ends SQLite's locks on it in this process.
                connection.close()
            pages.close()
    except OSError as error:
        raise EngineRefused(
            f"The data directory {path} cannot be read: {error.strerror or error}."
        ) from error
