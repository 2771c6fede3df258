"""How a server begins a term: in the life of its directory, or in a new one.

A directory goes on in its life only if nobody else has written there since, and if it holds the newest record of the
archive byte for byte. So a directory that was restored, rolled back, cloned or copied begins a life of its own, which
names the old one as its parent if it goes on from a record of it. Where the directory lies decides nothing: a copy that
is moved back has the same inode and machine.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

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
    Content,
    Kind,
    Name,
    ObjectDamaged,
    ObjectRefused,
    fresh_life,
    write_object,
)
from tablestone.archive.store import ObjectExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.archive.history import BaseCopy
    from tablestone.archive.store import Store
    from tablestone.engines.kind import EncryptionKey
    from tablestone.engines.sqlite.archive_source import ArchiveSource, ArchiveState, RecordEnds

ATTEMPTS_MAX: Final = 8
"""Terms of other runs that may come between two looks."""


class TermLost(Exception):
    """Another run has begun a term of this life; the text is a sentence."""


class Begun(NamedTuple):
    """A term that has begun."""

    life: str
    term: Term
    archived: int
    """The newest record that is archived; the one before the first, if there is none yet."""
    bases: list[BaseCopy]
    """The base copies that count for this life, the oldest first."""
    line: Line
    why: str | None
    """Why a life begins: a sentence. None: the life goes on."""


async def begin_term(
    store: Store, source: ArchiveSource, archive: str, run: str, keys: Sequence[EncryptionKey] = ()
) -> Begun:
    """Begin a term of the run `run`, or take the one that it has begun. May be called again after an error.

    Raises the errors of the store and of the source.
    """
    for _attempt in range(ATTEMPTS_MAX):
        state, kept = await asyncio.to_thread(lambda: (source.state(), source.ends()))
        lives = await read_lives(store)
        life, term, why = await _choose(store, source, archive, run, keys, state, kept, lives)
        if not _is_begun(lives, life, term):
            await asyncio.to_thread(source.store_next, run, term.before)
            name = Name(life, Kind.TERM, term.number)
            try:
                # Not encrypted: it must be readable when the key has changed, and holds no data.
                await store.create(str(name), write_object(name, Content(term.facts)))
            except ObjectExists:
                found = Term.of((await read_named(store, name)).facts)
                if found.run != run:
                    continue
            lives.setdefault(life, Life(life)).terms.append(term)  # a listing may not show it yet
        line = Line.of(lives, life)
        bases = await read_bases(store, line, keys)
        await asyncio.to_thread(source.begin_run, archive, life, run, term.first - 1)
        return Begun(life, term, term.first - 1, bases, line, why)
    raise TermLost("Other servers begin terms of the same life all the time.")


def _is_begun(lives: dict[str, Life], life: str, term: Term) -> bool:
    return life in lives and lives[life].terms[-1:] == [term]


async def _choose(
    store: Store,
    source: ArchiveSource,
    archive: str,
    run: str,
    keys: Sequence[EncryptionKey],
    state: ArchiveState | None,
    kept: RecordEnds,
    lives: dict[str, Life],
) -> tuple[str, Term, str | None]:
    """The life, the term, and why a new life begins."""
    first = kept.last + 1
    if state is None:
        why = "this directory was not archived before"
        if lives:
            why += f", and the archive holds other data ({len(lives)} lives): `tablestone restore` brings it back"
        return fresh_life(), Term(1, run, first), why
    runs = (run, state.run, state.next_run)
    begun = (life for life in lives.values() if life.terms and life.terms[-1].run in runs[::2])
    own = next(begun, lives.get(state.life))  # a run may have begun whose life is not stored yet
    if not state.archive and own is None:
        why = "this directory was not archived before"
    elif state.archive != archive and own is None:
        why = f"this directory was archived at {state.archive} before"
    elif own is None or not own.terms:
        why = f"the archive does not hold the life {state.life} of this directory any more"
    else:
        newest = own.terms[-1]
        if newest.run == run:
            return own.life, newest, None if newest.number > 1 else "an attempt before began it"
        line = Line.of(lives, own.life)
        is_own = newest.run in runs
        agrees: bool | None = own.newest < own.terms[0].first  # nothing is written yet
        if is_own and not agrees:
            agrees = await _agree(store, source, line, own.newest, kept, keys)
        if (
            agrees is None
        ):  # what the directory has noted of this run, it has; it must hold all that follows
            agrees = state.archived == own.newest and kept.first <= own.newest + 1
        if is_own and agrees:
            return own.life, Term(newest.number + 1, run, own.newest + 1, newest.run), None
        why = f"another server has gone on in the life {own.life} of this directory"
        if is_own:
            why = (
                f"the archive holds changes of the life {own.life} that this directory does not have: it is an older "
                "state"
            )
        if is_own and state.archived == own.newest < kept.first - 1:
            why = "records of this directory were removed before they were archived"
        parent = await _parted(store, source, line, own, state, kept, keys)
        if parent is not None:
            return fresh_life(), Term(1, run, parent.last + 1, None, parent), why
    return fresh_life(), Term(1, run, first), why


async def _parted(
    store: Store,
    source: ArchiveSource,
    line: Line,
    own: Life,
    state: ArchiveState,
    kept: RecordEnds,
    keys: Sequence[EncryptionKey],
) -> Parted | None:
    """The newest record that the archive and the directory both have, if the archive can restore it."""
    ours = [term.number for term in own.terms if term.run in (state.run, state.next_run)]
    if not ours:
        return None
    oldest = max(kept.first, min((piece.first for piece in line.pieces), default=0))
    low, high = oldest - 1, min(own.limit(ours[-1]), own.newest, kept.last)
    # All records up to some number agree, and none after it.
    probe = high
    while low < high:
        if await _agree(store, source, line, probe, kept, keys):
            low = probe
        else:
            high = probe - 1
        probe = (low + high + 1) // 2
    if low < oldest:
        return None
    bases = await read_bases(store, line, keys)
    is_whole = any(base.end <= low <= base.reach for base in bases)
    return Parted(own.life, low) if is_whole else None


async def _agree(
    store: Store,
    source: ArchiveSource,
    line: Line,
    number: int,
    kept: RecordEnds,
    keys: Sequence[EncryptionKey],
) -> bool | None:
    """Whether the directory holds this record of the archive byte for byte. None: one side has it no more."""
    if number > kept.last:
        return False
    here = await asyncio.to_thread(source.record, number)
    try:
        archived = await read_record(store, line, number, keys)
    except ObjectDamaged:
        return False
    except ObjectRefused:  # encrypted with a key that is not here
        return None
    return None if here is None or archived is None else here == archived
