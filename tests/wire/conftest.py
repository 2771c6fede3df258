"""The fixtures of the wire tests: a fresh service for each case, and one live server."""

from collections.abc import Iterator

import pytest

from wire.service_under_test import ServiceUnderTest


@pytest.fixture
def service() -> Iterator[ServiceUnderTest]:
    """An empty service in this process."""
    service = ServiceUnderTest()
    yield service
    service.close()
