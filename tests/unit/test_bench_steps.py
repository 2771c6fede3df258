"""The steps of a request are counted on connections as the server makes them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bench.floor import Constant
from bench.steps import connections


@pytest.mark.asyncio
async def test_steps_are_counted_with_the_options_of_the_server() -> None:
    """Of itself uvicorn puts a middleware for proxies before the application; the server tells it not to."""
    application = Constant()
    (connection,) = connections(application, 1)
    assert connection.app is cast("Any", application)
    assert connection.config.server_header is False
    assert connection.config.limit_concurrency is not None
