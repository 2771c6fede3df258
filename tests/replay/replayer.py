"""Replays recordings in order and says of each exchange how it went.

Each recording starts from an empty account. Exchanges out of reach are counted by class; the writes
among them are performed, because later exchanges show what they wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .account import Account
from .bindings import Bindings
from .comparison import Comparison
from .outgoing import request_to_send
from .reach import class_out_of_reach, performs_anyway
from .settings import FRESH_PROPERTIES, properties_before
from .shared_access import with_policies_in_force

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .cassettes import Exchange, Recording
    from .comparison import Difference
    from .outgoing import Request
    from .target import Answer, Target


@dataclass(frozen=True)
class Outcome:
    """Of one exchange: out of reach (by class), or compared, with the differences found."""

    exchange: Exchange
    out_of_reach: str | None
    differences: tuple[Difference, ...] = ()

    @property
    def is_identical(self) -> bool:
        return self.out_of_reach is None and not self.differences

    def __str__(self) -> str:
        exchange = self.exchange
        query = f"?{exchange.query}" if exchange.query else ""
        lines = [f"{exchange.name} {exchange.method} {exchange.path}{query}"]
        return "\n    ".join([*lines, *map(str, self.differences)])


def replay_all(recordings: Iterable[Recording], target: Target) -> dict[str, list[Outcome]]:
    """Outcomes by recording. Deletes the account's tables before each one and after the last, and
    sets its service properties.
    """
    account = Account(target)
    outcomes = {}
    for recording in map(with_policies_in_force, recordings):
        account.clear()
        account.set_properties(properties_before(recording))
        outcomes[recording.name] = replay(recording, target, account)
    account.clear()
    account.set_properties(FRESH_PROPERTIES)
    return outcomes


def replay(recording: Recording, target: Target, account: Account) -> list[Outcome]:
    bindings = Bindings()
    outcomes = []
    for exchange in recording.exchanges:
        out_of_reach = class_out_of_reach(exchange)
        if out_of_reach is None or performs_anyway(exchange):
            account.align(exchange)
            request = request_to_send(exchange, bindings, target.endpoint)
            answer = perform(exchange, request, target)
            account.follow(exchange)
            comparison = Comparison(exchange, request, answer, target, bindings)
            # Run for its bindings even where its differences are not asked for.
            differences = comparison.run()
            if out_of_reach is None:
                outcomes.append(Outcome(exchange, None, tuple(differences)))
                continue
        outcomes.append(Outcome(exchange, out_of_reach))
    return outcomes


def perform(exchange: Exchange, request: Request, target: Target) -> Answer:
    # The one request that the recordings signed with a wrong key shows by its answer; its signature
    # was scrubbed.
    wrong_key = exchange.status == 403 and b"AuthenticationFailed" in exchange.body
    return target.send(
        request.method,
        request.path,
        request.query,
        request.headers,
        request.body,
        wrong_key=wrong_key,
        secondary=request.secondary,
    )
