"""The nginx and Caddy samples in front of a real server: what a client signs arrives as it was sent."""

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient

from certificates import write_pair
from cli.command_line import commands_of
from deploy.deployed import DEPLOY, ROOT, needs, run, with_places
from deploy.install import program
from server_process import ServerProcess, free_ports

SERVE, NGINX, CADDY = (
    shlex.split(command.partition(" && ")[0])
    for command in commands_of(ROOT / "docs" / "guides" / "proxy.md")
)
"""The guide's commands, without the one that reloads the proxy's service."""
SECONDS_MAX = 40.0
StartServer = Callable[..., ServerProcess]
KEYS = ("plain", "50%", "it's", "a b+c", "é😀", "a%2Fb", "..", "a&b=c", "(1,2)", "a;b", '"')
"""Keys whose characters a proxy might decode, merge or remove."""
ENTITY_BYTES = 60_000


def nginx(server: ServerProcess, port: int, directory: Path) -> list[str]:
    """Run nginx with the sample; the test's paths and ports replace the sample's."""
    places = {
        "127.0.0.1:10002": "{}:{}".format(*server.address),
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "    listen [::]:443 ssl;\n": "",
        "/etc/tablestone": str(directory),
    }
    sample = with_places(DEPLOY / "nginx.conf", places, directory)
    whole = directory / "whole.conf"
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = (
        "user root; " if os.geteuid() == 0 else ""
    )  # only its own user may enter the test's directory
    whole.write_text(
        f"{user}daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;\n"
        f"events {{ }}\nhttp {{ access_log off; {temporary} include {sample}; }}\n"
    )
    assert NGINX[:2] == ["sudo", "nginx"]
    tested = run("nginx", *NGINX[2:], "-c", str(whole), "-e", "stderr")
    assert "test is successful" in tested.stdout, tested.stdout
    return [str(program("nginx")), "-c", str(whole), "-e", "stderr"]


def caddy(server: ServerProcess, port: int, directory: Path) -> list[str]:
    """Run Caddy with the sample, as above, with a certificate of the test."""
    address = (
        f"https://127.0.0.1:{port} {{\n\ttls {directory}/certificate.pem {directory}/key.pem\n"
    )
    places = {"tables.example.com {\n": address, "127.0.0.1:10002": "{}:{}".format(*server.address)}
    sample = with_places(DEPLOY / "Caddyfile", places, directory)
    sample.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + sample.read_text())
    assert CADDY[:2] == ["sudo", "caddy"]
    words = [word.replace("/etc/caddy/Caddyfile", str(sample)) for word in CADDY[2:]]
    validated = run("caddy", *words)
    assert "Valid configuration" in validated.stdout, validated.stdout
    return [str(program("caddy")), "run", "--config", str(sample)]


SAMPLES = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(params=[pytest.param(name, marks=needs(name)) for name in SAMPLES])
def proxy(
    request: pytest.FixtureRequest,
    private_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TableServiceClient]:
    """A client of a server behind a proxy, over TLS."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SERVE[:2] == ["tablestone", "serve"]
    server = private_server(tmp_path / "data", *SERVE[2:])
    certificate, _ = write_pair(tmp_path, "proxy")
    (port,) = free_ports(1)
    command = SAMPLES[request.param](server, port, tmp_path)
    with (tmp_path / "proxy.log").open("w") as log:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + SECONDS_MAX
        while True:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert running.poll() is None, (tmp_path / "proxy.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        connection = (
            f"DefaultEndpointsProtocol=https;AccountName={server.account_name};"
            f"AccountKey={server.account_key};"
            f"TableEndpoint=https://127.0.0.1:{port}/{server.account_name};"
        )
        with TableServiceClient.from_connection_string(
            connection, connection_verify=str(certificate)
        ) as client:
            yield client
        with TableServiceClient.from_connection_string(server.connection_string) as direct:
            with pytest.raises(HttpResponseError) as refused:
                list(direct.list_tables())
            assert "AccountRequiresHttps" in str(refused.value)
    finally:
        running.terminate()
        running.wait(SECONDS_MAX)


@pytest.mark.slow
def test_signed_requests_arrive_as_they_were_sent(proxy: TableServiceClient) -> None:
    table = proxy.create_table("Behind")
    for key in KEYS:
        table.create_entity({"PartitionKey": key, "RowKey": key, "n": 1})
        assert table.get_entity(key, key)["n"] == 1
        table.delete_entity(key, key)
    fill_and_read(table)


def fill_and_read(table: TableClient) -> None:
    """A batch near the limit of a body, and a filter near the limit of a URL."""
    entities = [
        {"PartitionKey": "p", "RowKey": f"{n:03}", "text": "x" * (ENTITY_BYTES // 2)}
        for n in range(100)
    ]
    table.submit_transaction([("create", entity) for entity in entities])
    wanted = " or ".join(f"RowKey eq '{n:03}'" for n in range(100))
    found = list(table.query_entities(f"PartitionKey eq 'p' and ({wanted})", select="RowKey"))
    assert len(found) == len(entities)
