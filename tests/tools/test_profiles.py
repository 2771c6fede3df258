"""Profiles: kept, used, listed and removed, and the permissions of the files with their secrets."""

import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import keyring.errors
import pytest

from tools.data_tools import DataTools


class InMemory(keyring.backend.KeyringBackend):
    """A keyring that works."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture
def no_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
    yield
    keyring.set_keyring(before)


@pytest.fixture
def some_keyring() -> Iterator[InMemory]:
    before, there = keyring.get_keyring(), InMemory()
    keyring.set_keyring(there)
    yield there
    keyring.set_keyring(before)


def file_of(tools: DataTools) -> Path:
    return tools.directory / "profiles" / "profiles.json"


@pytest.mark.usefixtures("no_keyring")
def test_a_profile_in_a_file(tools: DataTools, table: str) -> None:
    text = tools.directory / "connection.txt"
    text.write_text(tools.connection_string)
    printed = tools.run("profile", "add", "mine", "--connection-string", f"@{text}").stdout
    assert printed.endswith("Its secret is in a file of mode 0600.\n")
    again = tools.run("profile", "add", "mine", "--connection-string", f"@{text}").stdout
    assert " It was http://127.0.0.1:" in again
    assert stat.S_IMODE(file_of(tools).stat().st_mode) == 0o600
    tools.connection_string = ""
    assert tools.run("tables", "--profile", "mine", "--create", table).lines == [
        f"Table {table} created."
    ]
    assert table in tools.run("tables", "--profile", "mine").lines
    listed = tools.run("profile", "list").stdout
    assert listed.startswith("mine\thttp://127.0.0.1:")
    assert "AccountKey" not in listed
    tools.run("profile", "remove", "mine")
    assert tools.run("profile", "list").stdout == ""
    refused = tools.run("tables", "--profile", "mine", status=2).stderr
    assert refused == "tablestone: There is no profile 'mine'; there are none yet.\n"
    refused = tools.run("copy", "--from", text, "--to", "local", status=2).stderr
    assert refused.endswith(f"; there are none yet. @{text} reads the connection from the file.\n")


def test_a_profile_in_the_keyring(tools: DataTools, some_keyring: InMemory) -> None:
    printed = tools.run(
        "profile", "add", "mine", "--connection-string", tools.connection_string
    ).stdout
    assert "Its secret is in the keyring." in printed
    key = next(iter(some_keyring.kept.values()))
    assert key in tools.connection_string
    assert key not in file_of(tools).read_text()
    tools.connection_string = ""
    tools.run("tables", "--profile", "mine")
    some_keyring.kept.clear()
    lost = tools.run("tables", "--profile", "mine", status=2).stderr
    assert lost == (
        "tablestone: The keyring does not have the secret of profile 'mine': add the profile again.\n"
    )
    tools.run("profile", "remove", "mine")


@pytest.mark.usefixtures("no_keyring")
def test_a_keyring_that_was_asked_for_is_needed(tools: DataTools) -> None:
    arguments = ("profile", "add", "mine", "--connection-string", tools.connection_string)
    refused = tools.run(*arguments, "--keep-in", "keyring", status=2).stderr
    assert refused.startswith("tablestone: This machine has no keyring that can be used")
    assert not file_of(tools).exists()


@pytest.mark.usefixtures("no_keyring")
def test_a_file_that_others_may_read_is_refused(tools: DataTools) -> None:
    tools.run("profile", "add", "mine", "--connection-string", tools.connection_string)
    file_of(tools).chmod(0o640)
    refused = tools.run("tables", "--profile", "mine", status=2).stderr
    assert "holds secrets and others may read it" in refused


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"url": "x"}}'])
def test_a_file_without_profiles_is_refused(tools: DataTools, content: str) -> None:
    file_of(tools).parent.mkdir()
    file_of(tools).touch(mode=0o600)
    file_of(tools).write_text(content)
    assert "is not a file of profiles." in tools.run("profile", "list", status=2).stderr
