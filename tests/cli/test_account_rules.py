"""`tablestone account set`: the rules of an account, what asks or refuses, and where else they are told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cli.account_command import account
from cli.command_line import in_this_process
from tablestone.cli.commands.serve import _warn
from tablestone.cli.option_sources import read_configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "a2V5IG9uZQ=="
FORMAT = "The data directory {data} has format 4 now: earlier versions of Tablestone refuse it, for good.\n"
ROLE = ("role", "assign", "Storage Table Data Reader", "--principal", "a", "--account", "weather")


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    """A directory with the account weather."""
    data = tmp_path / "data"
    account(data, "create", "weather")
    return data


def told(data: Path, *words: str) -> str:
    ended, printed, errors = in_this_process(*words, "--data", str(data))
    assert (ended, errors) == (0, "")
    return printed


def test_rules_are_set_shown_and_removed(weather: Path) -> None:
    before = account(weather, "show", "weather")
    assert account(weather, "set", "weather", "--allow", "127.0.0.1,fd00::/8") == (
        "Admitted to weather: 127.0.0.1/32, fd00::/8.\n" + FORMAT.format(data=weather)
    )
    assert account(weather, "set", "weather", "--shared-key", "off", "--yes") == (
        "The shared key of weather is off.\n"
    )
    shown = account(weather, "show", "weather")
    assert "\nshared key: off\nallowed addresses: 127.0.0.1/32, fd00::/8\nkey1: (hidden)" in shown
    account(weather, "rotate-key", "weather", "1")
    assert account(weather, "show", "weather") == shown
    assert account(weather, "set", "weather", "--allow", "all", "--shared-key", "on") == (
        "The shared key of weather is on.\nAdmitted to weather: every address.\n"
    )
    assert account(weather, "show", "weather") == before
    assert told(weather, "check").endswith("healthy\n")
    assert "format 4, which is the newest" in told(weather, "upgrade")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Say what to set: --shared-key off or on, or --allow RANGES."),
        (("--allow", ""), "--allow has '', which is no address and no range"),
        (("--allow", "127.0.0.1,"), "--allow has '', which is no address and no range"),
        (("--allow", "10.0.0.1/8"), "10.0.0.1/8, an address with bits after the prefix: write"),
        (("--allow", "weather.example"), "has 'weather.example', which is no address"),
        (
            ("--allow", ",".join(f"10.0.{number}.0/24" for number in range(100))),
            "--allow has 100 ranges, and an account has at most 64",
        ),
        (("--allow", "192.0.2.0/24"), "No range holds an address of this machine"),
        (("--shared-key", "off"), "No role is assigned in weather"),
        (("--shared-key", "maybe"), "'maybe' is not one of 'off', 'on'"),
    ],
)
def test_what_is_refused_changes_nothing(
    weather: Path, words: Sequence[str], sentence: str
) -> None:
    before = account(weather, "show", "weather")
    error = account(weather, "set", "weather", *words, status=2)
    assert sentence in error
    assert account(weather, "show", "weather") == before
    assert "format 1 " in told(weather, "upgrade")


def test_an_account_that_is_not_stored(weather: Path) -> None:
    words = ("set", "nobody", "--allow", "127.0.0.1")
    assert account(weather, *words, status=2) == (
        "tablestone: There is no stored account nobody.\n"
    )
    configured = account(
        *(weather, "set", "weather", "--allow", "127.0.0.1"),
        status=2,
        environment={"TABLESTONE_ACCOUNT": f"weather:{KEY}"},
    )
    assert configured == (
        "tablestone: The account weather is configured, in the environment or a file: its rules stand there, "
        "beside its key.\n"
    )


def test_yes_and_roles_and_the_own_address(weather: Path) -> None:
    assert told(weather, *ROLE)
    account(weather, "set", "weather", "--shared-key", "off")  # a role is given
    account(weather, "set", "weather", "--allow", "192.0.2.0/24", "--yes")
    account(  # the address from which its user came by SSH
        *(weather, "set", "weather", "--allow", "198.51.100.0/24"),
        environment={"SSH_CONNECTION": "198.51.100.7 50000 10.0.0.1 22"},
    )
    shown = account(weather, "show", "weather")
    assert "allowed addresses: 198.51.100.0/24\n" in shown


def test_it_asks_at_a_terminal(weather: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("tablestone.cli.commands.account.sys", terminal)
    words = ("account", "set", "weather", "--allow", "192.0.2.0/24", "--data", str(weather))
    monkeypatch.setattr("click.confirm", lambda *_words, **_options: False)
    status, _, errors = in_this_process(*words)
    assert (status, "Nothing was changed." in errors) == (2, True)
    monkeypatch.setattr("click.confirm", lambda *_words, **_options: True)
    assert in_this_process(*words)[0] == 0


def test_a_backup_has_the_rules_and_a_restore_tells_them(weather: Path, tmp_path: Path) -> None:
    account(weather, "set", "weather", "--allow", "127.0.0.1")
    backup, restored = tmp_path / "backup.db", tmp_path / "restored"
    told(weather, "backup", str(backup))
    printed = told(restored, "restore", str(backup))
    assert printed.endswith(
        "Rules of accounts, which act at once:\n  weather: allowed addresses: 127.0.0.1/32\n"
    )
    assert "allowed addresses: 127.0.0.1/32" in account(restored, "show", "weather")
    assert "format 4, which is the newest" in told(restored, "upgrade")


@pytest.mark.parametrize(("proxy", "is_told"), [("10.0.0.5", True), ("192.0.2.1", False)])
def test_a_range_that_holds_a_trusted_proxy_is_warned_of(
    proxy: str, caplog: pytest.LogCaptureFixture, *, is_told: bool
) -> None:
    given = {"trusted_proxy": (proxy,), "account": (f"weather:{KEY},allow=10.0.0.0/8",)}
    configuration = read_configuration(given, {})
    _warn(configuration, list(configuration.accounts), None)
    warned = f"weather allows an address of the trusted proxy {proxy}: a request" in caplog.text
    assert warned == is_told
