"""Requests with `x-tablestone-indexes`: indexes (docs/protocol/indexes.md) and expiry (docs/guides/expiry.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sas_signing import completed, query_of, signed
from signing import shared_key_lite
from storage.engines_under_test import URL
from storage.slow_engine import LEASE_SECONDS, MemoryOfServers, SlowEngine
from tablestone.clock import TICKS_PER_SECOND
from tablestone.engines.capabilities import Capabilities
from tablestone.engines.contract import ANY, Change, Engine, EngineUnavailable, Put, WriteSet
from tablestone.engines.forwarding_engine import ForwardingEngine
from tablestone.engines.kind import Opening
from tablestone.engines.leases import Leases
from tablestone.engines.sqlite.engine import SqliteEngine
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.tables import catalog, index_building, storage_keys
from tablestone.tables.account_incarnation import Named
from tablestone.tables.expiry_counts import CLAIM_TICKS, ExpiryCounts
from tablestone.tables.index_building import IndexWork
from tablestone.tables.metadata import DocumentKind
from wire.service_under_test import ACCOUNT, KEY, Clock, Response, ServiceUnderTest

OWN = ("x-tablestone-indexes", "1")
JSON = ("Content-Type", "application/json")

pytestmark = pytest.mark.skipif(URL is not None, reason="an engine that keeps entries is needed")


class Tables:
    def __init__(self, **how: object) -> None:
        self.service = ServiceUnderTest(**how)  # type: ignore[arg-type]
        for table in ("Orders", "Empty"):
            self.service.send("POST", "/Tables", [JSON], json.dumps({"TableName": table}).encode())

    def insert(self, table: str, row: str, **properties: object) -> None:
        body = json.dumps({"PartitionKey": "p", "RowKey": row, **properties}).encode()
        assert self.service.send("POST", f"/{table}", [JSON], body).status == 201

    def ask(
        self, method: str, target: str, body: object = None, *headers: tuple[str, str]
    ) -> Response:
        content = b"" if body is None else json.dumps(body).encode()
        return self.service.send(method, f"/{target}", [OWN, *headers], content)

    def refused(
        self, method: str, target: str, body: object = None, *headers: tuple[str, str]
    ) -> str:
        answer = self.ask(method, target, body, *headers)
        assert answer.status >= 400, answer
        return f"{answer.status} {answer.headers['x-ms-error-code']}"

    def indexes(self, table: str = "Orders") -> list[dict[str, object]]:
        answer = self.ask("GET", f"{table}?comp=indexes")
        assert answer.status == 200
        found: list[dict[str, object]] = json.loads(answer.body)["indexes"]
        return found

    def make(self, name: str, table: str = "Orders", **more: object) -> None:
        answer = self.ask("PUT", f"{table}?comp=indexes", {"property": name, **more})
        assert (answer.status, answer.body) == (202, b""), answer

    def count(self, policy: object, table: str = "Orders") -> dict[str, object]:
        answer = self.ask("POST", f"{table}?comp=expiry", policy)
        assert answer.status == 202, answer
        self.count_id = json.loads(answer.body)["count"]
        assert self.counted(table)["state"] == "counting"
        self.service.work()
        return self.counted(table)

    def counted(self, table: str = "Orders") -> dict[str, object]:
        answer = self.ask("GET", f"{table}?comp=expiry&count={self.count_id}")
        assert answer.status == 200, answer
        found: dict[str, object] = json.loads(answer.body)
        return found

    def put(self, policy: object, token: object, table: str = "Orders") -> tuple[int, str | None]:
        answer = self.ask("PUT", f"{table}?comp=expiry", policy, ("x-tablestone-token", str(token)))
        return answer.status, answer.headers.get("x-ms-error-code")

    def change(self, after: int, token: object) -> str:
        """Set a policy where that waits; the id of the change."""
        token_header = ("x-tablestone-token", str(token))
        answer = self.ask("PUT", "Orders?comp=expiry", {"after": after}, token_header)
        assert answer.status == 202
        return str(json.loads(answer.body)["count"])

    def policy(self, table: str = "Orders") -> dict[str, object]:
        found: dict[str, object] = json.loads(self.ask("GET", f"{table}?comp=expiry").body)
        return found


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables()
    yield made
    made.service.close()


def test_an_index_is_made_and_dropped(tables: Tables) -> None:
    answer = tables.ask("GET", "Orders?comp=indexes")
    assert (answer.status, json.loads(answer.body)) == (200, {"indexes": [], "changes": True})
    assert answer.headers["x-tablestone-indexes"] == "ready"  # in memory there is no format
    for number in range(3):
        tables.insert("Orders", str(number), customer=f"c{number}")
    tables.make("customer")
    building = {"property": "customer", "withinPartition": False, "state": "building"}
    assert tables.indexes() == [{**building, "waits": True}]
    tables.make("customer")  # nothing new
    tables.service.work()
    assert tables.indexes() == [{**building, "state": "ready", "entities": 3}]
    assert json.loads(tables.service.send("GET", "/Orders?comp=indexes").body) == {
        "indexes": [{**building, "state": "ready"}]
    }
    tables.make("custmer", withinPartition=True)
    tables.service.work()
    assert tables.indexes()[1] == {
        "property": "custmer",
        "withinPartition": True,
        "state": "ready",
        "entities": 3,
        "empty": True,
    }
    for _ in range(2):
        assert tables.ask("DELETE", "Orders?comp=indexes&property=customer").status == 202
    assert tables.indexes()[0]["state"] == "dropping"
    tables.service.work()
    assert [each["property"] for each in tables.indexes()] == ["custmer"]


def test_what_an_index_cannot_be(tables: Tables) -> None:
    tables.make("customer")
    tables.service.work()
    target = "Orders?comp=indexes"
    bodies: tuple[object, ...] = (
        *({}, {"property": 1}, {"property": "a", "withinPartition": 1}, {"property": "a", "b": 1}),
        *({"property": "PartitionKey"}, {"property": "Timestamp"}, {"property": "a-b"}),
        *({"property": ""}, {"property": "odata.x"}, []),
    )
    for body in bodies:
        assert tables.refused("PUT", target, body) == "400 InvalidInput", body
    sentence = tables.ask("PUT", target, {"property": "Timestamp"}).body
    assert b"An index on Timestamp is not possible: index another property" in sentence
    made = {"property": "customer"}
    assert tables.refused("PUT", target, made) == "409 IndexAlreadyExists"
    within = {**made, "withinPartition": True}
    assert tables.refused("PUT", target, within) == "409 IndexAlreadyExists"
    assert tables.refused("DELETE", f"{target}&property=other") == "404 IndexNotFound"
    assert tables.refused("DELETE", target) == "400 InvalidInput"
    assert tables.ask("DELETE", f"{target}&property=customer").status == 202
    assert tables.refused("PUT", target, made) == "409 IndexAlreadyExists"
    for method, sent in (("GET", None), ("PUT", made), ("DELETE", None)):
        absent = "Absent?comp=indexes&property=a"
        assert tables.refused(method, absent, sent) == "404 TableNotFound"


def test_sixteen_indexes(tables: Tables) -> None:
    for number in range(16):
        tables.make(f"p{number}")
    refused = tables.refused("PUT", "Orders?comp=indexes", {"property": "more"})
    assert refused == "409 TooManyIndexes"


COUNTS = storage_keys.documents_of(DocumentKind.COUNTS.value)


class SlowToChange(ForwardingEngine):
    """As a cluster: a commit checks no rows on which it relies, so a change of a policy waits."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, checks_relied_rows=False, keeps_entries=False)


class OfFormatTwo(ForwardingEngine):
    is_indexed = False


@pytest.mark.parametrize("remote_indexes", [False, True])
def test_the_first_index_needs_consent(*, remote_indexes: bool) -> None:
    tables = Tables(reached=OfFormatTwo, remote_indexes=remote_indexes)
    answer = tables.ask("GET", "Orders?comp=indexes")
    assert answer.headers["x-tablestone-indexes"] == ("first" if remote_indexes else "closed")
    answer = tables.ask("PUT", "Orders?comp=indexes", {"property": "a"})
    if remote_indexes:
        assert answer.status == 202
    else:
        assert answer.headers["x-ms-error-code"] == "FormatNotAllowed"
        assert tables.indexes() == []
    tables.service.close()


INSECURE = "SecureConnectionRequired"
FORMS = [
    ("GET", "indexes", None),
    ("PUT", "indexes", {"property": "a"}),
    ("DELETE", "indexes&property=a", None),
    ("GET", "expiry", None),
    ("POST", "expiry", {"after": 60}),
    ("PUT", "expiry", {"after": 60}),
    ("DELETE", "expiry", None),
]


@pytest.mark.parametrize(("method", "comp", "body"), FORMS)
def test_who_and_how(tables: Tables, method: str, comp: str, body: object) -> None:
    """Only the owner, by SharedKey, over HTTPS or from this machine."""
    target = f"Empty?comp={comp}"
    service = tables.service
    lite = shared_key_lite(
        ACCOUNT, KEY, target=f"/{ACCOUNT}/{target}", date=service.clock.http_date()
    )
    by_lite = tables.refused(method, target, body, ("Authorization", lite))
    assert by_lite == "403 SharedKeyRequired"
    given = completed({"ss": "t", "srt": "sco", "sp": "rwdlacu"})
    by_signature = f"{target}&{query_of(signed(ACCOUNT, KEY, given))}"
    unknown = "400 InvalidQueryParameterValue"
    assert tables.refused(method, by_signature, body, ("Authorization", "-")) == unknown
    secondary = service.exchange(
        method, f"/{ACCOUNT}-secondary/{target}", [OWN], json.dumps(body).encode() if body else b""
    )
    assert secondary.status >= 400
    tunnelled = ("X-HTTP-Method", method)
    if method != "GET" and (method, comp) != ("PUT", "expiry"):  # which is there without the header
        assert tables.refused(method, target, body, tunnelled) == unknown
    for client, scheme, is_safe in (
        *(("192.0.2.7", "http", False), ("192.0.2.7", "https", True)),
        *(("::1", "http", True), ("", "http", False)),
    ):
        service.client, service.scheme = client, scheme
        answer = tables.ask(method, target, body)
        is_refused = answer.headers.get("x-ms-error-code") == INSECURE
        assert is_refused is not is_safe, answer
    service.client, service.is_local = "192.0.2.7", True
    assert tables.ask(method, target, body).headers.get("x-ms-error-code") != INSECURE


def test_a_table_without_a_policy(tables: Tables) -> None:
    assert tables.policy() == {}
    for method, body in (
        ("DELETE", None),
        ("PUT", {"suspended": True}),
        ("PUT", {"suspended": False}),
        ("POST", {"suspended": False}),
    ):
        assert tables.refused(method, "Orders?comp=expiry", body) == "409 NoExpiryPolicy"
        assert tables.refused(method, "Absent?comp=expiry", body) == "404 TableNotFound"
    assert tables.refused("GET", "Absent?comp=expiry") == "404 TableNotFound"


HOUR = 3600


def seed(tables: Tables) -> None:
    now = int(tables.service.clock.now.timestamp())
    for row, expires in enumerate([now - 2 * HOUR, now - 1, now + HOUR, now * 1_000_000, "never"]):
        tables.insert("Orders", str(row), expires=expires)


def test_a_policy_is_counted_and_then_set(tables: Tables) -> None:
    seed(tables)
    policy = {"property": "expires"}
    assert tables.refused("PUT", "Orders?comp=expiry", policy) == "409 TableNotEmpty"
    counted = tables.count(policy)
    token = counted.pop("token")
    assert counted == {
        "state": "counted",
        "policy": {"property": "expires", "suspended": False},
        "entities": 5,
        "hidden": 2,
        "removed": 1,
        "never": 1,
        "far": 1,
        "sample": [
            {"PartitionKey": "p", "RowKey": "0", "expires": "2017-01-05T01:25:45Z"},
            {"PartitionKey": "p", "RowKey": "1", "expires": "2017-01-05T03:25:44Z"},
        ],
        "until": "2017-01-05T03:35:45.588957Z",
    }
    assert tables.policy() == {}
    assert tables.put(policy, token) == (204, None)
    assert tables.policy() == {"property": "expires", "suspended": False}
    assert len(json.loads(tables.service.send("GET", "/Orders()").body)["value"]) == 3
    assert tables.put(policy, token) == (412, "CountSpent")  # it spends itself
    assert tables.ask("PUT", "Orders?comp=expiry", {"suspended": True}).status == 204
    assert tables.policy()["suspended"] is True
    resumed = {"suspended": False}
    assert tables.refused("PUT", "Orders?comp=expiry", resumed) == "409 TableNotEmpty"
    counted = tables.count(resumed)
    assert (counted["hidden"], counted["policy"]) == (2, {"property": "expires", **resumed})
    assert tables.put(resumed, counted["token"]) == (204, None)
    assert tables.policy() == {"property": "expires", "suspended": False}
    assert tables.ask("DELETE", "Orders?comp=expiry").status == 204
    assert tables.policy() == {}


@pytest.mark.parametrize("suspended", [False, True])
def test_an_empty_table_needs_no_count(tables: Tables, *, suspended: bool) -> None:
    policy = {"after": 60, "suspended": suspended}
    assert tables.ask("PUT", "Empty?comp=expiry", policy).status == 204
    assert tables.policy("Empty") == policy
    assert tables.ask("PUT", "Empty?comp=expiry", {"suspended": False}).status == 204
    assert tables.policy("Empty") == {"after": 60, "suspended": False}


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: tables.make("customer"),
        lambda tables: tables.put({"after": 7}, tables.count({"after": 7})["token"]),
        lambda tables: tables.service.send(
            "PUT", "/Orders?comp=acl", (), b"<SignedIdentifiers></SignedIdentifiers>"
        ),
    ],
    ids=["index", "policy", "acl"],
)
def test_any_change_spends_the_token(tables: Tables, change: object) -> None:
    seed(tables)
    token = tables.count({"after": 60})["token"]
    change(tables)  # type: ignore[operator]
    before = tables.policy()
    assert tables.put({"after": 60}, token) == (412, "CountSpent")
    assert tables.policy() == before


def test_a_token_is_good_for_its_policy_table_and_time(tables: Tables) -> None:
    seed(tables)
    other = tables.count({"after": 60}, "Empty")["token"]
    token = str(tables.count({"after": 60})["token"])
    *numbers, mac = token.split("-")
    spent = (412, "CountSpent")
    for wrong in (
        *("", "x", other, mac, token[:-1], f"{token}0", f"-{token}", token.upper()),
        "-".join([*numbers[:2], "0", *numbers[3:], mac]),
        "-".join([str(int(numbers[0]) + 1), *numbers[1:], mac]),
        "-".join([numbers[0], "1" * 500, *numbers[2:], mac]),
    ):
        assert tables.put({"after": 60}, wrong) == spent, wrong
    for policy in ({"after": 61}, {"after": 60, "suspended": True}, {"property": "expires"}):
        assert tables.put(policy, token) == spent
    tables.service.clock.now += timedelta(minutes=10, seconds=1)
    assert tables.put({"after": 60}, token) == spent
    tables.service.clock.now -= timedelta(seconds=1)
    assert tables.put({"after": 60}, token) == (204, None)


def test_a_token_is_good_at_every_worker(tables: Tables) -> None:
    seed(tables)
    token = tables.count({"after": 60})["token"]
    other = ServiceUnderTest(tables.service)
    body = json.dumps({"after": 60}).encode()
    answer = other.send(
        "PUT", "/Orders?comp=expiry", [OWN, ("x-tablestone-token", str(token))], body
    )
    assert answer.status == 204


def test_a_count_that_is_unknown_or_old(tables: Tables) -> None:
    seed(tables)
    for count in ("0" * 16, "", "%2e%2e", "z" * 16, "é"):
        target = f"Orders?comp=expiry&count={count}"
        assert tables.refused("GET", target.replace("é", "%C3%A9")) == "404 CountNotFound"
    tables.count({"after": 60})
    target = f"expiry&count={tables.count_id}"
    assert tables.refused("GET", f"Empty?comp={target}") == "404 CountNotFound"
    tables.service.clock.now += timedelta(minutes=10, seconds=1)
    assert tables.refused("GET", f"Orders?comp={target}") == "404 CountNotFound"
    tables.service.work()  # removes it
    tables.service.clock.now -= timedelta(minutes=5)
    assert tables.refused("GET", f"Orders?comp={target}") == "404 CountNotFound"


@pytest.mark.parametrize("body", [[], {}, {"after": 0}, {"property": "RowKey"}, {"suspended": 1}])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_what_is_no_policy(tables: Tables, method: str, body: object) -> None:
    assert tables.refused(method, "Orders?comp=expiry", body) == "400 InvalidInput"


def test_a_suspension_is_not_counted(tables: Tables) -> None:
    refused = tables.refused("POST", "Orders?comp=expiry", {"suspended": True})
    assert refused == "400 InvalidInput"


@pytest.mark.parametrize(
    ("method", "comp"), list(product(("PUT", "DELETE", "POST"), ("indexes", "expiry")))
)
def test_without_the_header_nothing_is_new(tables: Tables, method: str, comp: str) -> None:
    if (method, comp) != ("PUT", "expiry"):
        answers = [
            tables.service.send(method, f"/Orders?comp={each}&property=a").status
            for each in (comp, "nothing")
        ]
        assert answers == [400, 400]


def test_a_count_of_a_table_that_goes(tables: Tables) -> None:
    seed(tables)
    tables.ask("POST", "Orders?comp=expiry", {"after": 60})
    tables.service.send("DELETE", "/Tables('Orders')")
    tables.service.work()
    kept = asyncio.run(tables.service.engine.scan(COUNTS, rows_max=9))
    assert kept == []


def test_two_ask_for_the_same(tables: Tables) -> None:
    """Both get the same count, and only the first one's change is made."""
    seed(tables)
    first = tables.count({"after": 60})
    assert tables.count({"after": 60})["token"] == first["token"]
    assert tables.put({"after": 60}, first["token"]) == (204, None)
    assert tables.put({"after": 60}, first["token"]) == (412, "CountSpent")


def as_cluster(_engine: Engine) -> Engine:
    """With leases, over a network."""
    leases = Leases(LEASE_SECONDS)
    return SlowEngine(MemoryOfServers(engine_clock.ticks), Random(1), leases=leases, passes=True)


engine_clock = Clock()


@pytest.mark.parametrize("reached", [SlowToChange, as_cluster])
def test_where_a_change_waits_for_other_servers_it_is_made_beside_requests(
    monkeypatch: pytest.MonkeyPatch, reached: Callable[[Engine], Engine]
) -> None:
    monkeypatch.setattr(catalog, "SWEEPING_SECONDS", 0)
    tables = Tables(reached=reached)
    seed(tables)
    token = tables.count({"after": 60})["token"]
    answer = tables.ask(
        "PUT", "Orders?comp=expiry", {"after": 60}, ("x-tablestone-token", str(token))
    )
    assert answer.status == 202
    tables.count_id = json.loads(answer.body)["count"]
    assert tables.counted()["state"] == "changing"
    assert tables.policy() == {}
    tables.service.work()
    assert tables.counted()["state"] == "changed"
    assert tables.policy() == {"after": 60, "suspended": False}
    for method, body, left in (
        ("PUT", {"suspended": True}, {"after": 60, "suspended": True}),
        ("DELETE", None, {}),
    ):
        answer = tables.ask(method, "Orders?comp=expiry", body)
        assert answer.status == 202
        tables.service.work()
        assert tables.policy() == left
    tables.service.close()


def test_a_change_at_the_last_moment_spends_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(tables)
    token = tables.count({"after": 60})["token"]
    counts = tables.service.tables.counts
    is_good = counts.require_token

    async def and_then_another(owner: Any, *given: Any) -> None:
        await is_good(owner, *given)
        policy = ExpiryPolicy(after=7)
        await tables.service.tables.catalog.change_expiry(owner, "Orders", lambda _old: policy)

    monkeypatch.setattr(counts, "require_token", and_then_another)
    assert tables.put({"after": 60}, token) == (412, "CountSpent")
    assert tables.policy()["after"] == 7


def test_a_change_before_a_cluster_comes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "SWEEPING_SECONDS", 0)
    tables = Tables(reached=SlowToChange)
    seed(tables)
    tokens = [tables.count({"after": after})["token"] for after in (60, 61)]
    changes = [tables.change(after, token) for after, token in zip((60, 61), tokens, strict=True)]
    tables.service.work()
    states = []
    for tables.count_id in changes:
        states.append(str(tables.counted()["state"]))
    assert sorted(states) == ["changed", "spent"]
    assert tables.put({"after": 61}, tokens[1]) == (412, "CountSpent")
    tables.service.close()


def test_another_process_goes_on_with_a_count_and_an_index(tables: Tables) -> None:
    """What was asked for is stored, so a restart loses nothing."""
    seed(tables)
    tables.ask("POST", "Orders?comp=expiry", {"after": 60})
    tables.make("customer")
    ServiceUnderTest(tables.service).work()
    assert tables.indexes()[0]["state"] == "ready"
    (row,) = tables.service._loop.run(tables.service.engine.scan(COUNTS, rows_max=9))
    assert b'"state":"counted"' in row.value


class OnDisk(Tables):
    """Twenty entities in a directory, on a disk that gets full."""

    def __init__(self, directory: Path) -> None:
        self.engine = SqliteEngine(directory / "data", engine_clock.ticks, Opening.SERVER)
        super().__init__(reached=lambda _engine: self.engine, remote_indexes=True)
        for number in range(20):
            self.insert("Orders", str(number), a=number)

    def fill_disk(self, monkeypatch: pytest.MonkeyPatch, *, nearly: bool = False) -> None:
        room = self.engine._room
        monkeypatch.setattr(room, "look", lambda *_: not nearly)
        room.lacks_room = room.is_low = True
        room.is_short = not nearly

    def close(self) -> None:
        self.service.close()
        self.service._loop = asyncio.Runner()
        asyncio.run(self.engine.close())


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[OnDisk]:
    made = OnDisk(tmp_path)
    yield made
    made.close()


def test_on_a_full_disk_an_index_is_dropped_and_expiry_counted(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk.make("a")
    on_disk.service.work()
    assert on_disk.indexes()[0]["state"] == "ready"
    on_disk.fill_disk(monkeypatch)
    inserted = on_disk.service.send(
        "POST", "/Orders", [JSON], b'{"PartitionKey": "q", "RowKey": "1"}'
    )
    assert inserted.status == 503
    assert on_disk.ask("DELETE", "Orders?comp=indexes&property=a").status == 202
    on_disk.service.work()
    assert on_disk.indexes() == []
    assert on_disk.count({"after": 60})["state"] == "counted"


def test_an_automatic_index_is_left_while_the_disk_is_nearly_full(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = on_disk.service
    owner = Named(ACCOUNT)
    work = IndexWork(service.tables.catalog, owner, "Orders", "a")
    service._loop.run(work.ask_automatic(20_000))
    with monkeypatch.context() as full:
        on_disk.fill_disk(full, nearly=True)
        service.work()
        assert on_disk.indexes()[0]["state"] == "building"
        on_disk.make("b")  # a user's own
        service.work()
        assert [each["state"] for each in on_disk.indexes()] == ["building", "ready"]
        on_disk.make("a")  # adopts it
        service.work()
    assert [each["state"] for each in on_disk.indexes()] == ["ready", "ready"]


def test_an_automatic_index_stops_when_the_disk_gets_nearly_full(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_building, "ROWS_PER_STEP", 5)
    service = on_disk.service
    owner = Named(ACCOUNT)
    catalog_ = service.tables.catalog
    service._loop.run(IndexWork(catalog_, owner, "Orders", "a").ask_automatic(20_000))
    reindex = IndexWork._reindex

    async def and_fill_disk(*given: Any) -> None:
        await reindex(*given)
        on_disk.fill_disk(monkeypatch, nearly=True)

    monkeypatch.setattr(IndexWork, "_reindex", and_fill_disk)
    service.work()
    (index,) = on_disk.indexes()
    assert (index["state"], index["waits"]) == ("building", True)


def test_work_that_fails_stops_no_other(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    """A count and an index of a table with a damaged row fail; those of other tables are made."""
    seed(tables)
    service = tables.service
    tables.insert("Empty", "1", a=1)  # the catalog's first table
    owner = Named(ACCOUNT)
    record = service._loop.run(service.tables.catalog.require(owner, "Empty"))
    place = storage_keys.entity_place(record.table_id, EntityKey("p", "zz"))
    damaged = Put(lambda _version: b'{"PartitionKey":"p","RowKey":"zz"')
    write_set = WriteSet(place.partition, (Change(place.row, ANY, damaged),))

    async def damage() -> None:
        await service.engine.commit(write_set)

    service._loop.run(damage())
    tables.make("a", "Empty")
    tables.make("expires", "Orders")
    assert tables.count({"after": 60}, "Empty")["state"] == "failed"
    assert tables.indexes("Orders")[0]["state"] == "ready"
    assert tables.indexes("Empty")[0]["state"] == "building"
    service.work()
    assert sum("The index on a of" in each.message for each in caplog.records) == 1
    assert tables.count({"after": 60})["state"] == "counted"
    tables.service.clock.now += timedelta(minutes=11)
    tables.service.work()
    assert tables.service._loop.run(tables.service.engine.scan(COUNTS, rows_max=9)) == []


def test_what_the_engine_refuses_stops_no_other(
    on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk.make("b")
    on_disk.service.work()
    on_disk.make("a", "Empty")
    on_disk.insert("Empty", "1", a=1)  # the catalog's first table, whose index needs room
    assert on_disk.ask("DELETE", "Orders?comp=indexes&property=b").status == 202
    on_disk.ask("POST", "Empty?comp=expiry", {"after": 60})
    on_disk.fill_disk(monkeypatch)
    counts = on_disk.service.tables.counts

    async def refuse(*_given: object) -> None:
        raise EngineUnavailable("not now")

    monkeypatch.setattr(counts, "_result", refuse)
    with pytest.raises(EngineUnavailable, match="full"):
        on_disk.service.work()
    assert on_disk.indexes() == []
    assert on_disk.indexes("Empty")[0]["state"] == "building"


@pytest.mark.parametrize("is_counted_first", [False, True])
def test_a_count_and_a_change_of_one_policy(
    monkeypatch: pytest.MonkeyPatch, *, is_counted_first: bool
) -> None:
    """Neither replaces the other, in whatever order two people ask."""
    monkeypatch.setattr(catalog, "SWEEPING_SECONDS", 0)
    tables = Tables(reached=SlowToChange)
    seed(tables)
    token = tables.count({"after": 60})["token"]
    asked = ["count", "change"] if is_counted_first else ["change", "count"]
    ids = {}
    for each in asked:
        if each == "change":
            ids[each] = tables.change(60, token)
        else:
            answer = tables.ask("POST", "Orders?comp=expiry", {"after": 60})
            ids[each] = json.loads(answer.body)["count"]
    tables.service.work()
    assert tables.policy() == {"after": 60, "suspended": False}
    tables.count_id = ids["change"]
    assert tables.counted()["state"] == "changed"
    tables.count_id = ids["count"]
    counted = tables.counted()
    assert (counted["state"], counted["entities"]) == ("counted", 5)
    tables.service.close()


def test_a_long_count_of_a_cluster_stays_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestone.limits.SWEEP_ROWS_PER_STEP", 1)
    tables = Tables(reached=as_cluster)
    seed(tables)
    service = tables.service
    engine = service.tables._engine
    one, other = (ExpiryCounts(engine, service.documents, service.tables.catalog) for _ in "12")

    async def find_owner(name: str) -> Named:
        return Named(name)

    async def never() -> None:
        pytest.fail("another server has begun the same count")

    steps = 0

    async def rest() -> None:
        nonlocal steps
        steps += 1
        service.clock.now += timedelta(seconds=0.9 * CLAIM_TICKS / TICKS_PER_SECOND)
        await other.work(find_owner, never)

    async def taken_over() -> None:
        service.clock.now += timedelta(seconds=2 * CLAIM_TICKS / TICKS_PER_SECOND)
        await other.work(find_owner, no_rest)

    async def no_rest() -> None:
        pass

    ask = "POST", "Orders?comp=expiry", {"after": 60}
    tables.count_id = json.loads(tables.ask(*ask).body)["count"]
    service._loop.run(one.work(find_owner, rest))
    assert steps == 5
    counted = tables.counted()
    assert (counted["state"], counted["entities"]) == ("counted", 5)
    tables.ask(*ask)
    service._loop.run(one.work(find_owner, taken_over))  # it was stuck for too long
    assert tables.counted()["state"] == "counted"
    tables.service.close()


def test_a_count_ends_although_others_ask_for_it(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them gets its result, if the table is still as it was when the count began."""
    monkeypatch.setattr("tablestone.limits.SWEEP_ROWS_PER_STEP", 1)
    seed(tables)
    owner, counts = Named(ACCOUNT), tables.service.tables.counts
    policy = ExpiryPolicy(60)

    async def find_owner(_name: str) -> Named:
        return owner

    async def ask_again() -> None:
        assert await counts.begin(owner, "Orders", policy) == tables.count_id

    tables.count_id = tables.service._loop.run(counts.begin(owner, "Orders", policy))
    tables.service._loop.run(counts.work(find_owner, ask_again))
    assert tables.counted()["state"] == "counted"
    tables.service._loop.run(ask_again())
    assert tables.counted()["state"] == "counting"

    async def change_and_ask_again() -> None:
        await IndexWork(tables.service.tables.catalog, owner, "Orders", "a").ask()
        await ask_again()

    tables.service._loop.run(counts.work(find_owner, change_and_ask_again))
    assert tables.counted()["state"] == "counting", "its token would be spent"


@pytest.mark.parametrize("reached", [lambda engine: engine, SlowToChange])
@pytest.mark.parametrize(
    ("method", "body", "left"),
    [("PUT", {"suspended": True}, {"after": 7, "suspended": True}), ("DELETE", None, {})],
)
def test_no_change_stops_a_suspension_or_a_removal(
    monkeypatch: pytest.MonkeyPatch,
    reached: Callable[[Engine], Engine],
    method: str,
    body: object,
    left: object,
) -> None:
    """Another change comes between the request, or its acceptance, and its commit."""
    monkeypatch.setattr(catalog, "SWEEPING_SECONDS", 0)
    tables = Tables(reached=reached)
    assert tables.ask("PUT", "Empty?comp=expiry", {"after": 60}).status == 204
    served = tables.service.tables.catalog
    change_expiry = served.change_expiry

    async def after_another(owner: Any, *given: Any) -> None:
        await change_expiry(owner, "Empty", lambda _old: ExpiryPolicy(after=7))
        await change_expiry(owner, *given)

    monkeypatch.setattr(served, "change_expiry", after_another)
    answer = tables.ask(method, "Empty?comp=expiry", body)
    assert answer.status in (202, 204)
    if answer.status == 202:
        tables.service.work()
        tables.count_id = json.loads(answer.body)["count"]
        assert tables.counted("Empty")["state"] == "changed"
    assert tables.policy("Empty") == left
    tables.service.close()
