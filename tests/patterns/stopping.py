"""A client that is stopped before one of its requests, as a kill would stop it."""

from collections.abc import Callable
from typing import Any

import pytest
from azure.data.tables import TableClient

REQUESTS = (
    *("get_entity", "create_entity", "upsert_entity", "update_entity", "delete_entity"),
    *("query_entities", "submit_transaction"),
)


class Stopped(BaseException):
    """What a writer meets that is killed."""


def stopped_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Stop the client before its request number `step`; returns how many it has made."""
    made = 0

    def count(send: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made == step:
                raise Stopped
            return send(*arguments, **options)

        return counted

    for name in REQUESTS:
        monkeypatch.setattr(TableClient, name, count(getattr(TableClient, name)))
    return lambda: made
