"""`serve --archive`, `archive`, `restore --archive` and `serve --from-archive`, as docs/guides/archive.md says."""

from __future__ import annotations

import asyncio
import http.server
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import pytest
from azure.data.tables import TableServiceClient

from cli.admin_pages import json_page, page
from cli.command_line import Ended, tablestone
from cli.worker_processes import wait_until, workers_of
from server_process import NotReady, ServerProcess, command_with, needs_console_script, start_server
from stress.archive_kills.run import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 5
WITH_CREDENTIALS = ("s3://user:SECRET@bucket/a", "s3://SECRET@bucket/a", "az://box/a?sig=SECRET")
RESTORED = re.compile(r"restored from \S+, life (\w{16}), up to record (\d+), (\S+Z), checked")
INFO = {"TABLESTONE_LOG_LEVEL": "info"}


class Served(NamedTuple):
    """A server with an archive, the table Orders and an entity that came a second after the others."""

    server: ServerProcess
    data: Path
    archive: Path
    middle: str
    """A moment between the first entities and the last one."""

    @property
    def life(self) -> str:
        (life,) = lives_in(self.archive)
        return life.name


def lives_in(archive: Path) -> list[Path]:
    return [path for path in archive.iterdir() if not path.name.startswith(".")]


def insert(server: ServerProcess, *rows: str, table: str = "Orders") -> None:
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        client = service.create_table_if_not_exists(table)
        for row in rows:
            client.create_entity({"PartitionKey": "p", "RowKey": row})


def rows(server: ServerProcess, table: str = "Orders") -> set[str]:
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        return {str(each["RowKey"]) for each in service.get_table_client(table).list_entities()}


def listed(archive: Path, *options: str) -> str:
    ended = tablestone("archive", "list", archive, *options)
    assert (ended.status, ended.stderr) == (0, "") or "There is no archive" in ended.stderr, ended
    return "\n".join(ended.lines)


def archived(archive: Path, *options: str) -> int:
    """The newest record that can be restored; 0 for none."""
    if not archive.is_dir():  # its server makes it
        return 0
    found = re.findall(r"can be restored: .* to (\d+)\)", listed(archive, *options))
    return max(map(int, found), default=0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    top = tmp_path_factory.mktemp("served")
    data, archive = top / "data", top / "archive"
    server = start_server(data, f"--archive={archive}", "--workers=1", "--admin=127.0.0.1:0")
    wait_until(lambda: archived(archive) > 0)
    insert(server, *map(str, range(ROWS)))
    time.sleep(0.01)
    middle = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    time.sleep(0.01)
    insert(server, "the last")
    wait_until(lambda: archived(archive) >= ROWS + 2)
    yield Served(server, data, archive, middle)
    assert server.stop() == 0


def restore(archive: Path | str, data: Path, *options: str | Path) -> Ended:
    return tablestone("restore", "--quiet", "--archive", archive, "--data", data, *options)


def restored_rows(data: Path) -> set[str]:
    return set(asyncio.run(read_rows(data)).get("p", {}))


def test_health_and_metrics(served: Served) -> None:
    status, health = json_page(served.server, "/health/ready")
    assert (status, health.get("warnings", [])) == (200, []), health
    text = page(served.server, "/metrics")[1]
    for name in ("lag_seconds", "behind_bytes", "errors_total"):
        assert f"\ntablestone_archive_{name} " in text


def test_list_and_check(served: Served) -> None:
    assert f"life {served.life}: " in listed(served.archive)
    ended = tablestone("archive", "check", "--quiet", served.archive, "--data", served.data)
    assert ended.status == 0, ended
    assert ended.lines[0].startswith(f"{served.archive}: holds what {served.data} holds, ")
    assert not list(served.data.parent.glob(".tablestone-check-*"))


@pytest.mark.parametrize("by", ["zone", "local", "number", "newest"])
def test_a_moment_comes_back(served: Served, by: str, tmp_path: Path) -> None:
    to = [] if by == "newest" else ["--to", served.middle]
    if by == "local":
        moment = datetime.fromisoformat(served.middle).astimezone().replace(tzinfo=None)
        to = ["--to", moment.isoformat()]
    elif by == "number":
        ended = restore(served.archive, tmp_path / "first", "--to", served.middle)
        to = ["--to", RESTORED.findall(ended.lines[0])[0][1]]
    ended = restore(served.archive, tmp_path / "new", *to, "--life", served.life)
    assert (ended.status, ended.stderr) == (0, ""), ended
    said = "\n".join(ended.lines)
    assert RESTORED.findall(said)[0][0] == served.life
    assert ("--to has no zone, so it is local time: " in said) == (by == "local")
    assert ("are those of that moment" in said) == (by != "newest")
    first = set(map(str, range(ROWS)))
    assert restored_rows(tmp_path / "new") == (first | {"the last"} if by == "newest" else first)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--to yesterday", "not 'yesterday'."),
        ("--to 2099-01-01T00:00:00Z", "is in the future: without --to, the newest moment"),
        ("--to '10 minutes ago'", "is too early for the life LIFE: it goes back to "),
        ("--to '1000000 days ago'", "1970-01-01T00:00:00.000Z is too early"),
        ("--to '99999999999999999999 days ago'", "is too early for the life LIFE"),
        ("--to 0001-01-01T00:00:00+14:00", "is too early for the life LIFE"),
        ("--to 9999-12-31T23:59:59-14:00", "is in the future"),
        ("--to 99999", "Record 99,999 is later than the newest, "),
        ("--life 0123456789abcdef", "has no life 0123456789abcdef: it has LIFE."),
        ("--table Orders", "--table, --into and --as belong together."),
        ("--archive-key-file none", "The encryption key file none cannot be read: "),
    ],
)
def test_a_moment_that_is_refused(
    served: Served, options: str, sentence: str, tmp_path: Path
) -> None:
    ended = restore(served.archive, tmp_path / "new", *shlex.split(options))
    assert ended.status == 2
    assert sentence.replace("LIFE", served.life).replace("none", str(Path("none").absolute())) in (
        ended.stderr
    )
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "new" / "tablestone.db").exists()


def test_data_that_is_not_empty_is_refused(served: Served) -> None:
    ended = restore(served.archive, served.data)
    assert ended == Ended(
        2,
        [],
        f"tablestone: The directory {served.data} is not empty: name a new or an empty directory.\n",
    )


def test_one_table_beside_the_server(served: Served) -> None:
    def one_table(table: str, name: str) -> Ended:
        into = served.server.connection_string
        names = ("--table", table, "--into", into, "--as", name)
        return tablestone(
            *("restore", "--quiet", "--archive", served.archive, "--to", served.middle, *names)
        )

    ended = one_table("orders", "OrdersBefore")
    assert (ended.status, ended.stderr) == (0, ""), ended
    assert ended.lines[-1].endswith(f": {ROWS} entities, with new Timestamps")
    assert rows(served.server, "OrdersBefore") == set(map(str, range(ROWS)))
    ended = one_table("Orders", "OrdersBefore")
    assert (ended.status, ended.stderr) == (
        2,
        "tablestone: The table OrdersBefore exists already: give another name with --as.\n",
    )
    ended = one_table("OrdersBefore", "Other")
    assert ended.status == 2
    assert "At that moment, the account devstoreaccount1 had no table OrdersBefore." in ended.stderr
    ended = one_table("Orders", "One,Two")
    assert (ended.status, "--as is the name of one table" in ended.stderr) == (2, True)
    names = ("--table", "Orders", "--into", served.server.connection_string, "--as", "Other")
    ended = tablestone("restore", "--archive", served.archive, *names, "--data", "elsewhere")
    assert (ended.status, "leave it out with --table" in ended.stderr) == (2, True)


def test_prune_refuses_what_is_written_or_unknown(served: Served) -> None:
    ended = tablestone("archive", "prune", served.archive, "--life", served.life)
    assert (ended.status, "is the only one of this archive" in ended.stderr) == (2, True)
    ended = tablestone("archive", "prune", served.archive, "--life", "0123456789abcdef")
    assert (ended.status, ended.stderr) == (
        2,
        "tablestone: The archive has no life 0123456789abcdef.\n",
    )


@pytest.mark.parametrize("url", WITH_CREDENTIALS)
def test_credentials_in_a_url_are_refused_and_not_told(url: str) -> None:
    for line in (("archive", "list", url), ("restore", "--archive", url, "--data", "new")):
        ended = tablestone(*line)
        assert ended.status == 2
        assert "must have no credentials" in ended.stderr
        assert "SECRET" not in f"{ended}"


def test_a_scratch_directory_that_is_none(served: Served) -> None:
    ended = tablestone(
        *("archive", "check", served.archive, "--data", served.data, "--scratch", "/nowhere")
    )
    assert (ended.status, len(ended.stderr.splitlines())) == (2, 1)
    assert "/nowhere is no directory" in ended.stderr


def test_what_is_no_archive(tmp_path: Path) -> None:
    """Such as a mistyped directory."""
    (tmp_path / "empty").mkdir()
    for name, sentence in (("empty", "There is no archive"), ("absent", "does not exist")):
        ended = tablestone("archive", "list", tmp_path / name)
        assert ended.status != 0
        assert sentence in ended.stderr, ended


def test_a_moment_later_than_the_archive_says_so(served: Served, tmp_path: Path) -> None:
    copy = tmp_path / "archive"
    shutil.copytree(served.archive, copy)
    then = datetime.now(UTC).timestamp() - 3_600
    for path in copy.rglob("*"):
        os.utime(path, (then, then))
    ended = restore(copy, tmp_path / "new", "--to", "0 s ago", "--life", served.life)
    assert "; the archive was written last at " in "".join(ended.lines), ended


def test_check_names_what_differs(served: Served, tmp_path: Path) -> None:
    """The archive of a life, beside a directory that has another entity, and one that lost an object."""
    old, archive = tmp_path / "old", tmp_path / "archive"
    assert restore(served.archive, old, "--to", served.middle).status == 0
    shutil.copytree(served.archive, archive)
    ended = tablestone("archive", "check", "--quiet", archive, "--data", old)
    assert ended.status == 1
    assert "the last" in "\n".join(ended.lines), ended
    assert re.search(
        f"rows differ from {old}: this is an older state, up to record \\S+ of ", ended.lines[-1]
    )
    (changes,) = sorted(archive.glob("*/changes/*/*"))[-1:]
    changes.write_bytes(changes.read_bytes()[:-9] + b"x" * 9)
    ended = tablestone("archive", "check", "--quiet", archive, "--data", served.data)
    assert ended.status == 1
    assert changes.relative_to(archive).as_posix() in ended.stderr


@needs_console_script
def test_a_server_restores_an_empty_directory(served: Served, tmp_path: Path) -> None:
    """It goes on in the life; a directory with data starts as usual, also without the archive."""
    archive, data = tmp_path / "archive", tmp_path / "data"
    shutil.copytree(served.archive, archive)
    options = (f"--archive={archive}", "--workers=1", "--from-archive=true")
    # An unfinished restore goes on.
    with mock.patch(
        "tablestone.engines.sqlite.restored_directory.RestoredDirectory.keep_record",
        side_effect=KeyboardInterrupt,
    ):
        tablestone("restore", "--quiet", "--archive", archive, "--data", data)
    assert not (data / "tablestone.db").exists()
    assert any(data.iterdir())
    server = start_server(data, *options)
    assert "the last" in rows(server)
    insert(server, "more")
    assert server.stop() == 0
    assert "Restored from " in server.stderr
    server = start_server(data, *options)
    assert "more" in rows(server)
    assert server.stop() == 0
    assert "Restored from " not in server.stderr


def test_an_empty_archive_begins_anew_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    options = (f"--archive={tmp_path / 'archive'}", "--workers=1", "--from-archive=true")
    server = start_server(tmp_path / "data", *options)
    assert server.stop() == 0
    assert "holds nothing: this server begins without data." in server.stderr


def test_a_server_waits_for_its_archive(served: Served, tmp_path: Path) -> None:
    """A disk that is not mounted is not an empty archive."""
    archive, log = tmp_path / "archive", tmp_path / "log"
    constants = {"tablestone.cli.commands.restore_archive.WAIT_SECONDS": 0.2}
    options = ("--port=0", f"--data={tmp_path / 'data'}", f"--archive={archive}", "--workers=1")
    line = [*command_with(constants), "serve", *options, "--from-archive=true"]
    with log.open("w") as stderr, subprocess.Popen(line, stdout=stderr, stderr=stderr) as server:
        try:
            waits = f"Waits for the archive {archive}, to restore the data directory. The directory"
            wait_until(lambda: f"{waits} {archive} does not exist." in log.read_text())
            assert "Table endpoint" not in log.read_text()
            shutil.copytree(served.archive, tmp_path / "copied")
            (tmp_path / "copied").rename(archive)
            wait_until(lambda: "Connection string" in log.read_text())
        finally:
            server.terminate()
    assert "Restored from " in log.read_text()
    assert "the last" in restored_rows(tmp_path / "data")


def test_an_encrypted_directory_and_other_keys(tmp_path: Path) -> None:
    """The archive has the directory's key; after `rekey` a restore needs the new one, and older moments the old one."""
    keys = []
    for name in ("old.key", "new.key"):
        keys.append(tmp_path / name)
        keys[-1].write_text(f"{len(keys)}e" * 32)
    data, archive = tmp_path / "data", tmp_path / "archive"
    options = (f"--archive={archive}", "--workers=1")
    server = start_server(data, *options, f"--encryption-key-file={keys[0]}")
    insert(server, "secret row")
    wait_until(lambda: archived(archive, f"--archive-key-file={keys[0]}") >= 2)
    assert server.stop() == 0
    assert "is not encrypted" not in server.stderr
    number = archived(archive, f"--archive-key-file={keys[0]}")
    assert not any(
        b"secret row" in path.read_bytes() for path in archive.rglob("*") if path.is_file()
    )
    ended = restore(archive, tmp_path / "none")
    assert ended.status == 2
    assert "key" in ended.stderr
    ended = tablestone(
        *("rekey", "--data", data, "--encryption-key-file", keys[0], "--new-key-file", keys[1])
    )
    assert ended.status == 0, ended
    both = (f"--archive-key-file={keys[1]}", f"--archive-key-file={keys[0]}")
    server = start_server(data, *options, f"--encryption-key-file={keys[1]}", *both)
    insert(server, "newer row", table="Newer")
    new_key = f"--archive-key-file={keys[1]}"
    wait_until(lambda: archived(archive, new_key) > number + 1)
    assert server.stop() == 0
    assert len(lives_in(archive)) == 1
    ended = restore(archive, tmp_path / "new", "--encryption-key-file", keys[1])
    assert (ended.status, ended.stderr) == (0, ""), ended
    ended = restore(archive, tmp_path / "older", "--to", str(number), "--archive-key-file", keys[0])
    assert ended.status == 0, ended
    assert restored_rows(tmp_path / "older") == {"secret row"}


def test_without_archive_a_server_says_that_archiving_rests(tmp_path: Path) -> None:
    """`--keep-changes none` beside an archive ends the feed only; without `--archive` nothing is kept."""
    data, archive = tmp_path / "data", tmp_path / "archive"
    options = (f"--archive={archive}", "--workers=1", "--keep-changes=none")
    server = start_server(data, *options)
    insert(server, "a")
    wait_until(lambda: archived(archive) >= 2)
    assert server.stop() == 0
    newest = archived(archive)
    server = start_server(data, "--workers=2", "--admin=127.0.0.1:0")
    rests = f"Nothing is archived to {archive} any more, since "
    wait_until(lambda: rests in server.stderr)
    status, health = json_page(server, "/health/ready")
    assert (status, [rests in each for each in health["warnings"]]) == (200, [True]), health
    insert(server, "b")
    assert server.stop() == 0
    assert archived(archive) == newest
    for ends in ("--archive=none", ""):
        server = start_server(data, "--workers=2", "--admin=127.0.0.1:0", *filter(None, [ends]))
        health = json_page(server, "/health/ready")[1]
        assert server.stop() == 0
        assert (rests in server.stderr, health.get("warnings", [])) == (False, []), ends
    server = start_server(data, *options, "--admin=127.0.0.1:0", environment=INFO)
    insert(server, "c")
    wait_until(lambda: len(restorable_rows(archive, tmp_path / "new")) == 3)
    assert server.stop() == 0


def restorable_rows(archive: Path, data: Path) -> set[str]:
    """What the life that was written last restores; nothing if it has no base copy yet."""
    shutil.rmtree(data, ignore_errors=True)
    lives = re.findall(r"^life (\w+)", listed(archive), re.MULTILINE)
    if restore(archive, data, "--life", lives[0]).status:
        return set()
    return restored_rows(data)


def test_the_server_checks_its_archive(tmp_path: Path) -> None:
    options = ("--archive-check=1s", "--workers=1", "--admin=127.0.0.1:0")
    server = start_server(tmp_path / "data", f"--archive={tmp_path / 'archive'}", *options)
    began = time.time()
    wait_until(lambda: "archive_check_held" in json_page(server, "/health/ready")[1])
    held = json_page(server, "/health/ready")[1]["archive_check_held"]
    assert datetime.fromisoformat(held).timestamp() >= began - 1
    (changes,) = (tmp_path / "archive").glob("*/base/*/*/end")
    changes.write_bytes(b"damaged")

    def warnings() -> str:
        return " ".join(json_page(server, "/health/ready")[1].get("warnings", []))

    wait_until(lambda: "The check of the archive" in warnings())
    assert server.stop() == 0


def test_an_archive_in_the_data_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(NotReady, match="is in the data directory, which it would not outlive"):
        start_server(data, f"--archive={data / 'archive'}")


@needs_console_script
def test_the_extra_is_missing() -> None:
    with mock.patch.dict(sys.modules, {"obstore": None}):
        ended = tablestone("archive", "list", "s3://bucket/tables")
    assert (ended.status, len(ended.stderr.splitlines())) == (2, 1)
    assert "archive" in ended.stderr
    assert "pip install" in ended.stderr or "extra" in ended.stderr


class Refusing(http.server.BaseHTTPRequestHandler):
    """A store that answers each request with the same status."""

    status = 403

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_given: object) -> None:
        return


@contextmanager
def answering(status: int) -> Iterator[dict[str, str]]:
    """Variables that reach such a store."""
    handler = type("Answers", (Refusing,), {"status": status})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "AWS_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "top secret",
    }
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (403, "The store denies access."),
        (404, "There is no such bucket or container."),
        (401, "The store does not accept the credentials."),
    ],
)
def test_a_store_that_refuses(status: int, sentence: str) -> None:
    with answering(status) as environment:
        ended = tablestone("archive", "list", "s3://bucket/tables", environment=environment)
    assert ended.status == 1
    assert ended.stderr.startswith(
        f"tablestone: The archive s3://bucket/tables cannot be read: {sentence} "
    )
    assert len(ended.stderr.splitlines()) == 1
    assert "top secret" not in ended.stderr


def test_an_endpoint_without_tls_needs_a_word() -> None:
    with answering(403) as environment:
        environment["AWS_ALLOW_HTTP"] = "false"
        ended = tablestone("archive", "list", "s3://bucket/tables", environment=environment)
    assert "needs AWS_ALLOW_HTTP=true" in ended.stderr


def test_a_newer_format_is_named(served: Served, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    shutil.copytree(served.archive, archive)
    for term in archive.glob("*/terms/*"):
        term.write_bytes(term.read_bytes().replace(b"archive 1\n", b"archive 2\n", 1))
    ended = restore(archive, tmp_path / "new")
    assert ended.status == 2
    assert "later" in ended.stderr or "newer" in ended.stderr, ended


@pytest.mark.parametrize(
    "url", ["s4://bucket/a", "s3:/bucket/a", "DATA/inside", "http://[::1", *WITH_CREDENTIALS]
)
def test_a_refused_start_leaves_no_data_behind(tmp_path: Path, url: str) -> None:
    """An empty database would keep `--from-archive` from restoring."""
    data = tmp_path / "data"
    ended = tablestone("serve", "--data", data, "--archive", url.replace("DATA", str(data)))
    assert (ended.status, len(ended.stderr.splitlines())) == (2, 1), ended
    assert not data.exists()


def test_a_server_that_was_stopped_returns_after_another_took_over(tmp_path: Path) -> None:
    """A virtual machine is paused, its disk's snapshot goes on elsewhere, and then it is continued."""
    archive = tmp_path / "archive"
    options = (f"--archive={archive}", "--workers=1", "--archive-interval=1")
    first = start_server(tmp_path / "data", *options)
    processes = [first.process.pid, *workers_of(first)]
    insert(first, "both")
    wait_until(lambda: archived(archive) >= 3)
    (life,) = (path.name for path in lives_in(archive))
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    other = start_server(tmp_path / "copy", *options)
    insert(other, "other")
    wait_until(lambda: archived(archive) >= 4)
    for process in processes:
        os.kill(process, signal.SIGCONT)
    insert(first, "first")
    wait_until(lambda: "after record 3 of the life" in first.stderr)
    insert(other, "other again")
    insert(first, "first again")
    assert first.stop() == 0
    assert other.stop() == 0
    (child,) = (path.name for path in lives_in(archive) if path.name != life)
    assert (
        f"The archive's term was lost: another server goes on in the life {life}." in first.stderr
    )
    assert re.search(
        rf"in a new life, {child}, after record 3 of the life {life}: another server has gone on",
        first.stderr,
    )
    assert other.stderr_without("is not encrypted") == ""
    for name, found in ((life, {"other", "other again"}), (child, {"first", "first again"})):
        ended = restore(archive, tmp_path / name, "--life", name)
        assert (ended.status, ended.stderr) == (0, ""), ended
        assert restored_rows(tmp_path / name) == {"both", *found}
