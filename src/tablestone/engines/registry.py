"""The kinds of engines by the scheme of their URL: those of this package and those of other packages.

A kind is imported when its scheme is first asked for, so a server imports only its own (`engines.kind`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tablestone.engines.capabilities import Capabilities, StoredIn, why_impossible
from tablestone.engines.contract import EngineRefused
from tablestone.engines.kind import CONTRACT, ENTRY_POINTS, EngineKind, EngineUrl, Opening

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from tablestone.clock import Clock
    from tablestone.engines.contract import Engine, StorageId
    from tablestone.engines.kind import EncryptionKey

OWN_KINDS: Final = {
    "sqlite": "tablestone.engines.sqlite.engine",
    "memory": "tablestone.engines.memory",
    "postgresql": "tablestone.engines.postgresql.kind",
    "cassandra": "tablestone.engines.cassandra.kind",
}
"""The modules of this package's kinds, each with a `KIND`, in the order of messages."""


class NoSuchEngine(EngineRefused):
    """No kind of engine has the scheme of the URL."""


def kind_of(scheme: str) -> EngineKind:
    """Import the kind of a scheme. `NoSuchEngine` if there is none; `EngineRefused` if this version cannot use it."""
    if scheme in OWN_KINDS:
        return _checked(scheme, OWN_KINDS[scheme], lambda: _own(scheme))
    for entry_point in _entry_points(scheme):
        return _checked(scheme, entry_point.value, entry_point.load)
    raise NoSuchEngine(f"The engine {scheme!r} is not known.")


def _checked(scheme: str, source: str, load: Callable[[], object]) -> EngineKind:
    try:
        kind = load()
    except Exception as error:  # noqa: BLE001 - another package's code
        why: str | None = f"{source} cannot be imported: {error}"
    else:
        if not isinstance(kind, EngineKind):
            why = f"{source} is no kind of engine"
        elif kind.contract != CONTRACT:
            why = f"it keeps version {kind.contract} of the engine contract, and this Tablestone has version {CONTRACT}"
        elif (why := why_impossible(kind.capabilities)) is None:
            if kind.capabilities.processes == (kind.hold is not None):
                return kind
            why = "several processes may open its storage exactly if it has a `hold`"
    raise EngineRefused(f"The engine {scheme} cannot be used: {why}.")


def capabilities_of(url: str) -> Capabilities:
    """Of the engine that a URL names; it is not opened."""
    return kind_of(EngineUrl.parse(url).scheme).capabilities


def forms() -> list[str]:
    """The forms of URLs, for messages; of other packages' kinds only the scheme."""
    own = [form for scheme in OWN_KINDS for form in _own(scheme).forms]
    others = sorted(entry_point.name for entry_point in _entry_points())
    return own + [f"{scheme}:…" for scheme in others if scheme not in OWN_KINDS]


def open_engine(
    url: str,
    clock: Clock,
    *,
    read_only: bool = False,
    shared: bool = False,
    storage: StorageId | None = None,
    key: EncryptionKey | None = None,
) -> Engine:
    """Open the engine of `url`; `EngineRefused` says why it cannot be opened.

    A `read_only` engine creates, changes and locks nothing, so it can read the storage of a running server; its commits
    raise `EngineUnavailable`. A `shared` engine reads and commits beside a server or without one. Otherwise the engine
    is the server's and keeps other servers out. `storage` is an id from `held_for_processes`: other data in its place
    is refused. `key` encrypts the storage, if one does.
    """
    opening = Opening.SHARED if shared else Opening.SERVER
    opening = Opening.READ_ONLY if read_only else opening
    kind, place = _located(EngineUrl.parse(url), key)
    return kind.open(place, clock, opening, storage, key)


def held_for_processes(
    url: str, key: EncryptionKey | None = None
) -> AbstractContextManager[StorageId]:
    """Prepare the storage of `url` for the processes of one server, and hold it while the block runs.

    Each process opens the storage as shared; no other server gets it until all have ended. Nothing is open in the
    block, so it may fork.
    """
    parsed = EngineUrl.parse(url)
    kind, place = _located(parsed, key)
    if kind.hold is None:
        raise EngineRefused(f"Only one process can have the engine {parsed.shown} open.")
    return kind.hold(place, key)


def _located(url: EngineUrl, key: EncryptionKey | None) -> tuple[EngineKind, str]:
    """The kind and the place of a URL; `EngineRefused` for a key if the engine does not encrypt."""
    try:
        kind = kind_of(url.scheme)
    except NoSuchEngine:
        kind = None
    if kind is not None and url.place is not None:
        keeps_nothing = kind.capabilities.stored_in is StoredIn.PROCESS
        if keeps_nothing != bool(url.place):
            if key is not None and not kind.encrypts:
                raise EngineRefused(
                    f"The engine {url.shown} does not encrypt what it stores: leave the encryption key out."
                )
            return kind, url.place
    own = (_own(scheme).forms[-1] for scheme in OWN_KINDS)
    *first, last = (form if ":" in form else f"{form}:" for form in own)
    raise NoSuchEngine(f"The engine {url.shown!r} is not known: use {', '.join(first)} or {last}.")


def _own(scheme: str) -> EngineKind:
    kind: EngineKind = import_module(OWN_KINDS[scheme]).KIND
    return kind


def _entry_points(scheme: str | None = None) -> EntryPoints:
    """The kinds of other packages; to find them takes longer than all else here."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - loads slowly

    if scheme is None:
        return entry_points(group=ENTRY_POINTS)
    return entry_points(group=ENTRY_POINTS, name=scheme)
