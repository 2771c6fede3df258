"""The limit of open files of a process (RLIMIT_NOFILE), and the number of connections that it has room for.

Knows no connection.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import Final

from tablestone.configuration import AdmissionLimits

logger = logging.getLogger(__name__)

OTHER_FILES: Final = 100
"""Descriptors kept for all else: a worker has about 30, of its files, its event loop and its channel."""
OTHER_FILES_SHARE: Final = 4
"""Where only few files may be open, one in four is kept for all else."""
BURST: Final = 1.5
"""Descriptors for each connection of the limit: those above it are for connections that come while none is idle."""


def allow_connections(limits: AdmissionLimits, workers: int) -> AdmissionLimits:
    """Raise the soft limit of open files, often 1,024, as far as this process may, and return limits that fit.

    If even the hard limit has no room for the connections, there are fewer, and a warning says so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.connections_max + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return limits
    fitting = connections_of(soft)
    if fitting * workers >= limits.connections_max:
        return limits
    logger.warning(
        "The limit of connections is %d and not %d, because each process may have only %d files open: raise the hard "
        "limit (ulimit -Hn, LimitNOFILE of systemd).",
        fitting * workers,
        limits.connections_max,
        soft,
    )
    return replace(limits, connections_max=fitting * workers)


def connections_of(files: int) -> int:
    """The connections of a process that may have so many files open."""
    left = files - min(OTHER_FILES, files // OTHER_FILES_SHARE)
    return max(1, int(left / BURST))
