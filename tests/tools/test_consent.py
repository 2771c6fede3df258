"""The question before a deletion: when a person is asked, and which answer allows it."""

import io

import pytest

from tablestone.cli.data_options import require_consent
from tablestone.tools.connection import Connection, local_connection, parse_connection_string
from tablestone.tools.errors import TransferRefused

PRODUCTION = parse_connection_string("AccountName=weather;AccountKey=c2VjcmV0")


class Terminal(io.StringIO):
    """A terminal with a person who types."""

    def isatty(self) -> bool:
        return True


def is_allowed(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, typed: str | None, *, yes: bool = False
) -> bool:
    """Whether the deletion goes on. Without `typed` there is no terminal."""
    monkeypatch.setattr("sys.stdin", io.StringIO() if typed is None else Terminal(typed))
    try:
        require_consent(connection, "Deleting all entities of Weather", yes=yes)
    except TransferRefused:
        return False
    return True


@pytest.mark.parametrize(
    ("connection", "typed", "allowed"),
    [
        (local_connection(), None, False),
        (local_connection(), "y\n", True),
        (local_connection(), "n\n", False),
        (local_connection(), "\n", False),
        (PRODUCTION, None, False),
        (PRODUCTION, "y\n", False),
        (PRODUCTION, "weather\n", True),
        (PRODUCTION, "\n", False),
    ],
)
def test_an_answer(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    connection: Connection,
    typed: str | None,
    allowed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert is_allowed(monkeypatch, connection, typed) is allowed
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("connection", [local_connection(), PRODUCTION])
def test_yes_asks_nothing(monkeypatch: pytest.MonkeyPatch, connection: Connection) -> None:
    assert is_allowed(monkeypatch, connection, None, yes=True)
