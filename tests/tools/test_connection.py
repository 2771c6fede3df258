"""Where a connection comes from, its parts, and that none of its secrets is shown."""

from pathlib import Path

import pytest

from spec_tables import Row, load
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY
from tablestone.tools.connection import (
    LOCAL_KEY,
    LOCAL_URL,
    Connection,
    GivenConnection,
    Scheme,
    from_url,
    local_connection,
    parse_connection_string,
    parse_place,
    resolve,
)
from tablestone.tools.errors import TransferRefused

CASES = load("connections.toml")


@pytest.mark.parametrize("row", CASES["string"], ids=lambda row: row["name"])
def test_a_connection_string(row: Row) -> None:
    found = parse_connection_string(row["text"])
    assert (found.url, found.account, found.scheme.value) == (
        row["url"],
        row["account"],
        row["scheme"],
    )
    assert found.secret == row["secret"]
    assert found.is_production is row.get("production", False)


@pytest.mark.parametrize("row", CASES["refused"], ids=lambda row: row["name"])
def test_what_is_no_connection_string(row: Row) -> None:
    with pytest.raises(TransferRefused) as refused:
        parse_connection_string(row["text"])
    assert str(refused.value) == row["sentence"]
    assert "c2VjcmV0" not in str(refused.value)


@pytest.mark.parametrize("row", CASES["url"], ids=lambda row: row["name"])
def test_the_url_of_an_account(row: Row) -> None:
    found = from_url(row["text"], row.get("sas"))
    assert (found.url, found.account, found.scheme.value) == (
        row["url"],
        row["account"],
        row["scheme"],
    )
    assert found.secret == row.get("secret")


def test_the_local_key_is_the_well_known_one() -> None:
    assert LOCAL_KEY == DEVELOPMENT_ACCOUNT_KEY


ENVIRONMENT = {
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=env;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"
}
PROFILES = {"kept": Connection("https://kept.example", "kept", Scheme.ENTRA)}


@pytest.mark.parametrize(
    ("given", "environment", "account"),
    [
        (GivenConnection("AccountName=opt;AccountKey=c2VjcmV0"), ENVIRONMENT, "opt"),
        (GivenConnection(account_url="https://url.table.core.windows.net"), ENVIRONMENT, "url"),
        (GivenConnection(profile="kept"), ENVIRONMENT, "kept"),
        (GivenConnection(), ENVIRONMENT, "env"),
        (GivenConnection(), {}, "devstoreaccount1"),
    ],
)
def test_the_most_specific_source_wins(
    given: GivenConnection, environment: dict[str, str], account: str
) -> None:
    assert resolve(given, environment, PROFILES).account == account


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            GivenConnection("AccountName=a;AccountKey=c2VjcmV0", profile="kept"),
            "--connection-string and --profile each name an endpoint: give one of them.",
        ),
        (GivenConnection(sas="sig=1"), "--sas goes with --account-url, which is not given."),
        (GivenConnection(profile="lost"), "There is no profile 'lost'; there is: kept."),
        (
            GivenConnection(account_url="http://a.example"),
            "An Entra login needs https: give --sas, a connection string, or an https URL.",
        ),
    ],
)
def test_sources_that_do_not_go_together(given: GivenConnection, sentence: str) -> None:
    with pytest.raises(TransferRefused) as refused:
        resolve(given, {}, PROFILES)
    assert str(refused.value) == sentence


def test_a_place_of_a_copy() -> None:
    assert parse_place("local", {}) == local_connection()
    assert parse_place("kept", PROFILES).account == "kept"
    assert parse_place("UseDevelopmentStorage=true", {}).url == LOCAL_URL
    assert parse_place("https://a.example/?sig=x", {}).scheme is Scheme.SHARED_ACCESS_SIGNATURE


def test_no_secret_is_in_what_python_shows() -> None:
    connection = parse_connection_string("AccountName=a;AccountKey=c2VjcmV0")
    given = GivenConnection("AccountName=a;AccountKey=c2VjcmV0", sas="sig=c2VjcmV0")
    assert "c2VjcmV0" not in repr(connection) + repr(given)


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        (GivenConnection(connection_string=""), "--connection-string"),
        (GivenConnection(connection_string=" "), "--connection-string"),
        (GivenConnection(account_url=""), "--account-url"),
        (GivenConnection(account_url="https://a.table.core.windows.net", sas=""), "--sas"),
        (GivenConnection(profile=""), "--profile"),
    ],
)
def test_an_empty_option_names_no_other_account(given: GivenConnection, flag: str) -> None:
    """A script whose variable is not set must not reach the account in the environment."""
    environment = {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}
    with pytest.raises(TransferRefused) as refused:
        resolve(given, environment, PROFILES)
    assert str(refused.value) == f"{flag} is empty: give a value, or leave the option out."


def test_an_empty_file_names_no_other_account(tmp_path: Path) -> None:
    empty = tmp_path / "sas.txt"
    empty.write_text("\n")
    given = GivenConnection(account_url="https://a.table.core.windows.net", sas=f"@{empty}")
    with pytest.raises(TransferRefused, match="--sas is empty"):
        resolve(given, {}, PROFILES)


TABLE_SIGNATURE = "sv=2019-02-02&tn=flights&sp=r&sig=x"
OF_A_TABLE: list[tuple[str, str]] = [
    # the URL before the signature, the URL of the account
    ("https://acct.table.core.windows.net/Flights", "https://acct.table.core.windows.net"),
    ("https://acct.table.core.windows.net", "https://acct.table.core.windows.net"),
    ("http://127.0.0.1:10002/devstoreaccount1/Flights", "http://127.0.0.1:10002/devstoreaccount1"),
    ("http://127.0.0.1:10002/devstoreaccount1", "http://127.0.0.1:10002/devstoreaccount1"),
    ("http://127.0.0.1:10002/flights", "http://127.0.0.1:10002/flights"),
]


@pytest.mark.parametrize(("given", "url"), OF_A_TABLE)
def test_the_url_of_the_table_of_a_signature(given: str, url: str) -> None:
    """The portal and Storage Explorer show the URL of the table, followed by the signature."""
    read = (
        from_url(f"{given}?{TABLE_SIGNATURE}", None),
        parse_connection_string(f"TableEndpoint={given};SharedAccessSignature={TABLE_SIGNATURE}"),
    )
    for connection in read:
        assert connection.url == url
        assert connection.only_table == "flights"
    assert local_connection().only_table == ""


def test_the_variable_holds_no_name_of_a_file() -> None:
    with pytest.raises(TransferRefused, match="must hold the connection string itself"):
        resolve(GivenConnection(), {"AZURE_STORAGE_CONNECTION_STRING": "@azure.txt"}, {})
