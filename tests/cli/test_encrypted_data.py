"""Encrypted data directories as a user has them: `serve` with a key, the commands, and what a run leaves behind."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient

from cli.command_line import Ended, tablestone
from cli.test_secrets_left_behind import Run, files_below, processes_of
from server_process import NotReady, ServerProcess
from tablestone.cli.main import main
from tablestone.engines.kind import EncryptionKey
from tablestone.engines.sqlite.data_directory import PAGE_SIZE_BYTES
from tablestone.engines.sqlite.encryption import PageCipher

StartServer = Callable[..., ServerProcess]

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OTHER = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
MARKER = "the text that no file may have"
FLAG = "--encryption-key-file"
VARIABLE = "TABLESTONE_ENCRYPTION_KEY"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory of key files."""
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "other").write_text(OTHER + "\n")
    (tmp_path / "broken").write_text("a passphrase\n")
    (tmp_path / "binary").write_bytes(bytes(range(200, 232)))
    return tmp_path


@pytest.fixture
def data(keys: Path) -> Path:
    """An encrypted directory with one account."""
    data = keys / "data"
    arguments = ("account", "create", "weather", "--data", data, FLAG, keys / "key")
    assert main([str(each) for each in arguments]) == 0
    return data


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Ended:
    """Run a command in this process, because starting a process would take most of the time."""
    capsys.readouterr()
    status = main([str(each) for each in arguments])
    captured = capsys.readouterr()
    return Ended(status, captured.out.splitlines(), captured.err)


def refused(ended: Ended, sentence: str) -> None:
    assert (ended.status, ended.lines) == (2, [])
    assert ended.stderr.startswith("tablestone: ")
    assert ended.stderr.count("\n") == 1
    assert sentence in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("given", ["a file", "a variable"])
def test_a_run_leaves_neither_data_nor_key(
    given: str, private_server: StartServer, keys: Path, tmp_path: Path
) -> None:
    data, log = tmp_path / "data", tmp_path / "access.log"
    environment = {f"{VARIABLE}_FILE": str(keys / "key")} if given == "a file" else {VARIABLE: KEY}
    server = private_server(
        data,
        *("--workers", "2", "--admin", "0", "--log-level", "debug", "--access-log", str(log)),
        environment=environment,
    )
    tables = TableServiceClient.from_connection_string(server.connection_string)
    table = tables.create_table("Readings")
    for number in range(100):
        table.create_entity({"PartitionKey": "p", "RowKey": str(number), "text": MARKER})
    ran = Run({"the key": KEY, "the data": MARKER}, processes_of(server) | files_below(data))
    backup = tablestone("backup", tmp_path / "one.db", "--data", data, environment=environment)
    assert (backup.status, backup.stderr) == (0, "")
    assert len(list(table.list_entities())) == 100
    assert server.stop() == 0
    ran.left |= files_below(data) | {"one.db": (tmp_path / "one.db").read_bytes()}
    ran.left["standard output"] = "".join(server.stdout).encode()
    ran.left["standard error"] = server.stderr.encode()
    ran.left["access log"] = log.read_bytes()
    assert ran.left["standard error"]
    assert b"Readings" in ran.left["access log"]
    assert ran.found() == []
    again = private_server(data, environment=environment)
    tables = TableServiceClient.from_connection_string(again.connection_string)
    found = tables.get_table_client("Readings").list_entities()
    assert [each["text"] for each in found] == [MARKER] * 100
    assert again.stop() == 0
    damage_is_told(data, tmp_path, environment)
    damaged = private_server(data, environment=environment)
    tables = TableServiceClient.from_connection_string(damaged.connection_string, retry_total=0)
    with pytest.raises(HttpResponseError) as refusal:
        list(tables.get_table_client("Readings").list_entities())
    assert refusal.value.status_code == 500


def damage_is_told(data: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """Flip a bit in a page of entities: `check` must find it, and `salvage` must read the other entities."""
    file = data / "tablestone.db"
    whole = bytearray(file.read_bytes())
    cipher = PageCipher(EncryptionKey.parse(KEY))
    for start in range(0, len(whole), PAGE_SIZE_BYTES):
        page = bytes(whole[start : start + PAGE_SIZE_BYTES])
        if MARKER.encode() in (cipher.opened(start // PAGE_SIZE_BYTES + 1, page) or b""):
            whole[start + 100] ^= 1
            break
    file.write_bytes(whole)
    found = tablestone("check", "--data", data, environment=environment)
    assert (found.status, found.stderr) == (1, "")
    assert any(
        f" pages damaged (page {start // PAGE_SIZE_BYTES + 1})" in line for line in found.lines
    )
    refused_backup = tablestone(
        *("backup", tmp_path / "two.db", "--data", data, "--quiet"), environment=environment
    )
    assert refused_backup.status == 1
    assert refused_backup.stderr == (
        f"tablestone: The backup {tmp_path / 'two.db'} was not made, because the data is damaged: a page of {file} is "
        f"damaged. For a list of all problems: tablestone check --data {data}\n"
    )
    refused(tablestone("salvage", data, tmp_path / "out"), " is encrypted: name the file")
    salvaged = tablestone("salvage", data, tmp_path / "out", environment=environment)
    assert salvaged.stderr == ""
    assert "1 of " in salvaged.lines[-1]


COMMANDS = (
    "check",
    "compact",
    "upgrade",
    "backup NEW",
    "account list",
    "account show weather",
    "account create orders",
    "account rotate-key weather 1",
    "account delete weather",
    "sas account weather --permissions r --resource-types o --expiry 1h",
    "sas account devstoreaccount1 --permissions r --resource-types o --expiry 1h",
    "account show devstoreaccount1 --connection-string",
    "index create Orders customer",
    "index list",
    "role list",
    "token",
    "decrypt",
    "rekey --new-key-file ANOTHER",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_key_that_does_not_fit(
    command: str, data: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (keys / "another").write_text("ff" * 32)
    words = command.replace("NEW", str(keys / "new")).replace("ANOTHER", str(keys / "another"))
    before = files_below(data)
    for options, sentence in (
        ((FLAG, keys / "other"), "The key is not the one that encrypts the data directory "),
        (
            (),
            "There is no key: "
            if command.startswith(("decrypt", "rekey"))
            else " is encrypted: name the file of its key with --encryption-key-file.",
        ),
    ):
        refused(run(capsys, *words.split(), "--data", data, *options), sentence)
    assert {name: each for name, each in files_below(data).items() if each} == {
        name: each for name, each in before.items() if each
    }


def test_keys_that_cannot_be_read(
    data: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, environment, sentence in (
        ("none", {}, f"The encryption key file {keys / 'none'} cannot be read: No such file"),
        (
            "broken",
            {},
            f"The encryption key file {keys / 'broken'} has no key: it must be 32 bytes",
        ),
        (
            "binary",
            {},
            f"The encryption key file {keys / 'binary'} has no key: it must be 32 bytes",
        ),
        ("key", {VARIABLE: KEY}, f"Both {FLAG} and {VARIABLE} give an encryption key"),
        (None, {VARIABLE: "short"}, f"{VARIABLE} has no key: it must be 32 bytes"),
    ):
        options = () if given is None else (FLAG, keys / given)
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            ended = run(capsys, "check", "--data", data, *options)
        refused(ended, sentence)
        assert "passphrase" not in ended.stderr
    memory = run(capsys, "serve", "--engine", "memory", FLAG, keys / "key")
    refused(memory, f"{FLAG} is for a data directory, but there is none")


def test_backup_and_restore(data: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tablestone(*arguments: str | Path) -> Ended:
        return run(capsys, *arguments)

    key = (FLAG, keys / "key")
    assert tablestone("backup", keys / "one.db", "--data", data, *key).status == 0
    place = ("restore", keys / "one.db", "--data", keys / "restored")
    refused(tablestone(*place), f"The backup {keys / 'one.db'} is encrypted: name the file")
    refused(tablestone(*place, FLAG, keys / "other"), "The key is not the one that encrypts the ")
    assert not (keys / "restored").exists()
    assert tablestone(*place, *key).status == 0
    listed = tablestone("account", "list", "--data", keys / "restored", *key)
    assert listed.lines == ["weather"]


def test_on_another_key_and_off(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tablestone(*arguments: str | Path) -> Ended:
        return run(capsys, *arguments)

    plain = keys / "plain"
    assert tablestone("account", "create", "weather", "--data", plain).status == 0
    shown = tablestone("account", "show", "weather", "--keys", "--data", plain).lines
    for words, present in (
        (("encrypt", FLAG, keys / "key"), "key"),
        (("rekey", FLAG, keys / "key", "--new-key-file", keys / "other"), "other"),
    ):
        ended = tablestone(*words, "--data", plain)
        assert (ended.status, ended.stderr) == (0, "")
        options = ("--data", plain, FLAG, keys / present)
        assert tablestone("check", *options).lines == [f"{plain}: healthy"]
        assert tablestone("account", "show", "weather", "--keys", *options).lines == shown
    same = ("rekey", FLAG, keys / "other", "--new-key-file", keys / "other", "--data", plain)
    refused(tablestone(*same), "is the present one: make a new one.")
    encrypted = tablestone("encrypt", "--data", plain, FLAG, keys / "other")
    refused(encrypted, " is encrypted already")
    assert tablestone("decrypt", "--data", plain, FLAG, keys / "other").status == 0
    assert tablestone("account", "show", "weather", "--keys", "--data", plain).lines == shown
    nothing = tablestone("encrypt", "--data", keys / "nowhere", FLAG, keys / "key")
    refused(nothing, "holds no Tablestone data")


@pytest.mark.slow
def test_a_server_is_not_started_with_another_key(
    data: Path, keys: Path, private_server: StartServer
) -> None:
    for workers in ("1", "2"):
        with pytest.raises(NotReady, match="The key is not the one that encrypts"):
            private_server(data, "--workers", workers, FLAG, str(keys / "other"))


@pytest.mark.slow
def test_the_commands_wait_for_no_server(
    data: Path, keys: Path, private_server: StartServer
) -> None:
    server = private_server(data, FLAG, str(keys / "key"))
    for words in (("decrypt",), ("rekey", "--new-key-file", keys / "other")):
        ended = tablestone(*words, "--data", data, FLAG, keys / "key")
        refused(ended, " is in use by another Tablestone server.")
    created = tablestone("account", "create", "orders", "--data", data, FLAG, keys / "key")
    assert created.status == 0
    assert server.stop() == 0
    shutil.rmtree(data)
