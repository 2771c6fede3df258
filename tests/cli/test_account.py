"""`tablestone account` beside a running server of several processes and without one, and the keys that it prints."""

import re
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.account_command import WORKERS, account, connections, made, status_of
from cli.command_line import in_this_process
from server_process import COMMAND, ServerProcess
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY

KEY = "a2V5IG9uZQ=="
OTHER_KEY = "a2V5IHR3bw=="
THIRD_KEY = "a2V5IHRocmVl"

StartServer = Callable[..., ServerProcess]


def keys_of(data: Path, name: str) -> list[str]:
    return re.findall(r"^key\d: (\S+)$", account(data, "show", name, "--keys"), re.MULTILINE)


def statuses(server: ServerProcess, name: str, key: str) -> set[int]:
    """The statuses of a signed request, one from every process."""
    with connections(server) as opened:
        return {status_of(connection, name, key) for connection in opened}


@pytest.mark.slow
def test_accounts_are_known_refused_and_changed_on_the_next_request_of_every_process(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers", str(WORKERS))
    with connections(server) as opened:

        def asked(key: str) -> set[int]:
            return {status_of(connection, "weather", key) for connection in opened}

        assert asked(KEY) == {404}
        account(tmp_path, "create", "weather", "--key-file", "-", keys=f"{KEY}\n{OTHER_KEY}\n")
        assert asked(KEY) == {200}
        assert asked(OTHER_KEY) == {200}
        for _ in range(3):
            account(tmp_path, "rotate-key", "weather", "1")
            assert asked(KEY) == {403}
            assert asked(OTHER_KEY) == {200}
            account(tmp_path, "rotate-key", "weather", "1", "--key-file", "-", keys=KEY)
            assert asked(KEY) == {200}
        assert status_of(opened[0], "weather", KEY, "POST", '{"TableName":"tab"}') == 201
        refused = account(tmp_path, "delete", "weather", status=2)
        assert refused == ("tablestone: The account weather has 1 table: --force deletes it too.\n")
        assert asked(KEY) == {200}
        printed = account(tmp_path, "delete", "weather", "--force")
        assert printed == "Account weather deleted, and 1 table with it.\n"
        assert asked(KEY) == {404}
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {200}
    assert server.stop() == 0
    assert server.stderr_without("authentication failed") == ""


@pytest.mark.slow
def test_accounts_are_made_before_the_first_server_and_kept(
    private_server: StartServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    printed = account(data, "create", "weather")
    assert printed == (
        f"Account weather created. To print its keys: tablestone account show weather --keys --data {data}\n"
    )
    command = shlex.split(printed.partition("To print its keys: tablestone ")[2])
    assert (
        "key2: "
        in subprocess.run([COMMAND, *command], capture_output=True, text=True, check=True).stdout
    )
    account(data, "create", "bikes", "--key-file", "-", keys=KEY)
    assert account(data, "list") == "bikes\nweather\n"
    first, second = keys_of(data, "weather")
    assert {len(first), len(second)} == {88}
    assert keys_of(data, "bikes")[0] == KEY
    for path in data.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    for _ in range(2):
        server = private_server(data)
        assert statuses(server, "weather", first) == {200}
        assert statuses(server, "bikes", KEY) == {200}
        printed = "".join(server.stdout)
        port = urlsplit(server.endpoint).port
        assert re.findall("^Table endpoint: (.*)$", printed, re.MULTILINE) == [
            f"http://127.0.0.1:{port}/{name}" for name in ("bikes", "weather", "devstoreaccount1")
        ]
        assert "AccountName=weather;AccountKey=<key of weather>;" in printed
        assert server.stop() == 0
        (warning,) = server.stderr.splitlines()
        assert warning.endswith(
            " WARNING tablestone.cli.commands.serve: devstoreaccount1 is open besides the stored accounts, "
            "and its key is public: --account none closes it."
        )


@pytest.mark.slow
def test_no_key_is_printed_or_logged_unasked(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--log-level", "debug")
    printed = [
        account(tmp_path, "create", "weather", "--key-file", "-", keys=f"{KEY} {OTHER_KEY}"),
        account(tmp_path, "show", "weather"),
        account(tmp_path, "list"),
        account(tmp_path, "create", "weather", "--key-file", "-", keys=KEY, status=2),
        account(tmp_path, "create", "other", "--key-file", "-", keys="s3cret!", status=2),
        account(tmp_path, "create", "other", "--key-file", "-", keys=f"{KEY}\n" * 3, status=2),
    ]
    assert statuses(server, "weather", KEY) == {200}
    assert statuses(server, "weather", "d3Jvbmc=") == {403}
    rotation = ("rotate-key", "weather", "2", "--key-file", "-")
    printed.append(account(tmp_path, *rotation, keys=KEY, status=2))
    assert statuses(server, "weather", OTHER_KEY) == {200}
    printed.append(account(tmp_path, *rotation, keys=THIRD_KEY))
    assert statuses(server, "weather", OTHER_KEY) == {403}
    assert server.stop() == 0
    everything = "".join(printed) + "".join(server.stdout) + server.stderr
    for key in (KEY, OTHER_KEY, THIRD_KEY, "s3cret"):
        assert key not in everything
    assert "key1: (hidden)" in everything


def test_stored_accounts_alone(private_server: StartServer, tmp_path: Path) -> None:
    account(tmp_path, "create", "weather", "--key-file", "-", keys=KEY)
    server = private_server(tmp_path, "--account", "none", "--host", "0.0.0.0")
    assert statuses(server, "weather", KEY) == {200}
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {404}
    assert server.stop() == 0
    assert server.stderr == "", "no key that everybody knows"


def test_a_configured_account_overrides_a_stored_one_and_the_command_says_so(
    private_server: StartServer, tmp_path: Path
) -> None:
    environment = {"TABLESTONE_ACCOUNT": f"weather:{KEY}"}
    printed = account(
        tmp_path, "create", "weather", "--key-file", "-", keys=OTHER_KEY, environment=environment
    )
    assert printed.endswith(
        "An account weather is also configured, in the environment or a file. A server with this "
        "configuration uses the configured account.\n"
    )
    server = private_server(tmp_path, environment=environment)
    assert statuses(server, "weather", KEY) == {200}
    assert statuses(server, "weather", OTHER_KEY) == {403}


@pytest.mark.slow
def test_a_stored_development_account_has_its_own_keys_alone(
    private_server: StartServer, tmp_path: Path
) -> None:
    printed = account(tmp_path, "create", "devstoreaccount1", "--key-file", "-", keys=KEY)
    assert printed.endswith(
        "\nThe public key, that of UseDevelopmentStorage=true, is refused from now on. To accept it again and "
        "keep the tables, make it a key of this account: tablestone account rotate-key devstoreaccount1 "
        f"1 --key-file FILE --data {tmp_path}\n"
    )
    server = private_server(tmp_path)
    assert server.account_key == "<key of devstoreaccount1>"
    assert statuses(server, "devstoreaccount1", KEY) == {200}
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {403}
    rotation = ("rotate-key", "devstoreaccount1", "1", "--key-file", "-")
    account(tmp_path, *rotation, keys=DEVELOPMENT_ACCOUNT_KEY)
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {200}
    assert server.stop() == 0
    assert server.stderr_without("authentication failed") == ""
    server = private_server(tmp_path, "--host", "0.0.0.0")
    assert server.account_key == "<key of devstoreaccount1>"
    assert server.stop() == 0
    assert server.stderr.endswith(" Give the accounts keys of your own.\n"), (
        "it is open to all again"
    )


@pytest.mark.slow
def test_tables_of_an_earlier_account_of_the_name_are_mentioned(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--account", f"weather:{KEY}")
    with connections(server) as opened:
        assert status_of(opened[0], "weather", KEY, "POST", '{"TableName":"tab"}') == 201
    server.stop()
    printed = account(tmp_path, "create", "weather")
    assert printed.endswith(
        "\nIt has 1 table, created under that name before. `account delete` refuses while there are tables; with "
        "--force it deletes them too.\n"
    )
    refusal = account(tmp_path, "delete", "weather", status=2)
    assert refusal == "tablestone: The account weather has 1 table: --force deletes it too.\n"
    assert "tables: 1\n" in account(tmp_path, "show", "weather")


def test_azurites_variable(private_server: StartServer, tmp_path: Path) -> None:
    variable = {"AZURITE_ACCOUNTS": f"one:{KEY};two:{KEY}:{OTHER_KEY}"}
    server = private_server(tmp_path, environment=variable)
    assert statuses(server, "one", KEY) == {200}
    assert statuses(server, "two", OTHER_KEY) == {200}
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {404}
    assert server.stop() == 0
    assert server.stderr == ""


def test_azurites_variable_malformed_is_ignored_as_a_whole_with_a_warning(
    private_server: StartServer, tmp_path: Path
) -> None:
    variable = {"AZURITE_ACCOUNTS": f"one:{KEY};{OTHER_KEY}"}
    server = private_server(tmp_path, environment=variable)
    assert statuses(server, "devstoreaccount1", DEVELOPMENT_ACCOUNT_KEY) == {200}
    assert statuses(server, "one", KEY) == {404}
    assert server.stop() == 0
    (warning,) = server.stderr.splitlines()
    assert warning.endswith(
        " WARNING tablestone.cli.commands.serve: AZURITE_ACCOUNTS must be NAME:KEY1[:KEY2]. "
        "The whole variable is ignored."
    )


MAKES_THE_DIRECTORY = {
    "account create": True,
    "account list": False,
    "account show": False,
    "account rotate-key": False,
    "account delete": False,
    "index create": False,
    "index list": False,
    "role assign": True,
    "role list": False,
    "role remove": False,
    "token": True,
}


@pytest.mark.parametrize(("command", "makes"), MAKES_THE_DIRECTORY.items())
def test_help_says_which_command_creates_the_data_directory(command: str, *, makes: bool) -> None:
    status, printed, _ = in_this_process(*command.split(), "--help")
    assert status == 0
    assert ("created if it does not exist" in " ".join(printed.split())) == makes


@pytest.mark.parametrize(
    "command",
    [
        ("account", "create", "weather"),
        ("role", "assign", "Storage Table Data Reader", "--principal", "x"),
        ("token",),
    ],
    ids=["account create", "role assign", "token"],
)
def test_a_created_directory_is_mentioned_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The name may be mistyped; standard output carries only the requested data."""
    data = tmp_path / "data"
    for told in (made(data), ""):
        status, printed, errors = in_this_process(*command, "--data", str(data))
        assert errors.startswith(told)
        assert ("did not exist and was created" in errors + printed) == bool(told)
        assert not (told and status)
