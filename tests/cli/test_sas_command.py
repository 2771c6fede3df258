"""`tablestone sas` and `account show --connection-string`: the service accepts what they print."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import Request, urlopen

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableAccessPolicy, TableClient, TableServiceClient

from cli.account_command import account
from cli.command_line import in_this_process, tablestone
from cli.test_refusals import run_command
from server_process import ServerProcess
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import BrokenOption
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY
from tablestone.tools.connection import open_profiles
from tablestone.tools.errors import TransferRefused
from tablestone.tools.resume_journal import open_journal

StartServer = Callable[..., ServerProcess]
KEY = "a2V5IG9uZQ=="
OTHER_KEY = "a2V5IHR3bw=="
DEVELOPMENT = "devstoreaccount1"


def printed(*arguments: str) -> str:
    status, output, errors = in_this_process(*arguments)
    assert (status, errors) == (0, "")
    return output.removesuffix("\n")


def entities(server: ServerProcess, signature: str, table: str = "Weather") -> list[str]:
    with TableClient(f"{server.endpoint}?{signature}", table) as client:
        return [entity["PartitionKey"] for entity in client.list_entities()]


@pytest.fixture
def server(private_server: StartServer, tmp_path: Path) -> ServerProcess:
    started = private_server(tmp_path)
    with TableServiceClient.from_connection_string(started.connection_string) as service:
        table = service.create_table("Weather")
        for station in ("EWR", "JFK", "LGA"):
            table.create_entity({"PartitionKey": station, "RowKey": "1"})
        table.set_table_access_policy(
            {"readers": TableAccessPolicy(permission="r", expiry="2999-01-01T00:00:00Z")}
        )
    return started


@pytest.mark.slow
def test_signatures_are_taken_and_permit_what_they_say(
    server: ServerProcess, tmp_path: Path
) -> None:
    table = ("sas", "table", DEVELOPMENT, "Weather", "--data", str(tmp_path))
    everything = ["EWR", "JFK", "LGA"]
    of = {
        "read": (*table, "--permissions=r", "--expiry=1h"),
        "a range": (*table, "--permissions=r", "--expiry=2d", "--start-pk=F", "--end-pk=K"),
        "a row": (
            *(*table, "--permissions=r", "--expiry=2d", "--start-pk=EWR", "--start-rk=2"),
            *("--end-pk=LGA", "--end-rk=1"),
        ),
        "a policy": (*table, "--policy=readers"),
        "an address": (*table, "--permissions=r", "--expiry=5m", "--ip=127.0.0.1-127.0.0.9"),
        "an old version": (
            *(*table, "--permissions=r", "--expiry=2999-01-01", "--service-version=2013-08-15"),
        ),
        "an account": (
            *("sas", "account", DEVELOPMENT, "--data", str(tmp_path)),
            *("--permissions=lr", "--expiry=1h"),
        ),
        "a new version": (
            *("sas", "account", DEVELOPMENT, "--data", str(tmp_path), "--permissions=rl"),
            *("--expiry=1h", "--service-version=2020-12-06"),
        ),
    }
    seen = {name: entities(server, printed(*arguments)) for name, arguments in of.items()}
    assert seen == dict.fromkeys(of, everything) | {"a range": ["JFK"], "a row": ["JFK", "LGA"]}
    refused = {
        "a right": (*table, "--permissions=a", "--expiry=1h"),
        "not yet": (*table, "--permissions=r", "--start=2998-01-01", "--expiry=2999-01-01"),
        "no policy": (*table, "--policy=absent"),
        "another address": (*table, "--permissions=r", "--expiry=5m", "--ip=10.0.0.1"),
        "tls": (*table, "--permissions=r", "--expiry=5m", "--https-only"),
        "a resource type": (
            *("sas", "account", DEVELOPMENT, "--data", str(tmp_path)),
            *("--permissions=r", "--resource-types=s", "--expiry=1h"),
        ),
    }
    for arguments in refused.values():
        with pytest.raises(HttpResponseError) as caught:
            entities(server, printed(*arguments))
        assert caught.value.status_code == 403


@pytest.mark.parametrize(
    ("version", "accept"),
    [("2019-02-02", "application/json"), ("2012-02-12", "application/atom+xml")],
)
def test_a_url_is_ready_for_curl(
    server: ServerProcess, tmp_path: Path, version: str, accept: str
) -> None:
    """The first version with signatures needs no version header, and has no JSON."""
    port = str(urlsplit(server.endpoint).port)
    arguments = ("--permissions=r", "--expiry=1h", "--url", "--port", port, "--data", str(tmp_path))
    url = printed("sas", "table", DEVELOPMENT, "Weather", *arguments, "--service-version", version)
    assert url.startswith(f"{server.endpoint}/Weather?")
    with urlopen(Request(url, headers={"Accept": accept})) as answer:
        assert answer.status == 200


@pytest.mark.slow
def test_the_keys_of_stored_and_configured_accounts_sign(tmp_path: Path) -> None:
    account(tmp_path, "create", "weather", "--key-file", "-", keys=f"{KEY}\n{OTHER_KEY}\n")
    table = ("sas", "table", "weather", "t", "--permissions=r", "--expiry=2999-01-01")

    def signature(*more: str) -> str:
        return parse_qs(printed(*table, "--data", str(tmp_path), *more))["sig"][0]

    first, second = signature(), signature("--key=2")
    assert first != second
    assert signature("--account", f"weather:{OTHER_KEY}") == second, "configured before stored"


@pytest.mark.slow
def test_a_connection_string_to_paste(private_server: StartServer, tmp_path: Path) -> None:
    account(tmp_path, "create", "weather", "--key-file", "-", keys=KEY)
    show = ("account", "show", "weather", "--connection-string", "--data", str(tmp_path))
    server = private_server(tmp_path)
    complete = printed(*show, "--port", str(urlsplit(server.endpoint).port))
    with TableServiceClient.from_connection_string(complete) as service:
        assert list(service.list_tables()) == []
    assert f"AccountKey={KEY};" in complete
    addresses = {
        ("--host=0.0.0.0",): "http://127.0.0.1:10002/weather",
        ("--host=::1", "--port=1"): "http://[::1]:1/weather",
        ("--tls=self-signed",): "https://127.0.0.1:10002/weather",
        ("--custom-domain=tables.example.com=weather",): "http://tables.example.com:10002",
    }
    for options, address in addresses.items():
        assert f";TableEndpoint={address};" in printed(*show, *options)
    of_development = printed(
        "account", "show", DEVELOPMENT, "--connection-string", "--data", str(tmp_path)
    )
    assert f"AccountKey={DEVELOPMENT_ACCOUNT_KEY};" in of_development
    status, output, sentence = run_command(*show, "--port=0")
    assert (status, output) == (2, "")
    assert "give the port that the server printed" in sentence


def test_help_tells_which_options_repeat_and_how_accounts_are_named() -> None:
    told = " ".join(printed("serve", "--help").split())
    assert re.search(r"--domain DOMAIN [^\[]* Can be repeated\.", told)
    assert told.count("Can be repeated.") == 8
    assert "NAME is 3 to 24 lower-case letters and digits." in printed(
        "account", "create", "--help"
    )


def test_a_user_without_a_home_directory_is_told_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container: no HOME variable, and no passwd entry."""
    monkeypatch.delenv("HOME", raising=False)
    for name in ("DATA", "CACHE", "CONFIG", "STATE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)

    def no_entry(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    for ask, sentence in (
        (
            lambda: read_configuration({}, {}),
            "This user has no home directory: name a directory for the data with --data.",
        ),
        (
            lambda: read_configuration({"engine": "memory", "tls": "self-signed"}, {}),
            "This user has no home directory for the certificate: XDG_CACHE_HOME can name one, or give a certificate "
            "with --tls-certificate.",
        ),
        (
            lambda: open_profiles({}),
            "This user has no home directory: name a directory for profiles with TABLESTONE_PROFILES.",
        ),
        (
            lambda: open_journal({"command": "copy"}, {}, restart=False),
            "This user has no home directory: name a directory for journals with TABLESTONE_JOURNALS.",
        ),
    ):
        with pytest.raises((BrokenOption, TransferRefused)) as refused:
            ask()
        assert str(refused.value) == sentence


def test_the_usual_port_that_is_taken_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    from tablestone.server import start  # noqa: PLC0415
    from tablestone.server.worker import StartRefused  # noqa: PLC0415

    with start.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(start, "USUAL_PORT", port)
        with pytest.raises(StartRefused) as refused:
            start.listen("127.0.0.1", port)
    assert str(refused.value) == (
        f"Cannot listen on 127.0.0.1:{port}: address already in use. "
        "Stop the other server first: it is often another Tablestone, or Azurite. --port 0 takes a free port."
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(shell: str) -> None:
    asked = {"_TABLESTONE_COMPLETE": f"{shell}_source"}
    assert "tablestone" in run_command(environment=asked)[1]
    words = {"COMP_WORDS": "tablestone acc", "COMP_CWORD": "1"}
    if shell != "fish":
        answer = run_command(environment={"_TABLESTONE_COMPLETE": f"{shell}_complete", **words})[1]
        assert "account" in answer


def test_a_value_is_encoded_in_the_query(tmp_path: Path) -> None:
    account(tmp_path, "create", "weather", "--key-file", "-", keys=KEY)
    odd = "a b+c&d"
    query = printed(
        *("sas", "table", "weather", "t", "--permissions=r", "--expiry=2999-01-01"),
        *("--start-pk", odd, "--data", str(tmp_path)),
    )
    assert f"spk={quote(odd, safe='')}&" in query


def test_an_expiry_that_has_passed_is_remarked_upon() -> None:
    words = ("sas", "table", "devstoreaccount1", "t", "--engine", "memory", "--permissions=r")
    signed = tablestone(*words, "--expiry=2020-01-01T00:00:00Z")
    assert (signed.status, len(signed.lines)) == (0, 1)
    assert (
        signed.stderr
        == "tablestone: --expiry 2020-01-01T00:00:00Z has passed: no server accepts it.\n"
    )
    assert tablestone(*words, "--expiry=1h").stderr == ""
