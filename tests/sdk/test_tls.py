"""Every SDK over TLS; it trusts a self-signed certificate because the test followed the server's instructions."""

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

from sdk.endpoint import Endpoint, environment_for, fresh_table_name
from sdk.install import LANGUAGES
from sdk.test_interchange import run_program, skip_unless_prepared

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_table_is_read_over_tls(name: str, tls_endpoint: Endpoint) -> None:
    skip_unless_prepared(name)
    credential = AzureNamedKeyCredential(tls_endpoint.account_name, tls_endpoint.account_key)
    with TableServiceClient(
        tls_endpoint.url,
        credential=credential,
        connection_verify=environment_for(tls_endpoint)["SSL_CERT_FILE"],
    ) as service:
        table = service.create_table(fresh_table_name())
        table.create_entity({"PartitionKey": "p", "RowKey": "r", "text": "x" * 30_000})
        lines = run_program(name, tls_endpoint, "read", table.table_name)
        table.delete_table()
    assert [(line["source"], line["properties"]) for line in lines] == [
        (source, [{"name": "text", "type": "Edm.String", "value": "x" * 30_000}])
        for source in ("list", "get")
    ]
