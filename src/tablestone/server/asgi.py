"""The types of ASGI that the server and its applications use."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
"""A request's scope, or one message of a connection."""
Receive = Callable[[], Awaitable[Message]]
"""Waits for the next message of the client: a piece of the body, or its end."""
Send = Callable[[Message], Awaitable[None]]
"""Takes the next message of the answer: its start, or a piece of its body."""
AsgiApplication = Callable[[Message, Receive, Send], Awaitable[None]]
