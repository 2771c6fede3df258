"""The bench counts the steps of a request on the same connections that the server makes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bench.floor import Constant
from bench.steps import connections


@pytest.mark.asyncio
async def test_steps_are_counted_with_the_options_of_the_server() -> None:
    """By default, uvicorn puts a middleware for proxies before the application; the server switches it off."""
    application = Constant()
    (connection,) = connections(application, 1)
    assert connection.app is cast("Any", application)
    assert connection.config.server_header is False
    assert connection.config.limit_concurrency is not None
