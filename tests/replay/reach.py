"""Which exchanges wait for a later issue, by class. To bring a class in reach, delete its row.

An exchange out of reach is not compared. Where it changed the state that later exchanges show (a
row inserted with a token), it is performed with the account's key all the same: `performs_anyway`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cassettes import Exchange


@dataclass(frozen=True)
class OutOfReach:
    name: str
    why: str
    holds: Callable[[Exchange], bool]


# In this order; the first that holds names the exchange's class.
OUT_OF_REACH: tuple[OutOfReach, ...] = (
    OutOfReach(
        "bearer",
        "the whole recording was made with Entra ID tokens (auth A.4)",
        lambda exchange: exchange.recording.startswith("test_table_aad"),
    ),
)


def class_out_of_reach(exchange: Exchange) -> str | None:
    """The name of the class that keeps the exchange out of reach, or None."""
    return next((row.name for row in OUT_OF_REACH if row.holds(exchange)), None)


def performs_anyway(exchange: Exchange) -> bool:
    """True for the successful OData writes among the exchanges out of reach: what follows them
    reads what they wrote.
    """
    return (
        exchange.status < 400
        and exchange.method not in {"GET", "HEAD"}
        and "comp=" not in exchange.query
    )
