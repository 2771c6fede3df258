"""Options from command line, environment and file: which source wins, the values, and the text of every refusal."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tablestone.cli.option_sources import read_configuration, where
from tablestone.cli.options import SERVER_OPTIONS, BrokenOption
from tablestone.clock import TICKS_PER_SECOND
from tablestone.configuration import AccountKeys, AdminAddress, Configuration
from tablestone.engines.change_record import Retention
from tablestone.wire.versions import UnknownVersions
from unit.cli.given_options import (
    BESIDE_FILE,
    DEFAULT_DIRECTORY,
    KEY,
    OTHER_KEY,
    Given,
    Refused,
    configuration_of,
    seen_from,
)

ENGINES = "sqlite, sqlite:DIR, memory or cassandra://HOST[,HOST]/KEYSPACE?datacenter=DC"
"""How an engine's URL may be written."""

UNDERSTOOD = {
    "nothing given": Given(
        {
            "host": "127.0.0.1",
            "port": 10002,
            "data_directory": DEFAULT_DIRECTORY,
            "engine": f"sqlite:{DEFAULT_DIRECTORY}",
            "accounts": (),
            "has_development_account": True,
            "domains": (),
            "custom_domains": (),
            "warnings": (),
            "log_level": "info",
            "tls": None,
            "https_only": False,
            "trusted_proxies": (),
        }
    ),
    "file": Given(
        {
            "host": "::1",
            "port": 1,
            "data_directory": Path("/srv/tables"),
            "accounts": (AccountKeys("one", (KEY,)), AccountKeys("two", (KEY, OTHER_KEY))),
            "log_level": "debug",
        },
        file=f"""
            host = "::1"
            port = 1
            data = "/srv/tables"
            log-level = "DEBUG"
            [accounts]
            one = "{KEY}"
            two = ["{KEY}", "{OTHER_KEY}"]
        """,
    ),
    "environment over file": Given(
        {"port": 2, "host": "a"},
        environment={"TABLESTONE_PORT": "2"},
        file='port = 1\nhost = "a"',
    ),
    "command line over environment": Given(
        {"port": 3, "log_level": "error"},
        command_line={"port": "3"},
        environment={"TABLESTONE_PORT": "2", "TABLESTONE_LOG_LEVEL": "error"},
        file="port = 1",
    ),
    "the explorer, in the file": Given({"explorer": "true"}, file="explorer = true"),
    "the explorer, without an admin address": Given(
        {"admin": AdminAddress("127.0.0.1", 0)}, {"explorer": "true"}
    ),
    "any version": Given(
        {"any_version": UnknownVersions.ALL},
        environment={"TABLESTONE_ANY_VERSION": "true"},
        file="any-version = false",
    ),
    "any version, not given": Given({"any_version": UnknownVersions.LATER}),
    "any version, typed": Given(
        {"any_version": UnknownVersions.NONE},
        {"any-version": "FALSE"},
        {"TABLESTONE_ANY_VERSION": "true"},
    ),
    "any version, in the file": Given(
        {"any_version": UnknownVersions.LATER}, file='any-version = "later"'
    ),
    "what was not typed": Given(
        {"port": 2}, {"port": None, "account": ()}, {"TABLESTONE_PORT": "2"}
    ),
    "an empty variable is none": Given({"port": 10002}, environment={"TABLESTONE_PORT": ""}),
    "accounts typed": Given(
        {
            "has_development_account": False,
            "accounts": (AccountKeys("one", (KEY, OTHER_KEY)), AccountKeys("two2", (KEY,))),
        },
        command_line={"account": (f"one:{KEY}:{OTHER_KEY}", f"two2:{KEY}")},
    ),
    "accounts replace, not add": Given(
        {"accounts": (AccountKeys("two", (KEY,)),)},
        environment={"TABLESTONE_ACCOUNT": f"two:{KEY};"},
        file=f'accounts.one = "{OTHER_KEY}"',
    ),
    "no account, typed": Given(
        {"accounts": (), "has_development_account": False},
        command_line={"account": ("none",)},
        environment={"TABLESTONE_ACCOUNT": f"two:{KEY}"},
    ),
    "no account, in the environment": Given(
        {"accounts": (), "has_development_account": False},
        environment={"TABLESTONE_ACCOUNT": "none"},
    ),
    "no account, in the file": Given(
        {"accounts": (), "has_development_account": False}, file='accounts = "none"'
    ),
    "Azurite's accounts": Given(
        {
            "accounts": (AccountKeys("one", (KEY, OTHER_KEY)), AccountKeys("two", (KEY,))),
            "has_development_account": False,
            "warnings": (),
        },
        environment={"AZURITE_ACCOUNTS": f"one:{KEY}:{OTHER_KEY};;two:{KEY};"},
    ),
    "Azurite's accounts are the last that are looked for": Given(
        {"accounts": (AccountKeys("two", (KEY,)),), "has_development_account": False},
        environment={"AZURITE_ACCOUNTS": f"one:{KEY}"},
        file=f'accounts.two = "{KEY}"',
    ),
    "Azurite's accounts, empty": Given(
        {"accounts": (), "has_development_account": True, "warnings": ()},
        environment={"AZURITE_ACCOUNTS": ";"},
    ),
    **{
        f"Azurite's accounts, ignored as a whole: {what}": Given(
            {
                "accounts": (),
                "has_development_account": True,
                "warnings": (f"AZURITE_ACCOUNTS {sentence}. The whole variable is ignored.",),
            },
            environment={"AZURITE_ACCOUNTS": f"one:{KEY};{malformed}"},
        )
        for what, malformed, sentence in (
            ("no key", "two", "must give the account two one or two keys, as NAME:KEY1[:KEY2]"),
            (
                "three keys",
                f"two:{KEY}:{KEY}:{KEY}",
                "must give the account two one or two keys, as NAME:KEY1[:KEY2]",
            ),
            ("no base64", "two:*", "has a key that is not base64: key 1 of the account two"),
            (
                "no name",
                f"Two:{KEY}",
                "has the account name 'Two'; a name is 3 to 24 lower-case letters and digits",
            ),
            ("a key alone", KEY, "must be NAME:KEY1[:KEY2]"),
            ("twice", f"one:{KEY}", "names the account one twice"),
        )
    },
    "table deletion": Given(
        {"table_deletion_seconds": 40}, command_line={"table-deletion-seconds": "40"}
    ),
    "table deletion in the file": Given(
        {"table_deletion_seconds": 1}, file="table-deletion-seconds = 1"
    ),
    "tables": Given(
        {"create_tables": ("Orders", "Stock")}, command_line={"create-tables": "Orders, Stock"}
    ),
    "tables in the environment": Given(
        {"create_tables": ("Orders",)}, environment={"TABLESTONE_CREATE_TABLES": "Orders"}
    ),
    "changes by age": Given(
        {"keep_changes": Retention(7 * 86_400 * TICKS_PER_SECOND, None)},
        command_line={"keep-changes": "7d"},
    ),
    "changes by size": Given(
        {"keep_changes": Retention(None, 20 << 30)}, command_line={"keep-changes": "20GiB"}
    ),
    "changes for ever": Given(
        {"keep_changes": Retention(2**63 - 1, 2**63 - 1)},
        command_line={"keep-changes": "999999999d,999999999TiB"},
    ),
    "changes by both, in the file": Given(
        {"keep_changes": Retention(90 * 60 * TICKS_PER_SECOND, 64 << 20)},
        file="keep-changes = '64MiB, 90m'",
    ),
    "changes as they are stored": Given({"keep_changes": None, "ends_changes": False}),
    "no changes": Given(
        {"keep_changes": None, "ends_changes": True}, command_line={"keep-changes": "none"}
    ),
    "no changes, in the environment": Given(
        {"keep_changes": None, "ends_changes": True},
        environment={"TABLESTONE_KEEP_CHANGES": "none"},
    ),
    "no changes, in the file": Given(
        {"keep_changes": None, "ends_changes": True}, file="keep-changes = 'none'"
    ),
    "no changes of an engine that keeps none": Given(
        {"keep_changes": None, "ends_changes": True},
        command_line={"keep-changes": "none", "engine": "cassandra://127.0.0.1/k?datacenter=d"},
    ),
    "changes may go": Given(
        {"keep_changes": Retention(3600 * TICKS_PER_SECOND, None)}
        | {"yes_trim": Retention(3600 * TICKS_PER_SECOND, None), "ends_changes": False},
        command_line={"keep-changes": "1h", "yes-trim": "60m"},
    ),
    "tables in the file": Given({"create_tables": ("Orders",)}, file="create-tables = 'Orders'"),
    "data": Given(
        {"data_directory": Path("/srv/d"), "engine": "sqlite:/srv/d"},
        command_line={"data": "/srv/d"},
    ),
    "data is relative to here": Given(
        {"data_directory": Path.cwd() / "d"}, command_line={"data": "d"}
    ),
    "data in another directory": Given(
        {"data_directory": Path.cwd().parent / "d"}, command_line={"data": "a/../../d"}
    ),
    "data under the home directory": Given(
        {"data_directory": Path.home() / "d"}, environment={"TABLESTONE_DATA": "~/d"}
    ),
    "sqlite names the directory": Given(
        {"data_directory": Path("/srv/e"), "engine": "sqlite:/srv/e"},
        command_line={"engine": "sqlite:/srv/e"},
    ),
    "sqlite alone": Given(
        {"engine": "sqlite:/srv/d"}, command_line={"engine": "sqlite", "data": "/srv/d"}
    ),
    "memory": Given(
        {"data_directory": None, "engine": "memory:"},
        command_line={"engine": "memory:"},
    ),
    "memory without its colon": Given(
        {"data_directory": None, "engine": "memory:"}, environment={"TABLESTONE_ENGINE": "memory"}
    ),
    "data in the file is relative to the file": Given(
        {"data_directory": BESIDE_FILE / "d", "engine": f"sqlite:{BESIDE_FILE / 'd'}"},
        file='data = "d"',
    ),
    "sqlite in the file is relative to the file": Given(
        {"data_directory": BESIDE_FILE / "d"}, file='engine = "sqlite:d"'
    ),
    "engine and data in the file": Given(
        {"data_directory": BESIDE_FILE / "d"}, file='engine = "sqlite"\ndata = "./d"'
    ),
    "data under the home directory in the file": Given(
        {"data_directory": Path.home() / "d"}, file='data = "~/d"'
    ),
}


@pytest.mark.parametrize("given", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    found = {name: getattr(configuration, name) for name in given.expected}
    assert found == {name: seen_from(tmp_path, value) for name, value in given.expected.items()}


def test_a_file_named_from_here_names_a_directory_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/t.toml").write_text('data = "d"')
    monkeypatch.chdir(tmp_path)
    configuration = read_configuration({"config": "etc/t.toml"}, {})
    assert configuration.data_directory == tmp_path / "etc/d"


REFUSED = {
    "none beside an account": Refused(
        "--account names none and accounts: none must be alone.",
        command_line={"account": ("none", f"one:{KEY}")},
    ),
    "port not a number": Refused(
        "--port must be a number from 0 to 65535, not 'x'.", command_line={"port": "x"}
    ),
    "port too high": Refused(
        "TABLESTONE_PORT must be a number from 0 to 65535, not '65536'.",
        environment={"TABLESTONE_PORT": "65536"},
    ),
    "port negative": Refused(
        "port in FILE must be a number from 0 to 65535, not '-1'.", file="port = -1"
    ),
    "port of too many digits": Refused(
        f"--port must be a number from 0 to 65535, not '{'0' * 20}80000'.",
        command_line={"port": f"{'0' * 20}80000"},
    ),
    "port in other digits": Refused(
        "--port must be a number from 0 to 65535, not '٣'.", command_line={"port": "٣"}
    ),
    "no worker": Refused(
        "--workers must be a number from 1 to 64, not '0'.", command_line={"workers": "0"}
    ),
    "too many workers": Refused(
        "TABLESTONE_WORKERS must be a number from 1 to 64, not '65'.",
        environment={"TABLESTONE_WORKERS": "65"},
    ),
    "workers as text": Refused("workers in FILE must be a number.", file='workers = "2"'),
    "workers that cannot share memory": Refused(
        "2 workers cannot share the engine memory, which has its rows in one process.",
        command_line={"workers": "2", "engine": "memory"},
    ),
    "port as text": Refused("port in FILE must be a number.", file='port = "1"'),
    "port as truth": Refused("port in FILE must be a number.", file="port = true"),
    "host as number": Refused("host in FILE must be a string.", file="host = 1"),
    "host empty": Refused("--host must not be empty.", command_line={"host": ""}),
    "table deletion of more than a day": Refused(
        "--table-deletion-seconds must be a number from 0 to 86400, not '86401'.",
        command_line={"table-deletion-seconds": "86401"},
    ),
    "a table without a name": Refused(
        "--create-tables must be names of tables, of 3 to 63 letters and digits each, not 'Orders,'.",
        command_line={"create-tables": "Orders,"},
    ),
    "changes without a unit": Refused(
        "--keep-changes must be an age, a size or both, such as 7d, 20GiB or 7d,20GiB, or none, not '7'.",
        command_line={"keep-changes": "7"},
    ),
    "changes by two ages": Refused(
        "--keep-changes must be one age, one size or both, such as 7d,20GiB, not '7d,1h'.",
        command_line={"keep-changes": "7d,1h"},
    ),
    "changes may go to nothing": Refused(
        "--yes-trim must be an age, a size or both, such as 7d, 20GiB or 7d,20GiB, not 'none'.",
        command_line={"yes-trim": "none"},
    ),
    "changes of an engine that keeps none": Refused(
        "--keep-changes needs an engine that keeps changes: SQLite and memory do.",
        command_line={
            "keep-changes": "7d",
            "engine": "cassandra://127.0.0.1/k?datacenter=d",
        },
    ),
    "tables without an account": Refused(
        "--create-tables creates tables in configured accounts, and there is none.",
        command_line={"create-tables": "Orders", "account": ("none",)},
    ),
    "log level": Refused(
        "--log-level must be critical, error, warning, info or debug, not 'loud'.",
        command_line={"log-level": "loud"},
    ),
    "account name too short": Refused(
        "--account has the account name 'ab'; a name is 3 to 24 lower-case letters and digits.",
        command_line={"account": (f"ab:{KEY}",)},
    ),
    "account name in capitals": Refused(
        "TABLESTONE_ACCOUNT has the account name 'Abc'; a name is 3 to 24 lower-case letters and digits.",
        environment={"TABLESTONE_ACCOUNT": f"Abc:{KEY}"},
    ),
    "account name ends in a line feed": Refused(
        r"--account has the account name 'abc\n'; a name is 3 to 24 lower-case letters and digits.",
        command_line={"account": (f"abc\n:{KEY}",)},
    ),
    "account without a key": Refused(
        "--account must give the account abc one or two keys, as NAME:KEY1[:KEY2].",
        command_line={"account": ("abc",)},
    ),
    "account with three keys": Refused(
        'accounts in FILE must give the account abc one or two keys, as ["KEY1", "KEY2"].',
        file=f'accounts.abc = ["{KEY}", "{KEY}", "{KEY}"]',
    ),
    "account with a number for a key": Refused(
        'accounts in FILE must give the account abc one or two keys, as ["KEY1", "KEY2"].',
        file="accounts.abc = 1",
    ),
    "key not base64": Refused(
        "--account has a key that is not base64: key 2 of the account abc.",
        command_line={"account": (f"abc:{KEY}:s3cret!",)},
    ),
    "key empty": Refused(
        "--account has a key that is not base64: key 1 of the account abc.",
        command_line={"account": ("abc:",)},
    ),
    "account twice": Refused(
        "--account names the account abc twice.",
        command_line={"account": (f"abc:{KEY}", f"abc:{OTHER_KEY}")},
    ),
    "no account": Refused("accounts in FILE names no account.", file="[accounts]"),
    "accounts not a table": Refused(
        'accounts in FILE must be a table of NAME = "KEY" or NAME = ["KEY1", "KEY2"].',
        file="accounts = []",
    ),
    "any version of another kind": Refused(
        "--any-version must be later, true or false, not 'all'.", {"any-version": "all"}
    ),
    "any version of another kind, in the environment": Refused(
        "TABLESTONE_ANY_VERSION must be later, true or false, not '1'.",
        environment={"TABLESTONE_ANY_VERSION": "1"},
    ),
    "any version of another kind, in the file": Refused(
        "any-version in FILE must be true, false or 'later'.", file="any-version = 1"
    ),
    "unknown key": Refused(
        "FILE has the unknown key 'shards'; the keys are access-log, accounts, admin, any-version, control, "
        "create-tables, custom-domain, data, domain, encryption-key-file, engine, explorer, explorer-token-file, host, "
        "https-only, insight, keep-changes, log-format, log-level, max-buffers, max-connections, max-requests, "
        "metrics-tables, port, print, realism, table-deletion-seconds, targets, tls, tls-certificate, tls-key, "
        "tls-name, token-audience, token-authority, token-issuer, token-tenant, trusted-proxy, workers, yes-trim.",
        file="shards = 1",
    ),
    "unknown key near another": Refused(
        "FILE has the unknown key 'prot': did you mean port?", file="prot = 1"
    ),
    "engine unknown": Refused(
        f"--engine must be {ENGINES}, not 'mongo:'.",
        command_line={"engine": "mongo:"},
    ),
    "engine with a place it does not have": Refused(
        f"TABLESTONE_ENGINE must be {ENGINES}, not 'memory:x'.",
        environment={"TABLESTONE_ENGINE": "memory:x"},
    ),
    "engine with an empty place": Refused(
        f"--engine must be {ENGINES}, not 'sqlite:'.",
        command_line={"engine": "sqlite:"},
    ),
    "engine with an empty place in the file": Refused(
        f"engine in FILE must be {ENGINES}, not 'sqlite:'.",
        file='engine = "sqlite:"',
    ),
    "engine in the file": Refused(f"engine in FILE must be {ENGINES}, not ''.", file='engine = ""'),
    "nobody's home directory": Refused(
        "The data directory ~nobody-of-this-name/d cannot be found: there is no such home directory.",
        command_line={"data": "~nobody-of-this-name/d"},
    ),
    "memory and a data directory": Refused(
        "--data names a data directory, but the engine memory stores nothing: give one of them.",
        command_line={"engine": "memory", "data": "d"},
    ),
    "memory and a data directory in the file": Refused(
        "data in FILE names a data directory, but the engine memory stores nothing: give one of them.",
        command_line={"engine": "memory"},
        file='data = "d"',
    ),
    "memory and a data directory in the environment": Refused(
        "TABLESTONE_DATA names a data directory, but the engine memory stores nothing: give one of them.",
        command_line={"engine": "memory"},
        environment={"TABLESTONE_DATA": "d"},
    ),
    "a data directory here and one there": Refused(
        "Both --data and TABLESTONE_ENGINE name a data directory: give one of them.",
        command_line={"data": "/a"},
        environment={"TABLESTONE_ENGINE": "sqlite:/b"},
    ),
    "a key where a name should be": Refused(
        "--account has the account name that is too long; a name is 3 to 24 lower-case letters and digits.",
        command_line={"account": (f"{'a' * 31}:{KEY}",)},
    ),
    "two data directories": Refused(
        "Both --data and --engine name a data directory: give one of them.",
        command_line={"data": "/a", "engine": "sqlite:/b"},
    ),
    "not TOML": Refused(
        "The configuration file FILE is not TOML: "
        "Expected '=' after a key in a key/value pair (at line 1, column 6).",
        file="port : 1",
    ),
    "no such file": Refused(
        "The configuration file /nowhere/t.toml cannot be read: No such file or directory.",
        command_line={"config": "/nowhere/t.toml"},
    ),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected


def test_no_sentence_and_no_representation_repeats_a_key(tmp_path: Path) -> None:
    for text in ("abc:s3cret!", "s3cret!", "s3cretS3cret", f"{'s3cret' * 10}:abc", "a:b:s3cret"):
        with pytest.raises(BrokenOption) as raised:
            configuration_of(Refused("", command_line={"account": (text,)}), tmp_path)
        assert "s3cret" not in str(raised.value)
    assert KEY not in repr(AccountKeys("abc", (KEY,)))


@pytest.mark.parametrize("option", SERVER_OPTIONS, ids=lambda option: option.name)
def test_every_option_is_a_variable_of_its_own(option: Any) -> None:
    assert re.fullmatch(r"TABLESTONE_[A-Z_]+", option.variable)
    assert [other for other in SERVER_OPTIONS if other.variable == option.variable] == [option]


def test_where_the_data_is() -> None:
    stored = Configuration("", 0, Path("/srv/d"), "sqlite:/srv/d", (), "error")
    assert where(stored) == "/srv/d"
    assert "memory" in where(replace(stored, data_directory=None, engine="memory:"))
