"""The server: sockets, the ASGI application, start and stop. The only layer that knows HTTP arrives from a network."""

from __future__ import annotations
