"""Replays recordings in order, and collects the result of each exchange.

Each recording starts with an empty account, and all of its exchanges are sent and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .account import Account
from .bearer import has_token, token_for
from .bindings import Bindings
from .comparison import AnswerComparison
from .outgoing import request_to_send
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
    """The result of one exchange: the differences found."""

    exchange: Exchange
    differences: tuple[Difference, ...]

    @property
    def is_identical(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        exchange = self.exchange
        query = f"?{exchange.query}" if exchange.query else ""
        lines = [f"{exchange.name} {exchange.method} {exchange.path}{query}"]
        return "\n    ".join([*lines, *map(str, self.differences)])


def replay_all(recordings: Iterable[Recording], target: Target) -> dict[str, list[Outcome]]:
    """Outcomes by recording.

    Deletes the account's tables before each one and after the last, and sets its service properties.
    """
    account = Account(target)
    outcomes = {}
    for recording in map(with_policies_in_force, recordings):
        account.begin(recording)
        account.set_properties(properties_before(recording))
        outcomes[recording.name] = replay(recording, target, account)
    account.clear()
    account.set_properties(FRESH_PROPERTIES)
    return outcomes


def replay(recording: Recording, target: Target, account: Account) -> list[Outcome]:
    bindings = Bindings()
    outcomes = []
    for exchange in recording.exchanges:
        account.align(exchange)
        request = request_to_send(exchange, bindings, target.endpoint)
        answer = perform(exchange, request, target)
        account.follow(exchange)
        comparison = AnswerComparison(exchange, request, answer, target, bindings)
        outcomes.append(Outcome(exchange, tuple(comparison.run())))
    return outcomes


def perform(exchange: Exchange, request: Request, target: Target) -> Answer:
    # The recordings signed one request with a wrong key, which its answer shows; its signature was scrubbed.
    wrong_key = exchange.status == 403 and b"AuthenticationFailed" in exchange.body
    # A server that does not accept the tests' tokens gets requests signed with the account's key.
    token = None
    if target.token_key is not None and has_token(exchange):
        token = token_for(target.token_key, exchange)
    return target.send(
        request.method,
        request.path,
        request.query,
        request.headers,
        request.body,
        wrong_key=wrong_key,
        secondary=request.secondary,
        token=token,
    )
