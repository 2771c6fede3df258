"""A server, and one client whose connection lives long; memory at the end is compared with that of the beginning."""

import ssl
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from server_process import start_server
from stress.long_life.one_connection import OneConnection
from stress.soak.measures import memory_mib

YOUTH: Final = 5_000
"""Requests after which the server's caches are full."""
NARROW: Final = ("--max-connections=16", "--max-requests=16", "--max-buffers=20")
"""A slot that is taken and never released would lock the client out after a few requests."""
GROWTH_MIB_MAX: Final = 4.0
"""44 bytes for each of 95,000 requests. `test_memory.py` finds what a single kind of request leaves."""


@dataclass
class Lived:
    """The result of a run, and a sentence for each problem."""

    requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def live(data: Path, requests: int, seed: int, *, workers: int = 1, tls: bool = False) -> Lived:
    """Send so many requests on one connection to a server on this directory."""
    lived = Lived()
    server = start_server(
        data, f"--workers={workers}", *NARROW, *(["--tls=self-signed"] if tls else [])
    )
    try:
        trusted = None
        if tls:
            trusted = ssl.create_default_context(cafile=str(data / "tls" / "certificate.pem"))
        client = OneConnection(server, seed, trusted)
        try:
            client.run(min(YOUTH, requests))
            young = memory_mib(server.process.pid)
            client.run(requests)
            old = memory_mib(server.process.pid)
        except AssertionError as wrong:
            lived.problems.append(str(wrong))
        else:
            if old - young > GROWTH_MIB_MAX:
                lived.problems.append(f"memory grew from {young:.1f} to {old:.1f} MiB")
        finally:
            client.close()
        lived.requests, lived.kinds = client.requests, client.kinds
        status = server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()
    # The log has one line a minute about the wrong signatures.
    strange = [line for line in server.stderr_lines if "authentication failed" not in line]
    if status or strange:
        lived.problems.append(f"the server ended with {status}: {''.join(strange)[-2000:]}")
    return lived
