"""The service's clock: clients' own clocks may be minutes apart."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

MARGIN: Final = timedelta(seconds=5)
"""By how much the clocks of the service's own machines may differ; its Date has whole seconds."""


class ServiceTime:
    """The Date of the last answer: pass it to a client's method as `raw_response_hook`."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)

    def __call__(self, response: Any) -> None:
        self.now = parsedate_to_datetime(response.http_response.headers["Date"])

    def is_older(self, entity: Any, age: timedelta) -> bool:
        """Whether an entity was written so long ago, for sure."""
        written = datetime.fromisoformat(entity.metadata["timestamp"].isoformat())
        return self.now - written > age + MARGIN
