"""A run with every kind of secret, and everything it leaves behind: logs, files, metrics, traces, process lists.

A secret may only be where it is kept on purpose. The test looks for each one as it was sent, URL-encoded, as raw bytes,
and in the other encodings that a program may print.
"""

import base64
import re
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from urllib.parse import quote, urljoin

import pytest

from certificates import trusting
from cli.account_command import account
from cli.admin_pages import admin_of, page
from cli.test_refusals import run_command
from cli.test_tokens import done
from cli.trace_collector import collecting
from cli.worker_processes import wait_until, workers_of
from sas_signing import completed, query_of, signed, signed_by_user
from server_process import ServerProcess
from signing import signature, signed_headers

StartServer = Callable[..., ServerProcess]

CONFIGURED_KEY = base64.b64encode(b"the key in the environment").decode()
STORED_KEY = base64.b64encode(b"the key that is stored for weather").decode()
WRONG_KEY = base64.b64encode(b"a key that no account has").decode()
VERSION = "2025-07-05"
KEY_INFO = b"<KeyInfo><Expiry>%s</Expiry></KeyInfo>"
ENTITY = b'{"PartitionKey":"p","RowKey":"r"}'
PAGE = re.compile(r" (/\S+)")
"""A page of the admin address, as its first page lists them."""
EXPLORER = re.compile(r"^Explorer: http://[^/]+(\S*[?&]token=([\w-]+))$", re.MULTILINE)
OPENED = "row-that-the-explorer-opens"
"""The RowKey of an entity opened in the explorer. It is no secret, but keys may identify people, so no log has it."""
EXPLORED = (
    *("", "tables/Readings", "service", "heat", "no-such-page"),
    f"tables/Readings/entity?pk=p&rk={OPENED}",
)
KEPT = {
    "standard output": {"the token of the explorer"},
    "tablestone.db": {"the key of a stored account"},
    "tablestone.db-wal": {"the key of a stored account"},
}
"""The places with secrets, files by name. The test does not look for the private keys of TLS and tokens."""


def forms(secret: str) -> set[bytes]:
    """The secret in every form that a program might print."""
    found = {secret.encode(), quote(secret, safe="").encode(), quote(secret).encode()}
    try:
        decoded = base64.b64decode(secret, validate=True)
    except ValueError:
        return found
    return found | {decoded, decoded.hex().encode(), base64.urlsafe_b64encode(decoded).rstrip(b"=")}


@dataclass
class Run:
    """The secrets in use, by name, and what was left behind, by place."""

    secrets: dict[str, str] = field(default_factory=dict)
    left: dict[str, bytes] = field(default_factory=dict)

    def found(self, kept: Mapping[str, Iterable[str]] = KEPT) -> list[str]:
        """The secrets found where they are not kept on purpose."""
        return [
            f"{name} in {place}"
            for place, content in self.left.items()
            for name, secret in self.secrets.items()
            if name not in kept.get(Path(place).name, ())
            and any(form in content for form in forms(secret))
        ]


class Client:
    """Sends requests over TLS and keeps the body and headers of every error."""

    def __init__(self, server: ServerProcess, data: Path, ran: Run) -> None:
        context: ssl.SSLContext = trusting(data / "tls" / "certificate.pem")
        self._connection = HTTPSConnection(*server.address, timeout=30, context=context)
        self._ran = ran

    def send(
        self,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        expected: int,
        body: bytes = b"",
    ) -> bytes:
        self._connection.request(method, target, body, dict(headers))
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == expected, (method, target, answer)
        if response.status >= 400:
            place = f"answer {len(self._ran.left)}"
            self._ran.left[place] = str(response.headers).encode() + answer
        return answer

    def close(self) -> None:
        self._connection.close()


def requests_with_keys(client: Client, ran: Run, name: str, key: str) -> None:
    """Valid and refused requests; the signature of each is a secret too."""
    target = f"/{name}/Tables"
    body = b'{"TableName":"Readings"}'
    for number, (signer, expected) in enumerate(((key, 201), (key, 409), (WRONG_KEY, 403))):
        headers = signed_headers(
            name, signer, method="POST", target=target, content_type="application/json"
        )
        client.send("POST", target, headers, expected, body)
        given = dict(headers)["Authorization"].rpartition(":")[2]
        ran.secrets[f"signature {number} of a request to {name}"] = given


def requests_with_signatures(client: Client, ran: Run, name: str, key: str) -> None:
    """Signatures in URLs: valid, refused, in the path, and after an encoded question mark."""
    headers = [
        ("x-ms-version", "2019-02-02"),
        ("Accept", "application/json"),
        ("Content-Type", "application/json"),
    ]
    for number, (signer, expected) in enumerate(((key, 200), (WRONG_KEY, 403))):
        wanted = completed({"tn": "Readings", "sp": "r"})
        parameters = signed(name, signer, wanted)
        ran.secrets[f"SAS {number} of {name}"] = parameters["sig"]
        query = query_of(parameters)
        client.send("GET", f"/{name}/Readings()?{query}", headers, expected)
        client.send("POST", f"/{name}/Readings?{query}", headers, 403, ENTITY)
        client.send("GET", f"/{name}/Readings%3F{quote(query, safe='')}", headers, 404)
        client.send("GET", f"/{name}/Readings()&sig={quote(parameters['sig'])}", headers, 404)


def requests_with_tokens(client: Client, ran: Run, name: str, data: Path) -> None:
    """A valid token, one for another audience, a broken one, and a key for a user delegation SAS."""
    headers = [("x-ms-version", VERSION), ("Content-Type", "application/xml")]
    good = done("token", "--data", str(data), "--role", "Storage Table Delegator")
    other = done("token", "--data", str(data), "--audience", "https://other.example")
    broken = good[:-8] + "AAAAAAAA"
    info = KEY_INFO % b"2034-05-06T00:00:00Z"
    target = f"/{name}/?restype=service&comp=userdelegationkey"
    for kind, token, expected in (
        ("accepted", good, 400),  # refused: the key would be valid for more than seven days
        ("for another audience", other, 401),
        ("broken", broken, 401),
    ):
        ran.secrets[f"the token that is {kind}"] = token
        ran.secrets[f"the signature of the token that is {kind}"] = token.rpartition(".")[2]
        authorized = [*headers, ("Authorization", f"Bearer {token}")]
        client.send("POST", target, authorized, expected, info)
    parameters = {"sv": VERSION, "tn": "Readings", "sp": "r", "se": "2034-05-06"}
    parameters |= {"skoid": "o", "sktid": "t", "sks": "t", "skv": VERSION}
    parameters |= {"skt": "2034-05-05T00:00:00Z", "ske": "2034-05-06T00:00:00Z"}
    refused = signed_by_user(name, WRONG_KEY, parameters)
    ran.secrets["the user delegation SAS"] = refused["sig"]
    client.send("GET", f"/{name}/Readings()?{query_of(refused)}", headers[:1], 403)


def explored(server: ServerProcess, ran: Run) -> None:
    """Pages of the explorer: without its token, with it once in the address, then with the cookie."""
    ((address, token),) = EXPLORER.findall("".join(server.stdout))
    ran.secrets["the token of the explorer"] = token
    connection = HTTPConnection(admin_of(server), timeout=30)
    cookie = ""
    for number, path in enumerate((address.partition("?")[0], address)):
        connection.request("GET", path)
        response = connection.getresponse()
        ran.left[f"explorer {number}"] = response.read()
        cookie = (response.getheader("set-cookie") or "").partition(";")[0]
    with closing(connection):
        connection.request("GET", address.partition("?")[0], headers={"Cookie": cookie})
        leading = connection.getresponse()  # redirects to the first account
        leading.read()
        root = urljoin(address, leading.headers["location"])
        for path in EXPLORED:
            connection.request("GET", f"{root}{path}", headers={"Cookie": cookie})
            ran.left[f"explorer {path}"] = connection.getresponse().read()
    assert b"Tables" in ran.left["explorer "]
    assert b"Readings" in ran.left["explorer tables/Readings"]


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def processes_of(server: ServerProcess) -> dict[str, bytes]:
    """The command lines of the server's processes, which every user of the machine can read."""
    processes = {server.process.pid, *workers_of(server)}
    assert len(processes) >= 3, "the supervisor, a worker, and that of the admin address"
    for process in processes:
        limits = Path(f"/proc/{process}/limits").read_text()
        assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), "no core dumps"
    lines = {process: Path(f"/proc/{process}/cmdline").read_bytes() for process in processes}
    return {f"/proc/{process}/cmdline": line for process, line in lines.items()}


@pytest.mark.slow
def test_no_secret_of_a_run_is_left_behind(private_server: StartServer, tmp_path: Path) -> None:
    data, access_log = tmp_path / "data", tmp_path / "access.log"
    ran = Run(
        {
            "the key of a configured account": CONFIGURED_KEY,
            "the key of a stored account": STORED_KEY,
        }
    )
    ran.left["account create"] = account(
        data, "create", "weather", "--key-file", "-", keys=STORED_KEY
    ).encode()
    with collecting() as collector:
        server = private_server(
            data,
            *("--tls", "self-signed", "--admin", "0", "--metrics-tables", "true"),
            *("--explorer", "--log-level", "debug", "--access-log", str(access_log)),
            *("--workers", "1"),
            environment={
                "TABLESTONE_ACCOUNT": f"orders:{CONFIGURED_KEY}",
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "100",
            },
        )
        client = Client(server, data, ran)
        for name, key in (("orders", CONFIGURED_KEY), ("weather", STORED_KEY)):
            requests_with_keys(client, ran, name, key)
            requests_with_signatures(client, ran, name, key)
        requests_with_tokens(client, ran, "orders", data)
        client.close()
        pages = [path for path in PAGE.findall(page(server, "/")[1]) if "explorer" not in path]
        assert {"/metrics", "/health/ready"} <= set(pages)
        for path in pages:
            ran.left[f"page {path}"] = page(server, path)[1].encode()
        explored(server, ran)
        wait_until(lambda: bool(collector.raw), 60)
        ran.left |= processes_of(server)
        profile = tmp_path / "connection.txt"
        endpoint = f"http://{admin_of(server)}/orders"  # refuses at once
        profile.write_text(f"AccountName=orders;AccountKey={WRONG_KEY};TableEndpoint={endpoint}")
        ran.secrets["the key of a data tool"] = WRONG_KEY
        ran.left["data tool"] = "".join(
            map(str, run_command("tables", "--connection-string", f"@{profile}"))
        ).encode()
        ran.left |= files_below(data)
        assert server.stop() == 0
        ran.left["traces"] = b"".join(collector.raw)
    ran.left["standard output"] = "".join(server.stdout).encode()
    ran.left["standard error"] = server.stderr.encode()
    ran.left["access log"] = access_log.read_bytes()
    ran.left |= files_below(data)
    assert ran.left["traces"]
    assert b"refused" in ran.left["standard error"]
    assert b"403" in ran.left["access log"]
    assert b"service._get_entity" in ran.left["access log"], "the explorer asked for the entity"
    assert OPENED.encode() not in ran.left["standard error"] + ran.left["access log"]
    assert b"tablestone_requests_total" in ran.left["page /metrics"]
    assert ran.found() == []
    assert {each.partition(" in ")[0] for each in ran.found(kept={})} == {
        "the key of a stored account",
        "the token of the explorer",
    }, "the search finds what is kept"


@pytest.mark.parametrize("form", ["plain", "in a URL", "bytes", "hexadecimal", "base64url"])
def test_a_secret_that_is_left_behind_is_found(form: str) -> None:
    secret = signature(WRONG_KEY, "text")
    decoded = base64.b64decode(secret)
    written = {
        "plain": secret.encode(),
        "in a URL": quote(secret, safe="").encode(),
        "bytes": decoded,
        "hexadecimal": decoded.hex().encode(),
        "base64url": base64.urlsafe_b64encode(decoded).rstrip(b"="),
    }
    ran = Run({"a signature": secret}, {"a log": b"line\n" + written[form] + b"\n"})
    assert ran.found() == ["a signature in a log"]


@pytest.mark.parametrize("command", ["explore", "check", "rekey", "--version"])
def test_no_command_leaves_a_core_dump(command: str) -> None:
    """The limit is lowered before the command line is parsed, so it covers every command."""
    program = (
        "import resource\n"
        "from tablestone.cli.main import main\n"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\n"
        f"main([{command!r}, '--help'])\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE) == (0, hard))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "True", ended
