"""Every SDK reads with the signatures of every other, over TLS: each signer's two signatures against each reader.

Go's account signatures are for https only. tests/sdk/interchange/README.md describes the programs.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

from sdk.endpoint import Endpoint, environment_for, environment_with_signature, fresh_table_name
from sdk.install import LANGUAGES, language
from sdk.test_interchange import PROGRAM_SECONDS_MAX, run_program, skip_unless_prepared

pytestmark = pytest.mark.sdk

ROW_KEYS = ["", "+%20 s", "it's"]


@dataclass(frozen=True)
class Signed:
    """A table, and the tokens that a language has signed for it, by purpose."""

    table: str
    tokens: dict[str, str]


@pytest.fixture(scope="module", params=LANGUAGES)
def signed(request: pytest.FixtureRequest, tls_endpoint: Endpoint) -> Iterator[Signed]:
    """A table in capitals with one entity: a signature names the table in lower case (auth 3.2)."""
    signer: str = request.param
    skip_unless_prepared(signer)
    credential = AzureNamedKeyCredential(tls_endpoint.account_name, tls_endpoint.account_key)
    with TableServiceClient(
        tls_endpoint.url,
        credential=credential,
        connection_verify=environment_for(tls_endpoint)["SSL_CERT_FILE"],
    ) as service:
        name = fresh_table_name().upper()
        table = service.create_table(name)
        for row_key in ROW_KEYS:
            table.create_entity({"PartitionKey": "p", "RowKey": row_key})
        lines = run_program(signer, tls_endpoint, "sign", name)
        yield Signed(name, {line["signature"]: line["token"] for line in lines})
        service.delete_table(name)


def read(
    reader: str, endpoint: Endpoint, table: str, token: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*language(reader).interchange(), "read", table],
        env=environment_with_signature(endpoint, token),
        capture_output=True,
        encoding="utf-8",
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("kind", ["account", "table"])
@pytest.mark.parametrize("reader", LANGUAGES)
def test_what_was_signed_reads(
    signed: Signed, reader: str, kind: str, tls_endpoint: Endpoint
) -> None:
    skip_unless_prepared(reader)
    ended = read(reader, tls_endpoint, signed.table, signed.tokens[kind])
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.split("\n") if line.strip()]
    for source in ("list", "get"):
        assert [line["rowKey"] for line in lines if line["source"] == source] == ROW_KEYS


@pytest.mark.parametrize("reader", LANGUAGES)
def test_a_signature_of_one_table_reads_no_other(
    signed: Signed, reader: str, tls_endpoint: Endpoint
) -> None:
    skip_unless_prepared(reader)
    ended = read(reader, tls_endpoint, signed.table + "2", signed.tokens["table"])
    assert ended.returncode != 0
    assert "AuthenticationFailed" in ended.stderr
