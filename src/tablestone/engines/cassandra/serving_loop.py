"""The event loop that a server runs on, as far as the sockets to the nodes have to know it. Knows no driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Protocol


class MovedSocket(Protocol):
    """A socket that the event loop serves."""

    def give_back(self) -> None:
        """Let the driver's thread serve the socket again."""


class ServingLoop:
    """The event loop that serves the sockets of one session, and its thread; none while no server runs."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0
        self.sockets: set[MovedSocket] = set()

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let the running event loop serve the sockets, unless one does already."""
        if self.loop is not None:
            yield
            return
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        try:
            yield
        finally:
            self.loop, self.thread = None, 0
            with ExitStack() as rest:  # an error of one does not keep the others
                for moved in tuple(self.sockets):
                    rest.callback(moved.give_back)

    def is_here(self) -> bool:
        """Whether this thread is the one of the event loop."""
        return get_ident() == self.thread
