"""How a server begins a term: in the life of its directory, or in a new one.

A directory goes on in its life only if nobody else has written there since, and if it holds the newest record of the
archive byte for byte. So a directory that was restored, rolled back, cloned or copied begins a life of its own, which
names the old one as its parent if it goes on from a record of it. Where the directory lies decides nothing: a copy that
is moved back has the same inode and machine.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tablestone.archive.history import (
    Life,
    Line,
    Parted,
    Term,
    read_bases,
    read_lives,
    read_named,
    read_record,
)
from tablestone.archive.objects import (
    Compressed,
    Content,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    fresh_life,
    write_object,
    zstd_library,
)
from tablestone.archive.store import DirectoryStore, ObjectExists, ObjectMissing, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.archive.store import Store
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveSource, ArchiveState, RecordEnds


class TermLost(Exception):
    """Another run has begun a term of this life, or this one cannot go on; the text is a sentence."""


@dataclass(slots=True)
class OwnTerm:
    """A term that this run has begun, and writes."""

    store: Store
    keys: Sequence[EncryptionKey]
    """The first one encrypts, all of them decrypt."""
    run: str
    life: str
    term: Term
    why: str | None
    """Why a life begins: a sentence. None: the life goes on."""
    archived: int
    """The newest record that is archived; at first the one before the first of this term."""

    @property
    def key(self) -> EncryptionKey | None:
        return next(iter(self.keys), None)

    def name(self, kind: Kind, first: int, last: int = 0, part: int | None = None) -> Name:
        return Name(self.life, kind, self.term.number, first, last, part)

    async def create(
        self, name: Name, facts: dict[str, Any], body: bytes, key: EncryptionKey | None
    ) -> None:
        """Create an object, unless another run has begun a later term."""
        await self.require()
        content = Content(facts | {"run": self.run}, body, key)
        data = await asyncio.to_thread(write_object, name, content)
        try:
            await self.store.create(str(name), data)
        except ObjectExists:
            # A store may have written it and answered with an error.
            try:
                found = await read_named(self.store, name, self.keys)
            except ObjectDamaged:  # the objects of the next term have other names
                raise TermLost(f"the store has not kept {name} as it was written") from None
            plain = zstd_library().decompress(body) if isinstance(body, Compressed) else body
            if found.facts.get("run") != self.run or found.body != plain:
                raise TermLost(f"another process has written {name}") from None

    async def require_own(self) -> None:
        """`TermLost` if this term is gone: a life that is not written for some minutes can be pruned."""
        try:
            await self.store.read(str(self.name(Kind.TERM, 0)), 1)
        except ObjectMissing:
            raise TermLost(f"the archive does not hold the life {self.life} any more") from None

    async def require(self) -> None:
        """`TermLost` if another run has begun a later term."""
        later = Name(self.life, Kind.TERM, self.term.number + 1)
        with suppress(ObjectMissing):
            await self.store.read(str(later), 1)
            raise TermLost(f"another server goes on in the life {self.life}")


async def begin_term(
    store: Store, source: ArchiveSource, archive: str, run: str, keys: Sequence[EncryptionKey] = ()
) -> tuple[OwnTerm, Line]:
    """Begin a term of the run `run`, or take the one that it has begun; also returns what was there before.

    May be called again after an error.

    Raises the errors of the store and of the source, and `TermLost` if another run begins the same term.
    """
    state, kept = await asyncio.to_thread(lambda: (source.state(), source.ends()))
    lives = await read_lives(store)
    start = _Start(store, source, archive, run, keys, state, kept, lives)
    life, term, why = await start.choose()
    if life not in lives or lives[life].terms[-1:] != [term]:
        await asyncio.to_thread(source.store_next, run, term.before)
        name = Name(life, Kind.TERM, term.number)
        try:
            # Not encrypted: it must be readable when the key has changed, and holds no data.
            await store.create(str(name), write_object(name, Content(term._asdict())))
        except ObjectExists:
            if Term.of((await read_named(store, name)).facts).run != run:
                raise TermLost(f"another server has begun {name}") from None
        lives.setdefault(life, Life(life)).terms.append(term)  # a listing may not show it yet
    await asyncio.to_thread(source.begin_run, archive, life, run, term.first - 1)
    line = await asyncio.to_thread(Line.of, lives, life)
    return OwnTerm(store, keys, run, life, term, why, term.first - 1), line


@dataclass(frozen=True, slots=True)
class _Start:
    """What decides in which life a run begins its term."""

    store: Store
    source: ArchiveSource
    archive: str
    run: str
    keys: Sequence[EncryptionKey]
    state: ArchiveState
    kept: RecordEnds
    lives: dict[str, Life]

    async def choose(self) -> tuple[str, Term, str | None]:
        """The life, the term, and why a new life begins."""
        state, kept, lives = self.state, self.kept, self.lives
        first_of_all = Term(1, self.run, kept.last + 1)
        if not self.keys:  # it would put the data in clear beside
            for life in lives.values():
                if await self._is_clear(life) is False:
                    raise ObjectRefused(
                        f"The life {life.life} is encrypted: name the key of the archive with --archive-key-file."
                    )
        begun = (
            life
            for life in lives.values()
            if life.terms and life.terms[-1].run in (self.run, state.next_run)
        )
        # A run may have begun whose life is not stored yet.
        own = next(begun, lives.get(state.life))
        if own is None or not own.terms:
            why = f"the archive does not hold the life {state.life} of this directory any more"
            if not state.archive:
                why = "this directory was not archived before"
                if lives:
                    why += ", and the archive holds other data: `tablestone restore` brings it back"
            elif state.archive != self.archive:
                why = f"this directory was archived at {state.archive} before"
            elif not lives and isinstance(self.store, DirectoryStore):
                raise StoreUnavailable(
                    f"The directory {self.archive} is empty, and this server has archived there: mount its disk, or "
                    "name another directory to begin a new archive."
                )
            return fresh_life(), first_of_all, why
        newest = own.terms[-1]
        if newest.run == self.run:
            return own.life, newest, None if newest.number > 1 else "an attempt before began it"
        if self.keys and await self._is_clear(own):
            why = f"the life {own.life} is not encrypted, and this server has a key for its archive"
            return fresh_life(), first_of_all, why
        line = await asyncio.to_thread(Line.of, lives, own.life)
        if newest.run not in {state.run, state.next_run} - {""}:  # that of a damaged term
            why = f"another server has gone on in the life {own.life} of this directory"
        else:
            # Nothing may be written yet.
            last = line.newest(own)
            agrees = last < own.terms[0].first or await self._agree(line, last)
            if agrees is None:
                # What is noted of this run, the directory has; it must hold all that follows.
                agrees = state.archived == last and kept.first <= last + 1
            if agrees:
                return own.life, Term(newest.number + 1, self.run, last + 1, newest.run), None
            why = (
                f"the archive holds changes of the life {own.life} that this directory does not have: it is an older "
                "state"
            )
            if state.archived == last < kept.first - 1:
                why = "records of this directory were removed before they were archived"
        parent = await self._parted(line, own, state)
        if parent is None:
            return fresh_life(), first_of_all, why
        return fresh_life(), Term(1, self.run, parent.last + 1, None, parent), why

    async def _is_clear(self, own: Life) -> bool | None:
        """Whether a life is not encrypted: all of it is, or nothing, so that one restore can read what it needs.

        None: nothing of it can be read, or there is nothing.
        """
        names = [name for name in own.found if name.kind is not Kind.TERM]
        for name in sorted(names, key=lambda name: own.found[name].size):
            try:
                await read_named(self.store, name)
            except ObjectDamaged:
                continue
            except ObjectRefused:
                return False
            return True
        return None

    async def _parted(self, line: Line, own: Life, state: ArchiveState) -> Parted | None:
        """The newest record that the archive and the directory both have, if the archive can restore it."""
        runs = {state.run, state.next_run} - {""}  # that of a damaged term
        ours = [term.number for term in own.terms if term.run in runs]
        if not ours:
            return None
        oldest = max(self.kept.first, min((piece.first for piece in line.pieces), default=0))
        low, high = oldest - 1, min(own.limit(ours[-1]), line.newest(own), self.kept.last)
        # All records up to some number agree, and none after it.
        probe = high
        while low < high:
            if await self._agree(line, probe):
                low = probe
            else:
                high = probe - 1
            probe = (low + high + 1) // 2
        bases = await read_bases(self.store, line, self.keys) if low >= oldest else []
        is_whole = any(base.end <= low <= base.reach for base in bases)
        return Parted(own.life, low) if is_whole else None

    async def _agree(self, line: Line, number: int) -> bool | None:
        """Whether the directory holds this record of the archive byte for byte. None: one side has it no more."""
        if number > self.kept.last:
            return False
        here = await asyncio.to_thread(self.source.record, number)
        try:
            archived = await read_record(self.store, line, number, self.keys)
        except ObjectDamaged:
            return False
        except ObjectRefused:  # encrypted with a key that is not here
            return None
        return None if here is None or archived is None else here == archived
