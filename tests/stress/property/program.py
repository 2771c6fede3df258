"""A random program: one step after the other on a server and on the model, compared after each.

Everything goes through bytes as a client sends them. After every write the whole table is read back, which shows at
once an ETag that changes when it should not, or stays when it should change. A program may use only a random part of
the steps (swarm testing), because one that can do everything rarely does one thing often. Hypothesis and the long form
(`__main__.py`) bring a `Random`. Steps on accounts and policies are in `owners.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import Final
from urllib.parse import quote

from stress.property import pools
from stress.property.answers import (
    Job,
    explains,
    in_any_order,
    job_request,
    key_of_token,
    listing,
    outcome_of,
    page_of,
    token_of,
    with_system_properties,
)
from stress.property.door import Answer, Door, MakeService
from stress.property.filter_model import Filter, matches
from stress.property.following import Follower, follow, follow_all
from stress.property.model import Key, Model, Refused, Stored, Table, Write, key_order, tag_content
from stress.property.payloads import (
    ACCOUNT,
    LEVELS,
    Request,
    batch_request,
    entity_path,
    expected_members,
    parse_members,
    write_request,
)
from tablestone.clock import UNIX_EPOCH_TICKS
from tablestone.tables.service import TableService

FOREIGN_TAG: Final = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""
SCANS_MAX: Final = 3
WRITES_OF_A_STEP: Final = 5


@dataclass
class Owner:
    """An account with its part of the model; `old_keys` were its keys, or those of an earlier account of the name."""

    name: str
    model: Model
    keys: list[str | None]
    old_keys: list[str]

    def request(self, request: Request, random: Random) -> Request:
        """The request, signed with a key of the account."""
        return replace(request, account=self.name, key=random.choice(self.keys))


@dataclass
class Scan:
    """A query that continues page by page while others write."""

    table: str
    filter: Filter | None
    top: int
    seen: list[Key]
    all_along: set[Key]
    """The keys that have matched ever since the first page."""
    of: Table
    token: dict[str, str] | None = None


class Program:
    """One server beside one model. `close` checks what the server has stored."""

    def __init__(
        self, engine: str, random: Random, make_service: MakeService = TableService
    ) -> None:
        self.door = Door(engine, make_service)
        self.main = Owner(ACCOUNT, Model(self.now), [None], [])
        self.owners = {ACCOUNT: self.main}
        self.old_keys: list[str] = []
        """Keys of accounts that were replaced or deleted."""
        self.keys_made = 0
        self.old_etags: list[str] = [FOREIGN_TAG]
        self.token: tuple[Owner, str, Filter | None, dict[str, str]] | None = None
        self.scans: list[Scan] = []
        self.followers: dict[str, Follower] = {}
        """The readers of the feeds of changes, by accounts."""
        try:
            self._begin(random)
        except BaseException:  # Hypothesis too ends a program where its random numbers end
            self.door.close()
            raise

    def _begin(self, random: Random) -> None:
        self.partitions, self.rows = pools.keys(random)
        self.door.send(Request("POST", "/Tables", {}, b'{"TableName":"Water"}')).require(201)
        self.main.model.create_table("Water")
        # Something exists from the start, or most of a short run would find nothing.
        for number, row in enumerate(self.rows[:3]):
            write = Write("insert", (self.partitions[0], row), {"a": pools.VALUES[number]})
            answer = self.door.send(write_request("Water", write))
            self.compare_writes(self.main, "Water", [write], answer, random)

    def close(self) -> None:
        try:
            follow_all(self, Random(0))
        except BaseException:
            self.door.release()
            raise
        assert self.door.close() == []

    def owner(self, random: Random) -> Owner:
        """Mostly the account that always exists."""
        if len(self.owners) == 1 or random.randrange(4):
            return self.main
        return random.choice(list(self.owners.values()))

    def create_table(self, random: Random) -> None:
        owner, name = self.owner(random), pools.table(random)
        body = f'{{"TableName":"{name}"}}'.encode()
        answer = self.door.send(owner.request(Request("POST", "/Tables", {}, body), random))
        expected = outcome_of(lambda: owner.model.create_table(name))
        assert outcome_of(lambda: answer.require(201)) == expected

    def delete_table(self, random: Random) -> None:
        owner, name = self.owner(random), pools.table(random)
        answer = self.door.send(owner.request(Request("DELETE", f"/Tables('{name}')"), random))
        expected = outcome_of(lambda: owner.model.delete_table(name))
        assert outcome_of(lambda: answer.require(204)) == expected
        self.note_change()

    def list_tables(self, random: Random) -> None:
        owner, name, top = self.owner(random), pools.table(random), random.randint(1, 3)
        found: list[str] = []
        token: str | None = ""
        while token is not None:
            suffix = f"&NextTableName={quote(token)}" if token else ""
            request = owner.request(Request("GET", f"/Tables?$top={top}{suffix}"), random)
            answer = self.door.send(request).require(200)
            page = [dict(members)["TableName"] for members in page_of(answer)]
            assert len(page) <= top
            found += page
            token = answer.headers.get("x-ms-continuation-nexttablename")
        assert found == owner.model.list_tables()
        answer = self.door.send(owner.request(Request("GET", f"/Tables('{name}')"), random))
        expected = outcome_of(lambda: owner.model.get_table(name))
        assert outcome_of(lambda: answer.require(200)) == expected

    def write(self, random: Random) -> None:
        owner, table = self.owner(random), pools.table(random)
        verb = random.choice(("PATCH", "MERGE", "POST"))
        for _ in range(random.randint(1, WRITES_OF_A_STEP)):
            resolved = self.resolved(owner, table, pools.write(random))
            answer = self.door.send(owner.request(write_request(table, resolved, verb), random))
            self.compare_writes(owner, table, [resolved], answer, random)

    def transaction(self, random: Random) -> None:
        owner, table = self.owner(random), pools.table(random)
        resolved = [self.resolved(owner, table, write) for write in pools.transaction(random)]
        request = owner.request(batch_request(table, resolved, owner.name), random)
        self.compare_writes(owner, table, resolved, self.door.send(request), random)

    def at_once(self, random: Random) -> None:
        """Several clients at once: some order of their operations, one after another, has the same result."""
        table, owner = "Water", self.main
        jobs: list[Job] = [
            job and [self.resolved(owner, table, write) for write in job]
            for job in pools.jobs(random)
        ]
        answers = self.door.send_at_once([job_request(table, job) for job in jobs])
        final = self.door.send(listing(table))
        for order in permutations(range(len(jobs))):
            model = owner.model.copy_of(table)
            steps = [*((jobs[each], answers[each]) for each in order), (None, final)]
            if all(explains(model, table, job, answer) for job, answer in steps):
                for name, explained in model.tables.items():
                    owner.model.tables[name].rows = explained.rows
                self.note_change()
                return
        raise AssertionError("no order of the operations explains their answers")

    def change_indexes(self, random: Random) -> None:
        """Make, drop or check an index: no answer changes."""
        owner, table = self.owner(random), pools.table(random)
        name = random.choice((*pools.NAMES, "RowKey", "RowKey"))
        self.door.change_index(owner.name, table, name, random.randrange(4))

    def now(self) -> int:
        """The server's time, for the model."""
        return self.door.ticks() - UNIX_EPOCH_TICKS

    def move_clock(self, random: Random) -> None:
        self.door.move_clock(random.choice(pools.CLOCK_STEPS))
        self.note_change()

    def get(self, random: Random) -> None:
        owner, table, key = (
            self.owner(random),
            pools.table(random),
            self.key_at(pools.place(random)),
        )
        level, select = random.choice(LEVELS), pools.select(random)
        condition = random.choice(pools.READ_CONDITIONS)
        query = f"?$select={quote(','.join(select))}" if select else ""
        headers = {"Accept": f"application/json;odata={level}"}
        tag = self.tags(owner, table, key).get(condition.removeprefix("unless "))
        if tag is not None:
            headers["If-None-Match" if condition.startswith("unless") else "If-Match"] = tag
        request = Request("GET", f"/{entity_path(table, key)}{query}", headers)
        answer = self.door.send(owner.request(request, random))
        if condition.startswith("unless") and owner.model.has(table, key):
            stored = owner.model.get(table, key)
            if tag is not None and tag_content(tag) == tag_content(stored.etag):
                assert (answer.status, answer.body) == (304, b"")
                return
        expected = outcome_of(lambda: self.read(owner, table, key, headers.get("If-Match")))
        assert outcome_of(lambda: answer.require(200)) == expected
        if expected is not None:
            return
        stored = owner.model.get(table, key)
        assert answer.headers["etag"] == stored.etag
        members = [each for each in parse_members(answer.body) if each[0] != "odata.metadata"]
        wanted = expected_members(table, key, stored, level, select, owner.name)
        assert in_any_order(members, select) == in_any_order(wanted, select)

    def read(self, owner: Owner, table: str, key: Key, if_match: str | None) -> None:
        """Raise the error of a point read."""
        stored = owner.model.get(table, key)
        if if_match not in (None, "*") and tag_content(if_match or "") != tag_content(stored.etag):
            raise Refused("UpdateConditionNotSatisfied")

    def query(self, random: Random) -> None:
        """Pages of any size return the same entities (wire 6.7, 6.9)."""
        owner, table = self.owner(random), pools.table(random)
        node = pools.query_filter(random) if random.randrange(4) else None
        level, select = random.choice(LEVELS), pools.select(random)
        refused = outcome_of(lambda: owner.model.table(table))
        if refused is not None:
            answer = self.door.send(owner.request(listing(table, node), random))
            assert outcome_of(lambda: answer.require(200)) == refused
            return
        expected = self.matching(owner, table, node)
        rendered = [
            in_any_order(expected_members(table, key, stored, level, select, owner.name), select)
            for key, stored in expected
        ]
        for top in (None, random.randint(1, len(expected) + 1)):
            found: list[object] = []
            token: dict[str, str] | None = {}
            while token is not None:
                request = owner.request(listing(table, node, level, select, top, token), random)
                answer = self.door.send(request)
                page = page_of(answer)
                assert top is None or len(page) <= top
                found += [in_any_order(members, select) for members in page]
                token = token_of(answer)
                assert len(found) <= len(expected), "an entity came twice"
                if token is not None:
                    self.token = (owner, table, node, token)
            assert found == rendered

    def resume(self, random: Random) -> None:
        """A token stays valid while others write: it names the next key, whether a row has it or not (wire 6.9)."""
        if self.token is None or self.owners.get(self.token[0].name) is not self.token[0]:
            return
        owner, table, node, token = self.token
        answer = self.door.send(owner.request(listing(table, node, token=token), random))
        refused = outcome_of(lambda: owner.model.table(table))
        assert outcome_of(lambda: answer.require(200)) == refused
        if refused is not None:
            return
        first = key_order(key_of_token(token))
        expected = [
            expected_members(table, key, stored, "minimalmetadata", account=owner.name)
            for key, stored in self.matching(owner, table, node)
            if key_order(key) >= first
        ]
        assert page_of(answer) == expected

    def scan(self, random: Random) -> None:
        """Begin a scan, or continue one; at its end it has skipped nothing that was there all along."""
        table, model = "Water", self.main.model
        if model.tables.get("water") is None:
            return
        if len(self.scans) < SCANS_MAX and random.randrange(2):
            node = pools.query_filter(random) if random.randrange(2) else None
            there = {key for key, _stored in self.matching(self.main, table, node)}
            top = random.randint(1, 3)
            self.scans.append(Scan(table, node, top, [], there, model.table(table)))
        if not self.scans:
            return
        scan = random.choice(self.scans)
        answer = self.door.send(listing(table, scan.filter, top=scan.top, token=scan.token))
        page = [dict(members) for members in page_of(answer)]
        scan.seen += [(members["PartitionKey"], members["RowKey"]) for members in page]
        scan.token = token_of(answer)
        if scan.token is not None:
            return
        self.scans.remove(scan)
        assert len(set(scan.seen)) == len(scan.seen), "an entity came twice"
        assert scan.seen == sorted(scan.seen, key=key_order)
        assert scan.all_along <= set(scan.seen), "an entity that was there all along was skipped"

    def note_change(self) -> None:
        """Something was written: update what the scans must still find."""
        for scan in self.scans:
            table = self.main.model.tables.get(scan.table.lower())
            if table is not scan.of:
                scan.all_along = set()
            elif scan.all_along:
                matching = self.matching(self.main, scan.table, scan.filter)
                scan.all_along &= {key for key, _stored in matching}

    def key_at(self, place: Key) -> Key:
        return self.partitions[int(place[0])], self.rows[int(place[1])]

    def tags(self, owner: Owner, table: str, key: Key) -> dict[str, str]:
        """The ETags that the words for conditions mean now."""
        is_there = owner.model.has(table, key)
        current = owner.model.get(table, key).etag if is_there else FOREIGN_TAG
        return {
            "*": "*",
            "current": current,
            "plain colons": current.replace("%3A", ":"),
            "stale": self.old_etags[-1],
            "foreign": FOREIGN_TAG,
            "malformed": "blah",
        }

    def resolved(self, owner: Owner, table: str, write: Write) -> Write:
        """The write with the key of its place, and the ETag that its `if_match` word means now."""
        write = replace(write, key=self.key_at(write.key))
        if write.if_match is None:
            return write
        return replace(write, if_match=self.tags(owner, table, write.key)[write.if_match])

    def compare_writes(
        self, owner: Owner, table: str, writes: Sequence[Write], answer: Answer, random: Random
    ) -> None:
        for write in writes:
            if owner.model.has(table, write.key):
                self.old_etags.append(owner.model.get(table, write.key).etag)
        del self.old_etags[:-8]
        assert explains(owner.model, table, list(writes), answer, owner.name), answer
        after = self.door.send(owner.request(listing(table), random))
        assert explains(owner.model, table, None, after, owner.name)
        self.note_change()

    def matching(self, owner: Owner, table: str, node: Filter | None) -> list[tuple[Key, Stored]]:
        return [
            (key, stored)
            for key, stored in owner.model.entities(table)
            if node is None or matches(node, with_system_properties(key, stored))
        ]


Step = Callable[[Program, Random], None]
ALWAYS: Final[dict[str, Step]] = {
    "create_table": Program.create_table,
    "write": Program.write,
    "get": Program.get,
}
SWARM: Final[dict[str, Step]] = {
    "delete_table": Program.delete_table,
    "transaction": Program.transaction,
    "query": Program.query,
    "resume": Program.resume,
    "scan": Program.scan,
    "at_once": Program.at_once,
    "clock": Program.move_clock,
    "list_tables": Program.list_tables,
    "follow": follow,
    "indexes": Program.change_indexes,
}
