"""Expiry policies as values; `tests/storage/test_expiry.py` has which values of a property have ended."""

from typing import Any

import pytest

from tablestone.model.entity_json import read_raw
from tablestone.model.expiry import ExpiryPolicy


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"after": 0},
        {"after": -1},
        {"after": "24h"},
        {"after": 1.5},
        {"property": 5},
        {"after": 60, "property": "expires"},
        {"suspended": True},
    ],
)
def test_an_object_that_is_no_policy_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="neither an age nor a property"):
        ExpiryPolicy.from_members(members)


@pytest.mark.parametrize("suspended", [False, True])
def test_while_a_policy_is_suspended_nothing_has_ended(*, suspended: bool) -> None:
    """The data tools decide by this alone; when an entity would expire is known all the same."""
    policy = ExpiryPolicy(property_name="expires", suspended=suspended)
    raw = read_raw(b'{"PartitionKey":"p","RowKey":"r","expires":5}')
    end = policy.end_of(raw)
    assert end is not None
    assert [policy.has_ended(raw, now) for now in (end - 1, end)] == [False, not suspended]
