"""The server's log as an operator sees it by default, and the signals that service managers and terminals send."""

import http.client
import json
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tablestone
from cli.test_serve import unfinished_request
from cli.worker_processes import is_running, wait_until, workers_of
from server_process import COMMAND, ServerProcess, clean_environment
from stress.crash.writers import Connection, UnexpectedAnswerError
from tablestone.wire.versions import VERSION_LATEST

StartServer = Callable[..., ServerProcess]
WRONG = {"Authorization": "SharedKey devstoreaccount1:d3Jvbmc="}
QUIET = "tablestone.telemetry.refused_callers.QUIET_SECONDS"


def refuse(server: ServerProcess, times: int, source: str = "127.0.0.1") -> None:
    with Connection(server) as client:
        client.http = http.client.HTTPConnection(
            *server.address, timeout=20, source_address=(source, 0)
        )
        for _ in range(times):
            client.send("GET", "/Tables", expected=403, headers=WRONG)


@pytest.mark.parametrize("workers", [1, 3])
def test_authentication_failures_are_logged_once_a_minute_for_each_address(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, f"--workers={workers}")
    refuse(server, 2)
    for _ in range(3):  # each over its own connection, so that every worker gets one
        refuse(server, 1)
    refuse(server, 2, "127.0.0.2")
    refuse(server, 1)
    assert server.stop() == 0
    told = [line.partition("refused_callers: ")[2] for line in server.stderr_lines]
    first = (
        r"authentication failed for {} at account devstoreaccount1: AuthenticationFailed: "
        r"no key of the account gives the signature \[request [0-9a-f-]+\]\n"
    )
    assert re.fullmatch(first.format(r"127\.0\.0\.1"), told[0])
    assert re.fullmatch(first.format(r"127\.0\.0\.2"), told[1])
    # Each process logs its count when it ends, in any order.
    assert sorted(told[2:], reverse=True) == [
        "authentication failed 5 more times for 127.0.0.1 within 60 s\n",
        "authentication failed 1 more times for 127.0.0.2 within 60 s\n",
    ]


def test_after_its_minute_an_address_is_logged_again(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--workers=1", constants={QUIET: 3.0})
    refuse(server, 2)
    time.sleep(3.1)
    refuse(server, 1)
    wait_until(lambda: len(server.stderr_lines) == 3)
    assert "failed 1 more times for 127.0.0.1" in server.stderr_lines[1]
    assert "failed for 127.0.0.1" in server.stderr_lines[2]


def test_sigterm_that_the_image_has_held_back_ends_the_start(tmp_path: Path) -> None:
    """As deploy/Dockerfile starts it, with a signal from before Python ran."""
    command = [sys.executable, "-m", "tablestone", "serve", "--port=0", f"--data={tmp_path}/data"]
    ended = subprocess.run(
        ["env", "--block-signal=TERM", "sh", "-c", 'kill -TERM $$; exec "$@"', "sh", *command],
        check=False,
        env={**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, "", "")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_later_version_is_logged_once_by_each_process(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    """Nobody is authenticated yet when the version is read, so a process logs at most twenty."""
    server = private_server(tmp_path, f"--workers={workers}")
    for _ in range(4):  # each over its own connection, so that every worker gets one
        with Connection(server) as client:
            for year in range(2100, 2130):
                client.send(
                    "GET", "/Tables", expected=200, headers={"x-ms-version": f"{year}-01-01"}
                )
            client.send("GET", "/Tables", expected=400, headers={"x-ms-version": "2019-02-03"})
    assert server.stop() == 0
    told = [line.partition("versions: ")[2] for line in server.stderr_lines]
    once = [
        f"version {year}-01-01 of the service is not known: it is served as {VERSION_LATEST} (--any-version)\n"
        for year in range(2100, 2120)
    ]
    assert sorted(told) == sorted(workers * once)


def test_start_and_stop_have_a_line_each(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--workers=2", environment={"TABLESTONE_LOG_LEVEL": ""})
    assert server.stop() == 0
    address = server.endpoint.removesuffix("/devstoreaccount1")
    what = f"Tablestone {tablestone.__version__}, data in {tmp_path}, {address}, 2 workers"
    assert [line.partition("serve: ")[2] for line in server.stderr_lines] == [
        f"started: {what}\n",
        f"stopped: {what}\n",
    ]


def test_every_message_is_a_json_object(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--workers=1", "--log-format=json", "--log-level=debug")
    refuse(server, 1)
    with Connection(server) as one:
        body = b'<q:a xmlns:q="x&#10;forged"/>'
        one.send("PUT", "/?restype=service&comp=properties", body, expected=400)
    assert server.stop() == 0
    messages = [json.loads(line) for line in server.stderr_lines]
    assert {"info", "debug", "warning"} == {message["level"] for message in messages}
    assert all(message["process"] == server.process.pid for message in messages)
    assert any("\nforged" in message["message"] for message in messages)


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_ends_nothing(private_server: StartServer, tmp_path: Path, workers: int) -> None:
    server = private_server(tmp_path, f"--workers={workers}")
    with unfinished_request(server) as sending:
        for _ in range(3):
            os.kill(server.process.pid, signal.SIGHUP)
            time.sleep(0.1)
        sending.sendall(b'{"TableName":"ttt"}')
        assert sending.recv(1000).startswith(b"HTTP/1.1 201 ")
    assert server.stop() == 0
    assert server.stderr == ""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminal_that_is_closed_stops_the_server(tmp_path: Path, workers: int) -> None:
    """The terminal's shell is gone too, so nothing is left that could stop the server later."""
    output = tmp_path / "output"
    command = f"exec {COMMAND} serve --port 0 --data {tmp_path / 'data'} --workers {workers} >{output} 2>&1"
    process, terminal = pty.fork()  # the server leads the session of its own terminal
    if process == 0:
        os.execve("/bin/sh", ["sh", "-c", command], clean_environment())  # noqa: S606 - a shell is what it starts
    wait_until(lambda: output.exists() and "Connection string" in output.read_text())
    os.close(terminal)
    wait_until(
        lambda: os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    )
    assert os.waitpid(process, 0)[1] == 0


def takes_no_more(server: ServerProcess) -> bool:
    """The first signal has acted: a second one that comes before that is the same one."""
    try:
        socket.create_connection(server.address, timeout=20).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # a worker ended before it took this one; another may still take the next
    return False


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_sigint_ends_at_once(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, f"--workers={workers}")
    others = workers_of(server)
    with unfinished_request(server):
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: takes_no_more(server))
        assert server.process.poll() is None
        asked = time.monotonic()
        assert server.stop(signal.SIGINT) == -signal.SIGINT
        assert time.monotonic() - asked < 5
    wait_until(lambda: not any(map(is_running, others)))
    assert "Traceback" not in server.stderr


def wait_for_first_line(process: int) -> None:
    """Wait until our first module runs. Before, Python may lose SIGINT in a lock of its import system, and says so."""

    def is_caught() -> bool:
        (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())
        return bool(int(mask, 16) & 1 << (signal.SIGINT - 1))

    for state in (True, False):  # Python catches it, and then we do not
        deadline = time.monotonic() + 10
        while is_caught() is not state and time.monotonic() < deadline:
            time.sleep(0.001)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("after", [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8])
def test_sigint_during_the_start_ends_it_without_a_traceback(
    tmp_path: Path, after: float, workers: int
) -> None:
    command = [sys.executable, "-m", "tablestone", "serve", "--port=0", f"--data={tmp_path}"]
    command.append(f"--workers={workers}")
    starting = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    wait_for_first_line(starting.pid)
    time.sleep(after)
    starting.send_signal(signal.SIGINT)
    _, told = starting.communicate(timeout=20)
    assert "Traceback" not in told
    assert starting.returncode in {-signal.SIGINT, 130, 0}


@pytest.mark.parametrize("module", ["click", "orjson", "uvloop"])
def test_sigint_during_an_import_ends_the_process_before_the_module_sees_it(
    tmp_path: Path, module: str
) -> None:
    """Interrupting an extension module while it loads can crash the process, as with orjson."""
    (tmp_path / f"{module}.py").write_text(
        "import os, signal\n"
        "try: os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt: os.abort()\n"
    )
    environment = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "tablestone", "serve", "--port=0", f"--data={tmp_path}/data"]
    ended = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


INTERRUPTED = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from tablestone.__main__ import main
sys.exit(main())
"""


def interrupted_start(script: str, *words: str) -> tuple[int, str]:
    """The exit status of a command line and what it told, where the script sends the signal."""
    environment = {**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", script, *words],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "module",
    [
        *("tablestone.engines.sqlite.free_space", "apsw", "unicodedata", "httptools.parser"),
        "encodings.idna",  # when the options have been read
    ],
)
def test_sigint_while_a_later_module_is_looked_for_ends_the_process(
    tmp_path: Path, module: str
) -> None:
    """The command itself loads the modules of the engine and of the sockets."""
    script = INTERRUPTED.format(module=module)
    for words in (("serve", "--port=0"), ("azurite", "--tablePort=0")):
        place = f"--{'data' if words[0] == 'serve' else 'location'}={tmp_path / words[0]}"
        assert interrupted_start(script, *words, place) == (-signal.SIGINT, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_process_of_a_container_ends_during_the_start(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The kernel drops a signal to it that has no handler."""
    script = INTERRUPTED.format(module="tablestone.engines.sqlite.free_space")
    script = script.replace("SIGINT", number.name)
    script = "import os\nos.getpid, own = lambda: 1, os.getpid\n" + script.replace(
        "os.kill(os.getpid(), ", "os.kill(own(), "
    )
    assert interrupted_start(script, "serve", "--port=0", f"--data={tmp_path}") == (
        128 + number,
        "",
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_plain_http_to_the_tls_port_is_logged_once(
    private_server: StartServer, tmp_path: Path, workers: int
) -> None:
    server = private_server(tmp_path, "--tls=self-signed", f"--workers={workers}")
    address = ("127.0.0.1", int(str(urlsplit(server.endpoint).port)))
    for _ in range(2 * workers):
        with socket.create_connection(address, timeout=10) as plain, suppress(ConnectionError):
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            plain.recv(100)
    sentence = (
        "A client speaks plain HTTP to the port that serves TLS: its address must begin with https."
    )
    wait_until(lambda: sentence in server.stderr)
    assert server.stop() == 0
    assert len(server.stderr_lines) == 1, "once for all processes"


def test_tls_to_the_plain_port_and_an_unknown_account_are_logged_once_a_minute(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path / "data", "--workers=2", "--log-level=info")
    hello = ssl.MemoryBIO()
    handshake = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    head = b"GET /nobody%3Fsig=secret/Tables?sig=secret HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for sent, status in [(hello.read(), b" 400 "), (head, b" 404 ")]:
        for _ in range(4):
            with socket.create_connection(server.address, timeout=10) as connection:
                connection.sendall(sent)
                assert status in connection.recv(1000)
    assert server.stop() == 0
    told = [line for line in server.stderr.splitlines() if "TLS" in line or "nobody" in line]
    assert len(told) == 2, "once for all processes"
    assert (
        "127.0.0.1 speaks TLS to a port that serves plain HTTP: use an http:// URL, or --tls self-signed."
        in told[0]
    )
    assert (
        "127.0.0.1 asks for an account that does not exist: 'nobody', at the host 'localhost'"
        in told[1]
    )
    assert "secret" not in server.stderr


def test_a_refused_caller_is_logged_without_what_was_signed(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path)
    with Connection(server) as client, suppress(UnexpectedAnswerError):
        target = "/Weather(PartitionKey='sekretpk',RowKey='r')?sekret=1"
        client.send("GET", target, expected=403, headers=WRONG)
    assert server.stop() == 0
    assert "authentication failed" in server.stderr
    assert "sekret" not in server.stderr
