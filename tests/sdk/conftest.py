"""The server that the SDK tests speak to, and the skip for a language that is not prepared."""

from __future__ import annotations

from typing import Protocol, cast

import pytest

from sdk.endpoint import Endpoint, endpoint_from_environment


class RunningServer(Protocol):
    endpoint: str
    account_name: str
    account_key: str


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """A server of our own, or the one that TABLESTONE_TEST_ENDPOINT names (Azurite, Azure)."""
    elsewhere = endpoint_from_environment()
    if elsewhere is not None:
        return elsewhere
    server = cast("RunningServer", request.getfixturevalue("tablestone_server"))
    return Endpoint(server.endpoint.rstrip("/"), server.account_name, server.account_key)
