"""Indexes and expiry of a Tablestone server over the wire: ask, and wait until the server has done it.

The server works beside requests, so each call polls its state. docs/protocol/indexes.md has the requests.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Self

from tablestone.tools.client import TableEndpoint
from tablestone.tools.errors import ServiceError, TransferFailed, TransferRefused, Unreachable

POLL_SECONDS: Final = 0.3
POLLS_BEFORE_WORDS: Final = 30
COUNT_POLLS_MAX: Final = 200
"""About a minute: a transfer that only mentions what is hidden does not wait longer."""
WAITS: Final = (
    "The server does not go on just now: it is busy, or its disk is full. It continues by itself."
)
FAILED: Final = "The server could not do it: its log says why."
SPENT: Final = "The policy or the table was changed meanwhile. Nothing was changed now."


def done_index(
    endpoint: TableEndpoint,
    table: str,
    name: str,
    progress: Callable[[int], None],
    tell: Callable[[str], None],
) -> Mapping[str, Any] | None:
    """The index when the server has made it; None if it is gone. `tell` gets a sentence if the server waits."""
    polls = 0
    while True:
        found = endpoint.own_form("GET", table, "indexes").members["indexes"]
        index = next((each for each in found if each["property"] == name), None)
        if index is None or index["state"] in ("ready", "broken"):
            return index
        progress(index.get("entities", 0))
        polls = polls + 1 if index.get("waits") else 0
        if polls == POLLS_BEFORE_WORDS:
            tell(WAITS)
        time.sleep(POLL_SECONDS)


def counted(endpoint: TableEndpoint, table: str, policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a policy would hide, with the token for `change_expiry`."""
    answer = endpoint.own_form("POST", table, "expiry", policy)
    found = _settled(endpoint, table, answer.members["count"])
    if found["state"] != "counted":
        raise TransferFailed(FAILED)
    return found


def change_expiry(
    endpoint: TableEndpoint, table: str, policy: Mapping[str, Any] | None, token: str | None = None
) -> None:
    """Set a policy that was counted, suspend the present one (`{"suspended": True}`), or remove it (None)."""
    method = "DELETE" if policy is None else "PUT"
    members = endpoint.own_form(method, table, "expiry", policy, token=token).members
    if "count" in members:
        state = _settled(endpoint, table, members["count"])["state"]
        if state != "changed":
            raise TransferFailed(SPENT if state == "spent" else FAILED)


@dataclass
class Unseen:
    """What a client does not receive of a table: entities that have expired, indexes, and stored access policies.

    `hidden` is None if the server does not say how many have expired; `policies`, by id, if it does not show them.
    """

    hidden: int | None = 0
    indexes: list[str] = field(default_factory=list)
    policies: dict[str, str] | None = None

    def policies_not_in(self, other: Self) -> dict[str, str]:
        """The policies that the other table has not, or otherwise; none if that is unknown."""
        if self.policies is None or other.policies is None:
            return {}
        return dict(self.policies.items() - other.policies.items())

    def sentences(self, where: str = "") -> list[str]:
        """Say that the hidden entities were left out of all that was read."""
        if self.hidden is None:
            return [
                f"Entities that have expired{where} are hidden, and left out. How many, the server does not say."
            ]
        if not self.hidden:
            return []
        words = "entity has" if self.hidden == 1 else "entities have"
        return [f"{self.hidden:,} more {words} expired{where}: hidden, and left out."]


def unseen(endpoint: TableEndpoint, table: str) -> Unseen:
    """What the server keeps of a table, and shows to no client."""
    found = Unseen(indexes=[each.property for each in endpoint.indexes(table) or ()])
    with suppress(ServiceError, TransferFailed, Unreachable):
        stored = endpoint.ask(lambda sdk: sdk.get_table_client(table).get_table_access_policy())
        found.policies = {
            name: f"{sorted((each and each.permission) or '')} {each and each.start} {each and each.expiry}"
            for name, each in stored.items()
        }
    policy = endpoint.expiry(table)
    if policy is not None and not policy.suspended:
        found.hidden = None
        # It may be too old to count, or far away over plain HTTP.
        with suppress(ServiceError, TransferFailed, TransferRefused, Unreachable):
            answer = endpoint.own_form("POST", table, "expiry", policy.members())
            settled = _settled(endpoint, table, answer.members["count"], COUNT_POLLS_MAX)
            found.hidden = settled.get("hidden")
    return found


def _settled(
    endpoint: TableEndpoint, table: str, count: str, polls_max: float = inf
) -> Mapping[str, Any]:
    polls = 0
    while True:
        found = endpoint.own_form("GET", table, "expiry", count=count).members
        polls += 1
        if found["state"] not in ("counting", "changing") or polls > polls_max:
            return found
        time.sleep(POLL_SECONDS)
