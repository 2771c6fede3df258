"""Opens the archive that a server writes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tablestone.archive import base_copy, comparing, upkeep
from tablestone.archive.archiver import Archiver, Work
from tablestone.archive.store import StoreRefused, open_store
from tablestone.engines.contract import EngineRefused
from tablestone.engines.sqlite.data_directory import CHECKED_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tablestone.configuration import ArchiveSettings
    from tablestone.engines.sqlite.archive_source import ArchiveSource

WORKS: Final = tuple(
    Work(*each)
    for each in (
        (base_copy.next_due, base_copy.write),
        (upkeep.next_due, upkeep.look_after),
        (comparing.next_due, comparing.check_itself),
    )
)

log = logging.getLogger(__name__)


def open_archiver(
    settings: ArchiveSettings,
    directory: Path,
    source: ArchiveSource,
    ticks: Callable[[], int],
    elapsed: Callable[[], float],
) -> Archiver:
    """Raises `EngineRefused` if the archive's URL cannot be used."""
    try:
        store = open_store(settings.url, directory)
    except StoreRefused as refused:
        raise EngineRefused(str(refused)) from None
    if not settings.keys:
        log.warning(
            "The archive %s is not encrypted: the keys of stored accounts and the secret that signs tokens lie in it "
            "in clear. --archive-key-file encrypts it.",
            settings.url,
        )
    scratch = directory / CHECKED_NAME
    return Archiver(store, source, settings, ticks, elapsed, scratch, WORKS)
