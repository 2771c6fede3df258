"""`tablestone index` and `expiry` beside a server and by its connection string, also when it is killed at work."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command_line import tablestone
from cli.small_disk import small_disk
from cli.test_index import seed
from cli.worker_processes import wait_until
from conftest import StartServer
from server_process import ServerProcess
from tablestone.cli.main import main
from wire.test_changes import Client

Said = Callable[..., list[str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command in this process; the exit status and its lines."""

    def run(*words: object) -> list[str]:
        status = main([*map(str, words)])
        output = "".join(capsys.readouterr()).splitlines()
        return [str(status), *(line for line in output if not line.startswith("index "))]

    return run


def at(server: ServerProcess) -> tuple[str, str]:
    return "--connection-string", server.connection_string


def test_the_commands_ask_a_server(private_server: StartServer, tmp_path: Path, said: Said) -> None:
    seed(tmp_path / "data", 300)
    server = private_server(tmp_path / "data", "--workers", "2", "--remote-indexes=true")
    create = "index", "create", "Orders"
    assert said(*create, "customer", *at(server)) == [
        *("0", "Orders has an index on customer: 300 entities read.")
    ]
    status, sentence = said(*create, "custmer", "--partition", *at(server))
    assert (status, "No entity of Orders has custmer" in sentence) == ("2", True)
    assert said(*create, "custmer", "--partition", "--yes", *at(server)) == [
        *("0", "Orders has an index on custmer within each partition: 300 entities read."),
        "No entity has custmer so far; names are case-sensitive.",
    ]
    listed = ["0", "Orders\tcustomer\ttable\tready", "Orders\tcustmer\tpartition\tready"]
    assert said("index", "list", *at(server)) == listed
    assert said("index", "list", "Orders", *at(server)) == listed
    status, sentence = said(*create, "customer", *at(server))
    assert status == "1"
    assert "answers IndexAlreadyExists: Orders already has an index on customer." in sentence
    drop = "index", "drop", "Orders", "custmer"
    assert said(*drop, *at(server)) == ["0", "Orders has no index on custmer any more."]
    assert "IndexNotFound" in said(*drop, *at(server))[1]
    refused = said("index", "list", *at(server), "--data", "x")
    assert refused == ["2", "tablestone: --connection-string names a server: leave out --data."]
    assert server.stop() == 0
    assert server.stderr == ""


def test_the_first_index_needs_the_consent_of_the_server(
    private_server: StartServer, tmp_path: Path, said: Said
) -> None:
    seed(tmp_path / "data", 3)
    server = private_server(tmp_path / "data", "--workers", "2")
    create = "index", "create", "Orders", "customer"
    status, sentence = said(*create, *at(server))
    assert status == "1"
    assert "FormatNotAllowed: The first index moves the data directory to format 3" in sentence
    assert said("index", "list", *at(server)) == ["0"]
    assert said(*create, "--data", tmp_path / "data")[0] == "0"  # who has the directory may
    assert said("index", "create", "Orders", "amount", "--yes", *at(server))[0] == "0"


def test_expiry_by_a_server(private_server: StartServer, tmp_path: Path, said: Said) -> None:
    server = private_server(tmp_path / "data", "--workers", "2")
    client = Client(server)
    client.create("Sessions")
    for row, expires in enumerate((1, 2, 9_999_999_999, None)):
        client.insert(
            "Sessions", "p", str(row), **({} if expires is None else {"expires": expires})
        )
    counts = "4 entities, 2 expired now, 1 never"
    words = "at the time in expires"
    setting = ("expiry", "set", "Sessions", "--property", "expires", *at(server))
    assert said(*setting) == [
        *("2", f"Sessions, {words}: {counts}."),
        "tablestone: Nothing was changed: this needs --yes without a terminal.",
    ]
    done = f"Entities of Sessions expire {words}."
    assert said(*setting, "--yes") == ["0", f"Sessions, {words}: {counts}.", done]
    listed = f"devstoreaccount1\tSessions\t{words}\t{counts}"
    assert said("expiry", "list", *at(server)) == ["0", listed]
    assert json.loads(client.send("GET", "/Sessions()")[2])["value"][0]["RowKey"] == "2"
    suspended = "The expiry of Sessions is suspended: nothing is hidden or removed."
    assert said("expiry", "suspend", "Sessions", *at(server)) == ["0", suspended]
    status, _, sentence = said("expiry", "set", "Sessions", "--after", "1h", *at(server))
    assert status == "0"  # nothing to ask
    assert sentence.startswith("Entities of Sessions expire 1h after their Timestamp (suspended).")
    assert said("expiry", "resume", "Sessions", "--yes", *at(server))[0] == "0"
    removed = "Sessions has no expiry policy any more: nothing is hidden or removed."
    assert said("expiry", "remove", "Sessions", *at(server)) == ["0", removed]
    assert said("check", "--data", tmp_path / "data") == ["0", f"{tmp_path / 'data'}: healthy"]
    for command in ("remove", "suspend", "resume"):
        refused = said("expiry", command, "Sessions", *at(server))
        assert refused[-1] == "tablestone: The table has no expiry policy."
    assert server.stop() == 0
    assert server.stderr == ""


def test_a_command_beside_a_server_hands_its_work_over(
    private_server: StartServer, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "data"
    seed(place, 1_000)
    server = private_server(place, "--workers", "2")
    with monkeypatch.context() as patched:  # this process builds and drops nothing
        patched.delattr("tablestone.tables.index_building.IndexWork._claimed")
        create = "index", "create", "Orders", "customer", "--data", place
        made = "Orders has an index on customer: 1,000 entities read."
        assert said(*create) == ["0", made]
        drop = "index", "drop", "Orders", "customer", "--data", place
        assert said(*drop) == ["0", "Orders has no index on customer any more."]
    assert server.stop() == 0
    assert server.stderr == ""
    assert said(*create) == ["0", made]


def test_a_command_works_itself_if_no_server_takes_its_work_up(
    private_server: StartServer, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "data"
    seed(place, 10)
    server = private_server(place)
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr("tablestone.tables.index_building.TAKEN_UP_SECONDS", 0.5)
        create = "index", "create", "Orders", "customer", "--data", place
        assert said(*create) == ["0", "Orders has an index on customer: 10 entities read."]
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def indexes_of(client: Client) -> list[dict[str, object]]:
    answer = client.send("GET", "/Orders?comp=indexes", x_tablestone_indexes="1")
    found: list[dict[str, object]] = json.loads(answer[2])["indexes"]
    return found


def wait_until_ready(client: Client, seconds: float = 60) -> dict[str, object]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        (index,) = indexes_of(client)
        if index["state"] == "ready":
            return index
        time.sleep(0.2)
    raise AssertionError(indexes_of(client))


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_build_goes_on_after_kills(
    private_server: StartServer, tmp_path: Path, said: Said, workers: str
) -> None:
    place = tmp_path / "data"
    seed(place, 12_000)
    options = (place, "--workers", workers, "--remote-indexes=true")
    server = private_server(*options)
    body = {"property": "customer"}
    Client(server).done("PUT", "/Orders?comp=indexes", body, x_tablestone_indexes="1")
    for pause in (0.3, 0.8):
        time.sleep(pause)
        server.kill()
        server = private_server(*options)
    index = wait_until_ready(Client(server))
    assert index["entities"] == 12_000
    assert server.stop() == 0
    assert said("index", "check", "Orders", "customer", "--data", place, "--quiet") == [
        *("0", "The index on customer of Orders is right: 12,000 entities.")
    ]


@pytest.mark.slow
def test_a_full_disk_stops_a_build_until_there_is_room(
    private_server: StartServer, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 16 * 1024 * 1024) as disk:
        place = disk / "data"
        seed(place, 4_000)
        server = private_server(place, "--remote-indexes=true")
        filler = disk / "filler"
        found = os.statvfs(disk)
        filler.write_bytes(bytes(found.f_bavail * found.f_frsize - 1024 * 1024))
        client = Client(server)
        body = {"property": "customer"}
        client.done("PUT", "/Orders?comp=indexes", body, x_tablestone_indexes="1")
        wait_until(lambda: indexes_of(client)[0].get("waits") is True)
        wait_until(lambda: any(" waits: " in line for line in server.stderr_lines))
        (index,) = indexes_of(client)
        assert (index["state"], index["waits"]) == ("building", True)
        filler.unlink()
        wait_until_ready(client)
        assert server.stop() == 0
        assert server.stderr.count("Work on indexes and counts of expiry waits: ") == 1
        assert tablestone("check", "--data", place).lines == [f"{place}: healthy"]


SOON = {
    "tablestone.tables.auto_index.EXAMINED_MIN": 200,
    "tablestone.tables.auto_index.LOOK_SECONDS": 0.2,
}


@pytest.mark.parametrize(
    "options", [("--workers", "2"), ("--engine", "memory")], ids=["sqlite", "memory"]
)
def test_a_server_makes_an_index_by_itself(
    private_server: StartServer, tmp_path: Path, said: Said, options: tuple[str, ...]
) -> None:
    place = tmp_path / "data"
    loud = "--log-level", "info"
    server = private_server(place, *options, *loud, "--auto-index=true", constants=SOON)
    client = Client(server)
    client.create("Orders")
    for number in range(300):
        client.insert("Orders", "p", f"{number:04}", customer=f"c{number}")
    target = "/Orders()?$filter=customer%20eq%20'c7'"
    for _ in range(25):  # a connection each, so both workers count
        client.done("GET", target, User_Agent="tablestone-explorer/1.0")
        client.done("GET", target, User_Agent="tablestone/1.0 azsdk")
    time.sleep(1.5)
    assert indexes_of(client) == []
    if "memory" not in options:  # the consent is for the server's own
        other = {"property": "other"}
        refused = client.send("PUT", "/Orders?comp=indexes", other, x_tablestone_indexes="1")
        assert (refused[0], refused[1]["x-ms-error-code"]) == (403, "FormatNotAllowed")
    for _ in range(25):
        client.done("GET", target)
    end = time.monotonic() + 20
    while not indexes_of(client) and time.monotonic() < end:
        time.sleep(0.2)
    index = wait_until_ready(client)
    assert (index["property"], index["automatic"]) == ("customer", True)
    listed = "Orders\tcustomer\ttable\tready\tmade by the server"
    assert said("index", "list", *at(server)) == ["0", listed]
    answer = client.send("GET", target, x_tablestone_examined="1")
    assert answer[1]["x-tablestone-examined"] == "1"
    client.done("PUT", "/Orders?comp=indexes", {"property": "customer"}, x_tablestone_indexes="1")
    assert "automatic" not in indexes_of(client)[0]  # adopted
    assert server.stop() == 0
    made = "makes an index on customer of devstoreaccount1/Orders by itself"
    assert made in server.stderr
    consent = "--auto-index: the first index changes the data directory"
    assert (consent in server.stderr) is (options[0] == "--workers")
    assert server.stderr.count("WARNING") == (options[0] == "--workers")
