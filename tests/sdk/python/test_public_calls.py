"""azure-data-tables: every public call of the two clients has a test; a new one fails here until it has one."""

import pytest
from azure.data.tables import TableClient, TableServiceClient

pytestmark = pytest.mark.sdk

PUBLIC_CALLS = {
    TableServiceClient: {
        "close",  # in every `async with`
        "create_table",
        "create_table_if_not_exists",
        "delete_table",
        "from_connection_string",
        "get_service_properties",
        "get_service_stats",
        "get_table_client",
        "list_tables",
        "query_tables",
        "set_service_properties",
    },
    TableClient: {
        "close",
        "create_entity",
        "create_table",
        "delete_entity",
        "delete_table",
        "from_connection_string",
        "from_table_url",
        "get_entity",
        "get_table_access_policy",
        "list_entities",
        "query_entities",
        "set_table_access_policy",
        "submit_transaction",
        "update_entity",
        "upsert_entity",
    },
}


@pytest.mark.parametrize("kind", PUBLIC_CALLS, ids=lambda kind: kind.__name__)
def test_no_public_call_is_forgotten(kind: type) -> None:
    public = {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }
    assert public == PUBLIC_CALLS[kind]
