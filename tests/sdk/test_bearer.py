"""Every SDK with a token of `tablestone token`, over TLS, from a credential that sends no requests."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

from sdk.conftest import TlsServer
from sdk.endpoint import environment_for, environment_with_token, fresh_table_name
from sdk.install import LANGUAGES, language
from sdk.test_interchange import ENTITIES_JSON, PROGRAM_SECONDS_MAX, skip_unless_prepared
from server_process import COMMAND, clean_environment

pytestmark = pytest.mark.sdk


@pytest.fixture
def table(tls_server: TlsServer) -> Iterator[str]:
    """The name of a table with one entity."""
    endpoint = tls_server.endpoint
    credential = AzureNamedKeyCredential(endpoint.account_name, endpoint.account_key)
    with TableServiceClient(
        endpoint.url,
        credential=credential,
        connection_verify=environment_for(endpoint)["SSL_CERT_FILE"],
    ) as service:
        name = fresh_table_name()
        service.create_table(name).create_entity({"PartitionKey": "p", "RowKey": "r"})
        yield name
        service.delete_table(name)


def token(tls_server: TlsServer, *options: str) -> str:
    """The output of `tablestone token` beside the running server."""
    ended = subprocess.run(
        [COMMAND, "token", *tls_server.store, *options],
        env=clean_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=PROGRAM_SECONDS_MAX,
        check=True,
    )
    return ended.stdout.strip()


def run(
    name: str, tls_server: TlsServer, bearer: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*language(name).interchange(), *arguments],
        env=environment_with_token(tls_server.endpoint, bearer),
        capture_output=True,
        encoding="utf-8",
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_contributor_writes_and_reads(name: str, tls_server: TlsServer, table: str) -> None:
    skip_unless_prepared(name)
    bearer = token(tls_server)
    written = run(name, tls_server, bearer, "write", table, str(ENTITIES_JSON))
    assert written.returncode == 0, written.stderr
    read = run(name, tls_server, bearer, "read", table)
    assert read.returncode == 0, read.stderr
    lines = [json.loads(line) for line in read.stdout.split("\n") if line.strip()]
    described = json.loads(ENTITIES_JSON.read_text(encoding="utf-8"))["entities"]
    assert len([line for line in lines if line["source"] == "list"]) == len(described) + 1


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_reader_reads_and_does_not_write(name: str, tls_server: TlsServer, table: str) -> None:
    skip_unless_prepared(name)
    bearer = token(tls_server, "--role", "Storage Table Data Reader")
    read = run(name, tls_server, bearer, "read", table)
    assert read.returncode == 0, read.stderr
    written = run(name, tls_server, bearer, "write", table, str(ENTITIES_JSON))
    assert written.returncode != 0
    assert "AuthorizationPermissionMismatch" in written.stderr


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_token_for_somebody_else_is_refused(name: str, tls_server: TlsServer, table: str) -> None:
    skip_unless_prepared(name)
    bearer = token(tls_server, "--audience", "https://vault.example")
    read = run(name, tls_server, bearer, "read", table)
    assert read.returncode != 0
    assert "AuthenticationFailed" in read.stderr or "InvalidAuthenticationInfo" in read.stderr
