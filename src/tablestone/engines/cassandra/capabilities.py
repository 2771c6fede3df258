"""The capabilities of this engine, as values. Knows no driver: the registry reads them before a cluster is opened."""

from __future__ import annotations

from typing import Final

from tablestone.engines.capabilities import Caching, Capabilities, Snapshots, StoredIn

LEASE_SECONDS: Final = 0.25
"""A server reads accounts and tables that it uses five to eight times a second; a change takes this much longer."""

CAPABILITIES: Final = Capabilities(
    stored_in=StoredIn.SERVERS,
    processes=True,
    hints=False,
    snapshots=Snapshots.PASSING,
    waits=True,
    caching=Caching.FOR_A_LEASE,
    versions_outlive_rows=True,
)
