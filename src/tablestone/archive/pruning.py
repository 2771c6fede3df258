"""Removes a whole life from an archive, unless another life needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tablestone.archive.going_back import WRITTEN_SECONDS, MomentRefused
from tablestone.archive.history import Line, ancestors, read_bases, read_lives, restorable
from tablestone.archive.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tablestone.archive.history import Life, Range
    from tablestone.archive.objects import Name
    from tablestone.archive.store import Store
    from tablestone.engines.kind import EncryptionKey

_ORDER: Final = (Kind.BASE, Kind.CHANGES, Kind.JOINED, Kind.TERM)


async def prune(store: Store, keys: Sequence[EncryptionKey], life: str) -> int:
    """Remove a life; returns the number of its objects. `MomentRefused`: it is written, or a child needs it.

    The ends of its base copies go first, each after a look at the other lives: without them no life can begin that
    names this one as its parent. The terms go last, so that an interrupted removal can be repeated.
    """
    removed = 0
    while True:
        lives = await read_lives(store)
        if life not in lives:
            if removed:
                return removed
            raise MomentRefused(f"The archive has no life {life}.")
        await _require_not_needed(store, keys, lives, life)
        names = sorted(lives[life].found, key=lambda name: (_ORDER.index(name.kind), str(name)))
        ends = [name for name in names if name.kind is Kind.BASE and name.part is None]
        rest: list[Name] = names if not ends else ends[:1]
        for name in rest:
            await store.delete(str(name))
        removed += len(rest)


async def _require_not_needed(
    store: Store, keys: Sequence[EncryptionKey], lives: dict[str, Life], life: str
) -> None:
    newest = max(each.written for each in lives.values())
    if len(lives) == 1 or lives[life].written > newest - WRITTEN_SECONDS:
        raise MomentRefused(
            f"The life {life} was written in the last minutes: a server may be writing it."
        )
    without = {name: each for name, each in lives.items() if name != life}
    for child in without:
        parted = ancestors(lives, child).get(life)
        if parted is None:
            continue
        if await _moments(store, keys, lives, child, parted) != await _moments(
            store, keys, without, child, parted
        ):
            raise MomentRefused(
                f"The life {child} goes on from the life {life} and needs it for some of its moments: remove {child} "
                "first, or wait until these are older than --archive-keep."
            )


async def _moments(
    store: Store, keys: Sequence[EncryptionKey], lives: dict[str, Life], child: str, parted: int
) -> list[Range]:
    ranges = restorable(await read_bases(store, Line.of(lives, child), keys))
    return [
        each._replace(first=max(each.first, parted + 1)) for each in ranges if each.last > parted
    ]
