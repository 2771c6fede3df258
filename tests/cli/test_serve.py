"""`tablestone serve` as its user sees it: its output, its warnings, how fast it starts, and how it stops."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.data.tables import TableServiceClient

import tablestone
from cli.worker_processes import wait_until
from server_process import COMMAND, NotReady, ServerProcess, start_server
from signing import signed_headers
from stress.crash.writers import Connection, UnexpectedAnswerError
from tablestone.configuration import DEVELOPMENT_ACCOUNT_KEY
from tablestone.server.worker import STOP_SECONDS_MAX

KEY = "a2V5IG9uZQ=="
READY_SECONDS_WANTED = 0.5

StartServer = Callable[..., ServerProcess]


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def connection(server: ServerProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=20)


@contextmanager
def unfinished_request(server: ServerProcess) -> Iterator[socket.socket]:
    """A request that creates the table `ttt` and never sends the body that it announces."""
    parts = urlsplit(server.endpoint)
    headers = signed_headers(
        server.account_name,
        server.account_key,
        method="POST",
        target=f"{parts.path}/Tables",
        content_type="application/json",
    )
    headers += [("Host", parts.netloc), ("Content-Length", "19"), ("Expect", "100-continue")]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    with socket.create_connection(
        (str(parts.hostname), int(str(parts.port))), timeout=20
    ) as opened:
        opened.sendall(f"POST {parts.path}/Tables HTTP/1.1\r\n{head}\r\n".encode())
        assert opened.recv(100).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        yield opened


# Output


def test_ready_lines_name_the_data_the_endpoint_and_a_connection_string_to_paste(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path / "data")
    port = urlsplit(server.endpoint).port
    assert "".join(server.stdout).splitlines() == [
        f"Tablestone {tablestone.__version__}: data in {tmp_path / 'data'}",
        f"Table endpoint: http://127.0.0.1:{port}/devstoreaccount1",
        "Connection string: DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
        f"AccountKey={DEVELOPMENT_ACCOUNT_KEY};"
        f"TableEndpoint=http://127.0.0.1:{port}/devstoreaccount1;",
    ]
    assert server.stop() == 0
    assert server.stderr == ""


def test_the_printed_connection_string_works(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path)
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.create_table("made")
        assert [table.name for table in service.list_tables()] == ["made"]


def test_each_account_has_its_lines_and_no_key_but_the_well_known_one_is_printed(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--account", f"one:{KEY}", "--account", f"two:{KEY}")
    port = urlsplit(server.endpoint).port
    server.stop()
    printed = "".join(server.stdout)
    assert printed.endswith(
        "With the key, where it may be shown: tablestone account show one --connection-string, and the options of "
        "this server\n"
    )
    assert re.findall("^Table endpoint: (.*)$", printed, re.MULTILINE) == [
        f"http://127.0.0.1:{port}/one",
        f"http://127.0.0.1:{port}/two",
    ]
    assert "AccountName=one;AccountKey=<key of one>;" in printed
    assert KEY not in "".join(server.stdout) + server.stderr


def test_the_development_account_with_another_key_is_printed_without_it(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--account", f"devstoreaccount1:{KEY}")
    assert server.account_key == "<key of devstoreaccount1>"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost", r"127\.0\.0\.1|\[::1\]"),
        ("0.0.0.0", r"127\.0\.0\.1"),
        pytest.param("::", r"\[::1\]", marks=needs_ipv6),
        pytest.param("::1", r"\[::1\]", marks=needs_ipv6),
    ],
)
def test_the_endpoint_can_be_reached_whatever_the_host(
    private_server: StartServer, tmp_path: Path, host: str, address: str
) -> None:
    server = private_server(tmp_path, "--host", host)
    assert re.fullmatch(rf"http://({address}):\d+/devstoreaccount1", server.endpoint)
    with closing(connection(server)) as client:
        client.request("GET", urlsplit(server.endpoint).path)
        assert client.getresponse().status in range(200, 500)


@needs_ipv6
def test_all_addresses_of_ipv6_are_those_of_ipv4_too(
    private_server: StartServer, tmp_path: Path
) -> None:
    port = urlsplit(private_server(tmp_path, "--host", "::").endpoint).port
    socket.create_connection(("127.0.0.1", int(str(port)))).close()


@pytest.mark.parametrize("engine", ["memory:", "memory"])
def test_a_memory_engine_says_that_it_keeps_nothing(
    private_server: StartServer, tmp_path: Path, engine: str
) -> None:
    server = private_server(tmp_path, "--engine", engine)
    assert server.stdout[0].endswith("data in memory, lost when the server stops\n")
    assert list(tmp_path.iterdir()) == []


def test_options_from_the_environment_and_a_file(
    private_server: StartServer, tmp_path: Path
) -> None:
    file = tmp_path / "tablestone.toml"
    file.write_text(f'[accounts]\nfromfile = "{KEY}"\n')
    server = private_server(
        tmp_path / "data",
        environment={"TABLESTONE_CONFIG": str(file), "TABLESTONE_HOST": "localhost"},
    )
    assert server.account_name == "fromfile"


@pytest.mark.parametrize("options", [("--engine=memory",), ("--workers=2",)], ids=str)
def test_tables_are_created_at_the_start_if_they_are_missing(
    private_server: StartServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for names in ("Orders", "Orders,Stock"):
        server = private_server(tmp_path / "data", f"--create-tables={names}", *options)
        with TableServiceClient.from_connection_string(server.connection_string) as client:
            assert [table.name for table in client.list_tables()] == names.split(",")
        assert server.stop() == 0
        assert server.stderr == ""


def test_tables_are_created_in_each_configured_account(
    private_server: StartServer, tmp_path: Path
) -> None:
    accounts = [f"--account={name}:{KEY}" for name in ("one", "two")]
    server = private_server(tmp_path, "--create-tables=Orders", *accounts)
    host, port = server.address
    for name in ("one", "two"):
        endpoint = f"http://{host}:{port}/{name}"
        text = f"AccountName={name};AccountKey={KEY};TableEndpoint={endpoint}"
        with TableServiceClient.from_connection_string(text) as client:
            assert [table.name for table in client.list_tables()] == ["Orders"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_ready_in_half_a_second(private_server: StartServer, tmp_path: Path, workers: int) -> None:
    """The best of a few starts, by the clock, or by processor time if the machine is busy."""
    clock, processor, undisturbed = [], [], []
    for _ in range(5):
        started, of_others = time.perf_counter(), machine_seconds() - time.process_time()
        server = private_server(tmp_path, f"--workers={workers}")
        clock.append(time.perf_counter() - started)
        of_others = machine_seconds() - time.process_time() - of_others
        processor.append(processor_seconds(server))
        if of_others - processor[-1] < clock[-1] / 10:
            undisturbed.append(clock[-1])
        server.stop()
        if clock[-1] < READY_SECONDS_WANTED:
            break
    assert min(processor) < READY_SECONDS_WANTED, processor
    assert not undisturbed or min(clock) < READY_SECONDS_WANTED, (clock, undisturbed)


def machine_seconds() -> float:
    """Processor time used on the whole machine (proc(5), /proc/stat: everything but idle and iowait)."""
    ticks = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, ticks[:3] + ticks[5:])) / os.sysconf("SC_CLK_TCK")


def processor_seconds(server: ServerProcess) -> float:
    """Processor time that the server's processes have used so far (proc(5), fields 14 and 15)."""
    first = server.process.pid
    workers = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    ticks = 0
    for process in (first, *workers):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_ready_means_that_it_answers(private_server: StartServer, tmp_path: Path) -> None:
    for _ in range(3):
        server = private_server(tmp_path)
        with closing(connection(server)) as client:
            client.request("GET", urlsplit(server.endpoint).path)
            assert client.getresponse().status in range(200, 500)
        server.stop()


# Warnings


CLOSE_IT = "With --account none, only accounts from tablestone account create are served."
WHO_CAN_WRITE: dict[str, tuple[list[str], list[str]]] = {
    "the known key on every address": (["--host", "0.0.0.0"], [CLOSE_IT]),
    "the known key on this machine": (["--host", "127.0.0.1"], []),
    "the known key on this machine by name": (["--host", "localhost"], []),
    "an own account on every address": (["--host", "0.0.0.0", "--account", f"one:{KEY}"], []),
    "the known key as a second one": (
        ["--host", "0.0.0.0", "--account", f"one:{KEY}:{DEVELOPMENT_ACCOUNT_KEY}"],
        ["Give the accounts keys of your own."],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "warnings"), WHO_CAN_WRITE.values(), ids=WHO_CAN_WRITE)
def test_a_key_that_everybody_knows_is_warned_of_where_others_can_connect(
    private_server: StartServer, tmp_path: Path, arguments: list[str], warnings: list[str]
) -> None:
    server = private_server(tmp_path, *arguments)
    assert server.stop() == 0
    lines = server.stderr.splitlines()
    for line, advice in zip(lines, warnings, strict=True):
        assert line.endswith(
            " WARNING tablestone.cli.commands.serve: Other machines can reach 0.0.0.0, and the development key is "
            f"public: any client that connects can read and change the data. {advice}"
        )


def test_a_misspelt_variable_is_warned_of(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, environment={"TABLESTONE_ACCOUNTS": "none"})
    assert server.stop() == 0
    (warning,) = server.stderr.splitlines()
    assert warning.endswith(
        " WARNING tablestone.cli.commands.serve: TABLESTONE_ACCOUNTS is not an option and is ignored: "
        "did you mean TABLESTONE_ACCOUNT?"
    )


def test_a_custom_domain_of_an_account_that_is_not_there_is_warned_of(
    private_server: StartServer, tmp_path: Path
) -> None:
    domains = ("a.example=devstoreaccount1-secondary", "b.example=weather-secondary")
    options = [part for domain in domains for part in ("--custom-domain", domain)]
    server = private_server(tmp_path, *options)
    assert server.stop() == 0
    (warning,) = server.stderr.splitlines()
    assert warning.endswith(
        " WARNING tablestone.cli.commands.serve: b.example names the account weather, which does not exist: until it "
        "exists, every request to this host is answered 404."
    )


def test_a_client_writes_no_line_of_the_log(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--log-level=debug")
    with Connection(server) as one:
        body = b'<q:a xmlns:q="x&#10;2026-11-21 ERROR tablestone: forged"/>'
        one.send("PUT", "/?restype=service&comp=properties", body, expected=400)
    server.stop()
    (line,) = (line for line in server.stderr_lines if "forged" in line)
    assert r"x\n2026" in line


# The data directory


@pytest.mark.parametrize("workers", [1, 2])
def test_a_removed_data_directory_is_logged_once_and_takes_no_more_writes(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    data = tmp_path / "data"
    server = private_server(data, f"--workers={workers}")
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(server)) for _ in range(2 * workers)]
        opened[0].send("POST", "/Tables", b'{"TableName":"kept"}', expected=201)
        shutil.rmtree(data)
        wait_until(lambda: "Writes are refused until it is back." in server.stderr)
        names = map("lost{}".format, count())

        def is_refused(each: Connection) -> bool:
            body = json.dumps({"TableName": next(names)}).encode()
            with suppress(UnexpectedAnswerError):
                return b"ServerBusy" in each.send("POST", "/Tables", body, expected=503)[1]
            return False  # its process has not checked yet

        for each in opened:
            wait_until(partial(is_refused, each))
            each.send("GET", "/Tables('kept')", expected=200)
    assert server.stop() == 0
    assert server.stderr.count("ERROR") == 1
    assert not data.exists()


# Stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(
    private_server: StartServer, tmp_path: Path, number: signal.Signals
) -> None:
    server = private_server(tmp_path)
    with closing(connection(server)) as idle:
        # Without a version it would be a caller that fails to authenticate, which is logged.
        idle.request("GET", urlsplit(server.endpoint).path, headers={"x-ms-version": "2019-02-02"})
        idle.getresponse().read()
        assert server.stop(number) == 0
    assert server.stderr == ""
    again = private_server(tmp_path)
    assert again.stop() == 0


def test_a_request_in_flight_is_finished(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path)
    with unfinished_request(server) as sending:
        statuses: list[int] = []
        stopping = threading.Thread(target=lambda: statuses.append(server.stop()))
        stopping.start()
        time.sleep(0.3)
        sending.sendall(b'{"TableName":"ttt"}')
        assert sending.recv(1000).startswith(b"HTTP/1.1 201 ")
        stopping.join()
    assert statuses == [0]


def test_a_request_that_never_ends_does_not_hold_the_stop(
    private_server: StartServer, tmp_path: Path
) -> None:
    """The limit is ten seconds; here it is one."""
    assert STOP_SECONDS_MAX == 10
    constants = {
        "tablestone.server.worker.STOP_SECONDS_MAX": 1,
        "tablestone.server.supervisor.STOP_SECONDS_MAX": 1,
    }
    server = private_server(tmp_path, constants=constants)
    with unfinished_request(server):
        started = time.monotonic()
        assert server.stop() == 0
        assert 1 <= time.monotonic() - started < 1 + 5
    assert re.fullmatch(
        r"[\dTZ:.-]+ \[\d+\] WARNING tablestone.server.worker: Stopped with requests unfinished after 1 s.\n",
        server.stderr,
    )


# The test fixtures themselves


@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_without_a_standard_output(tmp_path: Path, workers: int) -> None:
    """Some service managers start programs without one."""
    command = f"exec {COMMAND} serve --port 0 --data {tmp_path / 'data'} --workers {workers} >&-"
    server = subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    assert " started: " in server.stderr.readline()
    server.terminate()
    (stopped,) = server.communicate(timeout=20)[1].splitlines()
    assert " stopped: " in stopped
    assert server.returncode == 0


def test_a_server_that_does_not_start_is_reported_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(
        NotReady, match="exit status 2: tablestone: --log-level must be critical, error"
    ):
        start_server(tmp_path, "--log-level", "loud")
