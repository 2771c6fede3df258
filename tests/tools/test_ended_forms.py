"""`tools.own_forms`: only what a server says to have done counts as done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tablestone.tools.errors import TransferFailed
from tablestone.tools.own_forms import FAILED, SPENT, change_expiry, counted

if TYPE_CHECKING:
    from tablestone.tools.client import TableEndpoint


def endpoint(state: str) -> TableEndpoint:
    """A server whose counts and changes end so."""
    members = {"count": "0" * 16, "state": state}
    answer = SimpleNamespace(members=members)
    return cast("TableEndpoint", SimpleNamespace(own_form=lambda *_, **__: answer))


@pytest.mark.parametrize(
    ("state", "sentence"), [("spent", SPENT), ("failed", FAILED), ("counted", FAILED)]
)
def test_a_change_that_was_not_made(state: str, sentence: str) -> None:
    with pytest.raises(TransferFailed) as refused:
        change_expiry(endpoint(state), "Orders", {"after": 60}, "token")
    assert str(refused.value) == sentence
    change_expiry(endpoint("changed"), "Orders", {"after": 60}, "token")


@pytest.mark.parametrize("state", ["failed", "changed"])
def test_a_count_that_was_not_made(state: str) -> None:
    with pytest.raises(TransferFailed) as refused:
        counted(endpoint(state), "Orders", {"after": 60})
    assert str(refused.value) == FAILED
