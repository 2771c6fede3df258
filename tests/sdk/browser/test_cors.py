"""CORS as a browser enforces it: a page of another origin reads exactly what the account's rules allow."""

import http.client
import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient, generate_table_sas

from cli.worker_processes import wait_until
from sdk.browser.install import missing
from sdk.browser.pages import PageServer, Seen, page_server
from server_process import ServerProcess, start_server
from signing import signed_headers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

TABLE = "Weather"
RULES = """<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>ORIGIN</AllowedOrigins>
<AllowedMethods>GET,POST</AllowedMethods><AllowedHeaders>accept,authorization,content-type,x-ms-*</AllowedHeaders>
<ExposedHeaders>x-ms-*</ExposedHeaders><MaxAgeInSeconds>60</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"""


@dataclass(frozen=True)
class World:
    """A server whose rules allow one of the two origins."""

    server: ServerProcess
    allowed: PageServer
    stranger: PageServer

    def signed(self, method: str, target: str, content_type: str = "") -> dict[str, str]:
        """The headers that a page sends, without those that the browser adds."""
        return dict(
            signed_headers(
                self.server.account_name,
                self.server.account_key,
                method=method,
                target=self.path(target),
                content_type=content_type,
            )
        )

    def path(self, target: str) -> str:
        return urlsplit(self.server.endpoint).path + target

    def url(self, target: str) -> str:
        return self.server.endpoint + target

    def requests(self, method: str) -> int:
        """How many requests of a method the server has answered.

        A line is written before its answer is sent, but read here later: one more request marks the end of the lines.
        """
        mark = uuid.uuid4().hex
        with closing(http.client.HTTPConnection(*self.server.address, timeout=20)) as client:
            client.request("PUT", self.path("/"), headers={"x-ms-client-request-id": mark})
            client.getresponse().read()
        wait_until(lambda: f" client_request={mark} " in "".join(self.server.stdout))
        return "".join(self.server.stdout).count(f" method={method} ")


def set_rules(server: ServerProcess, text: str) -> None:
    target = f"{urlsplit(server.endpoint).path}/?restype=service&comp=properties"
    headers = signed_headers(
        server.account_name,
        server.account_key,
        method="PUT",
        target=target,
        content_type="application/xml",
    )
    with closing(http.client.HTTPConnection(*server.address, timeout=20)) as client:
        client.request("PUT", target, text, dict(headers))
        answer = client.getresponse()
        assert answer.status == 202, answer.read()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    server = start_server(tmp_path_factory.mktemp("data"), "--access-log", "text")
    with TableServiceClient.from_connection_string(server.connection_string) as service:
        service.create_table(TABLE).create_entity({"PartitionKey": "JFK", "RowKey": "1"})
    with page_server() as allowed, page_server() as stranger:
        set_rules(server, RULES.replace("ORIGIN", allowed.origin))
        yield World(server, allowed, stranger)
    assert server.stop() == 0


def assert_blocked(seen: Seen, why: str) -> None:
    assert (seen.status, seen.error) == (0, "TypeError: Failed to fetch")
    assert f"has been blocked by CORS policy: {why}" in seen.console


def row_keys(seen: Seen) -> list[str]:
    assert (seen.status, seen.error) == (200, ""), seen
    return [entity["RowKey"] for entity in json.loads(seen.body)["value"]]


def test_a_query_from_an_allowed_origin(world: World, tmp_path: Path) -> None:
    """The request is signed, so the browser sends a preflight; the page sees the headers that the rule exposes."""
    target = f"/{TABLE}()?$filter=PartitionKey%20eq%20'JFK'"
    preflights = world.requests("OPTIONS")
    seen = world.allowed.open(tmp_path, world.url(target), headers=world.signed("GET", target))
    assert row_keys(seen) == ["1"]
    assert "x-ms-request-id" in seen.headers
    assert "dataserviceversion" not in seen.headers
    assert world.requests("OPTIONS") == preflights + 1


def test_the_same_query_from_another_origin(world: World, tmp_path: Path) -> None:
    """The preflight is refused, and the browser never sends the query."""
    target = f"/{TABLE}()"
    queries = world.requests("GET")
    seen = world.stranger.open(tmp_path, world.url(target), headers=world.signed("GET", target))
    assert_blocked(seen, "Response to preflight request doesn't pass")
    assert world.requests("GET") == queries


def test_an_insert_from_an_allowed_origin(world: World, tmp_path: Path) -> None:
    target = f"/{TABLE}"
    headers = world.signed("POST", target, "application/json")
    body = json.dumps({"PartitionKey": "LGA", "RowKey": "inserted"})
    seen = world.allowed.open(
        tmp_path, world.url(target), method="POST", headers=headers, body=body
    )
    assert (seen.status, json.loads(seen.body)["RowKey"]) == (201, "inserted")


def test_a_header_that_is_not_allowed(world: World, tmp_path: Path) -> None:
    target = f"/{TABLE}()"
    headers = world.signed("GET", target) | {"Prefer": "return-content"}
    seen = world.allowed.open(tmp_path, world.url(target), headers=headers)
    assert_blocked(seen, "Response to preflight request doesn't pass")


def test_a_method_that_is_not_allowed(world: World, tmp_path: Path) -> None:
    target = f"/{TABLE}(PartitionKey='JFK',RowKey='1')"
    headers = world.signed("DELETE", target) | {"If-Match": "*"}
    deletes = world.requests("DELETE")
    seen = world.allowed.open(tmp_path, world.url(target), method="DELETE", headers=headers)
    assert_blocked(seen, "Response to preflight request doesn't pass")
    assert world.requests("DELETE") == deletes


def test_an_error_is_seen_by_an_allowed_origin(world: World, tmp_path: Path) -> None:
    target = "/NoSuchTable()"
    seen = world.allowed.open(tmp_path, world.url(target), headers=world.signed("GET", target))
    assert seen.status == 404
    assert json.loads(seen.body)["odata.error"]["code"] == "TableNotFound"


@pytest.mark.parametrize("origin", ["allowed", "another"])
def test_a_shared_access_signature_needs_no_header(
    world: World, tmp_path: Path, origin: str
) -> None:
    """There is no preflight: the server answers any holder of the signature, and the browser hides the answer."""
    credential = AzureNamedKeyCredential(world.server.account_name, world.server.account_key)
    signature = generate_table_sas(
        credential, TABLE, permission="r", expiry="2100-01-01T00:00:00Z", end_pk="JFK"
    )
    url = world.url(f"/{TABLE}()?{signature}")
    preflights = world.requests("OPTIONS")
    pages = world.allowed if origin == "allowed" else world.stranger
    seen = pages.open(tmp_path, url, headers={"Accept": "application/json"})
    if origin == "allowed":
        assert row_keys(seen) == ["1"]
    else:
        assert_blocked(seen, "No 'Access-Control-Allow-Origin' header is present")
    assert world.requests("OPTIONS") == preflights
