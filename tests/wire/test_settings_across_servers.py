"""Policies and service properties on two servers with one engine: a change takes effect on the other's next request."""

import asyncio
from collections.abc import Iterator

import pytest

from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.tables import storage_keys
from tablestone.tables.integrity import check_rows
from wire.service_under_test import ACCOUNT, ServiceUnderTest

ACL = "/tab?comp=acl"
PROPERTIES = "/?restype=service&comp=properties"
TABLE = '{"name":"tab","id":"00","ticks":1,"version":0,"identifiers":[POLICIES]}'
XML = [("Accept", "application/xml")]


@pytest.fixture
def other(service: ServiceUnderTest) -> Iterator[ServiceUnderTest]:
    """A second server on the engine of `service`."""
    other = ServiceUnderTest(service)
    yield other
    other.close()


def policies(*ids: str) -> bytes:
    inside = "".join(f"<SignedIdentifier><Id>{name}</Id></SignedIdentifier>" for name in ids)
    return f"<SignedIdentifiers>{inside}</SignedIdentifiers>".encode()


def put(server: ServiceUnderTest, path: str, body: bytes) -> None:
    assert server.send("PUT", path, XML, body).status in {202, 204}


def get(server: ServiceUnderTest, path: str) -> bytes:
    response = server.send("GET", path, XML)
    assert response.status == 200
    return response.body


def test_a_policy_acts_on_the_next_request_of_another_server(
    service: ServiceUnderTest, other: ServiceUnderTest
) -> None:
    service.send("POST", "/Tables", body=b'{"TableName":"tab"}')
    assert b"<SignedIdentifiers />" in get(other, ACL)
    for ids in (("a", "b"), ("b",), ()):
        put(service, ACL, policies(*ids))
        assert get(other, ACL).count(b"<Id>") == len(ids)
    put(other, ACL, policies("c"))
    assert b"<Id>c</Id>" in get(service, ACL)


def test_service_properties_act_on_the_next_request_of_another_server(
    service: ServiceUnderTest, other: ServiceUnderTest
) -> None:
    for origin in ("http://a.example", "http://b.example"):
        asking = [("Origin", origin)]
        assert "access-control-allow-origin" not in other.send("GET", "/Tables", asking).headers
        rule = (
            f"<AllowedOrigins>{origin}</AllowedOrigins><AllowedMethods>GET</AllowedMethods>"
            "<AllowedHeaders /><ExposedHeaders /><MaxAgeInSeconds>0</MaxAgeInSeconds>"
        )
        changes = f"<Cors><CorsRule>{rule}</CorsRule></Cors>"
        document = f"<StorageServiceProperties>{changes}</StorageServiceProperties>"
        put(service, PROPERTIES, document.encode())
        answered = other.send("GET", "/Tables", asking)
        assert answered.headers["access-control-allow-origin"] == origin
        assert origin.encode() in get(other, PROPERTIES)


def test_both_may_change_different_properties(
    service: ServiceUnderTest, other: ServiceUnderTest
) -> None:
    def retention(days: int) -> str:
        return f"<RetentionPolicy><Enabled>true</Enabled><Days>{days}</Days></RetentionPolicy>"

    for server, name, days in ((service, "HourMetrics", 3), (other, "MinuteMetrics", 4)):
        metrics = f"<Version>1.0</Version><Enabled>false</Enabled>{retention(days)}"
        document = f"<{name}>{metrics}</{name}>"
        put(
            server,
            PROPERTIES,
            f"<StorageServiceProperties>{document}</StorageServiceProperties>".encode(),
        )
    for server in (service, other):
        assert [retention(days).encode() in get(server, PROPERTIES) for days in (3, 4)] == [
            True
        ] * 2


def test_what_is_kept_of_them_is_checked(service: ServiceUnderTest) -> None:
    service.send("POST", "/Tables", body=b'{"TableName":"tab"}')
    put(service, ACL, policies("a", "b"))
    document = b"<StorageServiceProperties><Cors /></StorageServiceProperties>"
    put(service, PROPERTIES, document)
    assert asyncio.run(check_rows(service.engine)) == []


@pytest.mark.parametrize(
    ("partition", "row", "value", "found"),
    [
        (
            storage_keys.catalog_partition(ACCOUNT),
            storage_keys.table_row("tab"),
            TABLE.replace("POLICIES", '{"id":"a","policy":null},{"id":"a","policy":null}'),
            "two of one id",
        ),
        (
            storage_keys.catalog_partition(ACCOUNT),
            storage_keys.table_row("tab"),
            TABLE.replace("POLICIES", '{"id":"a","policy":{"x":1}}'),
            "unreadable",
        ),
        (b"\x03properties", b"name", '{"version":0,"members":{"logging":{}}}', "unreadable"),
    ],
)
def test_what_is_damaged_is_found(
    service: ServiceUnderTest, partition: bytes, row: bytes, value: str, found: str
) -> None:
    def render(version: int) -> bytes:
        return value.replace('"version":0', f'"version":{version}').encode()

    change = Change(row, ANY, Put(render))

    async def store() -> None:
        await service.engine.commit(WriteSet(partition, (change,)))

    asyncio.run(store())
    (sentence,) = asyncio.run(check_rows(service.engine))
    assert found in sentence
