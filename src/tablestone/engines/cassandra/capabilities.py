"""The capabilities of this engine, as values. Knows no driver: the registry reads them before a cluster is opened."""

from __future__ import annotations

from typing import Final

from tablestone.engines.capabilities import Caching, Capabilities, Snapshots, StoredIn

LEASE_SECONDS: Final = 0.25
"""A server asks five to eight times a second whether accounts and tables in use have changed; a change takes this much
longer."""

CAPABILITIES: Final = Capabilities(
    stored_in=StoredIn.SERVERS,
    processes=True,
    hints=False,
    snapshots=Snapshots.PASSING,
    waits=True,
    caching=Caching.FOR_A_LEASE,
    versions_outlive_rows=True,
)
