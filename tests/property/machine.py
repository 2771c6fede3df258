"""The state machine: Hypothesis does random things to a server and to the model, and compares after each.

Everything goes through bytes as a client sends them. After every write the whole table is read back, so that an ETag
that changes when it should not, or does not when it should, is seen at once. Each run may use only a random part of the
rules (a swarm), because a run that can do everything seldom does one thing often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import ClassVar
from urllib.parse import quote

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from property import pools
from property.answers import (
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
from property.door import Answer, Door, MakeService
from property.filter_model import Filter, matches
from property.model import Key, Model, Stored, Write, key_order
from property.payloads import (
    LEVELS,
    Request,
    batch_request,
    entity_path,
    expected_members,
    parse_members,
    write_request,
)
from tablestone.tables.service import TableService

FOREIGN_TAG = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""
SWARM = ("delete_table", "transaction", "query", "resume", "at_once", "clock", "list_tables")


def allowed(name: str) -> Callable[[TableMachine], bool]:
    return lambda machine: name in machine.enabled


class TableMachine(RuleBasedStateMachine):
    """One server beside one model. Subclasses say on which engine."""

    ENGINE: ClassVar[str]
    MAKE_SERVICE: ClassVar[MakeService] = TableService

    def __init__(self) -> None:
        super().__init__()
        self.door = Door(self.ENGINE, type(self).MAKE_SERVICE)
        self.model = Model()
        self.enabled: set[str] = set()
        self.partitions: list[str] = []
        self.rows: list[str] = []
        self.old_etags: list[str] = [FOREIGN_TAG]
        self.token: tuple[str, Filter | None, dict[str, str]] | None = None

    def teardown(self) -> None:
        assert self.door.close() == []

    @initialize(swarm=st.sets(st.sampled_from(SWARM), min_size=2), keys=pools.chosen_keys)
    def begin(self, swarm: set[str], keys: tuple[list[str], list[str]]) -> None:
        self.enabled = swarm
        self.partitions, self.rows = keys
        self.door.send(Request("POST", "/Tables", {}, b'{"TableName":"Water"}')).require(201)
        self.model.create_table("Water")
        # Something is there from the start, or most of a short run would meet nothing.
        for number, row in enumerate(self.rows[:3]):
            write = Write("insert", (self.partitions[0], row), {"a": pools.VALUES[number]})
            answer = self.door.send(write_request("Water", write))
            self.compare_writes("Water", [write], answer)

    # Tables.

    @rule(name=pools.tables)
    def create_table(self, name: str) -> None:
        body = f'{{"TableName":"{name}"}}'.encode()
        answer = self.door.send(Request("POST", "/Tables", {}, body))
        expected = outcome_of(lambda: self.model.create_table(name))
        assert outcome_of(lambda: answer.require(201)) == expected

    @precondition(allowed("delete_table"))
    @rule(name=pools.tables)
    def delete_table(self, name: str) -> None:
        answer = self.door.send(Request("DELETE", f"/Tables('{name}')"))
        expected = outcome_of(lambda: self.model.delete_table(name))
        assert outcome_of(lambda: answer.require(204)) == expected

    @precondition(allowed("list_tables"))
    @rule(top=st.integers(1, 3), name=pools.tables)
    def list_tables(self, top: int, name: str) -> None:
        found: list[str] = []
        token: str | None = ""
        while token is not None:
            suffix = f"&NextTableName={quote(token)}" if token else ""
            answer = self.door.send(Request("GET", f"/Tables?$top={top}{suffix}")).require(200)
            page = [dict(members)["TableName"] for members in page_of(answer)]
            assert len(page) <= top
            found += page
            token = answer.headers.get("x-ms-continuation-nexttablename")
        assert found == self.model.list_tables()
        answer = self.door.send(Request("GET", f"/Tables('{name}')"))
        expected = outcome_of(lambda: self.model.get_table(name))
        assert outcome_of(lambda: answer.require(200)) == expected

    # Writes.

    @rule(
        table=pools.tables,
        writes=st.lists(pools.writes, min_size=1, max_size=5),
        verb=st.sampled_from(["PATCH", "MERGE", "POST"]),
    )
    def write(self, table: str, writes: list[Write], verb: str) -> None:
        for write in writes:
            resolved = self.resolved(table, write)
            answer = self.door.send(write_request(table, resolved, verb))
            self.compare_writes(table, [resolved], answer)

    @precondition(allowed("transaction"))
    @rule(table=pools.tables, group=pools.transactions())
    def transaction(self, table: str, group: list[Write]) -> None:
        resolved = [self.resolved(table, write) for write in group]
        self.compare_writes(table, resolved, self.door.send(batch_request(table, resolved)))

    @precondition(allowed("at_once"))
    @rule(jobs=pools.jobs)
    def at_once(self, jobs: list[Job]) -> None:
        """Several clients at the same time: there is an order in which one after another gives the same."""
        table = "Water"
        resolved = [job and [self.resolved(table, write) for write in job] for job in jobs]
        answers = self.door.send_at_once([job_request(table, job) for job in resolved])
        final = self.door.send(listing(table))
        for order in permutations(range(len(jobs))):
            model = self.model.copy_of(table)
            steps = [*((resolved[each], answers[each]) for each in order), (None, final)]
            if all(explains(model, table, job, answer) for job, answer in steps):
                self.model.tables.update(model.tables)
                return
        raise AssertionError("no order of the operations explains their answers")

    @precondition(allowed("clock"))
    @rule(step=st.sampled_from(pools.CLOCK_STEPS))
    def move_clock(self, step: int) -> None:
        self.door.move_clock(step)

    # Reads.

    @rule(
        table=pools.tables,
        place=pools.key_places,
        level=st.sampled_from(LEVELS),
        select=pools.selects,
    )
    def get(self, table: str, place: Key, level: str, select: list[str]) -> None:
        key = self.key_at(place)
        query = f"?$select={quote(','.join(select))}" if select else ""
        request = Request(
            "GET",
            f"/{entity_path(table, key)}{query}",
            {"Accept": f"application/json;odata={level}"},
        )
        answer = self.door.send(request)
        expected = outcome_of(lambda: self.model.get(table, key))
        assert outcome_of(lambda: answer.require(200)) == expected
        if expected is None:
            stored = self.model.get(table, key)
            assert answer.headers["etag"] == stored.etag
            members = [each for each in parse_members(answer.body) if each[0] != "odata.metadata"]
            assert in_any_order(members, select) == in_any_order(
                expected_members(table, key, stored, level, select), select
            )

    @precondition(allowed("query"))
    @rule(
        table=pools.tables,
        node=st.none() | pools.query_filters,
        level=st.sampled_from(LEVELS),
        select=pools.selects,
    )
    def query(self, table: str, node: Filter | None, level: str, select: list[str]) -> None:
        """Pages of any size give the same entities (wire 6.7, 6.9)."""
        refused = outcome_of(lambda: self.model.table(table))
        if refused is not None:
            answer = self.door.send(listing(table, node))
            assert outcome_of(lambda: answer.require(200)) == refused
            return
        expected = self.matching(table, node)
        rendered = [
            in_any_order(expected_members(table, key, stored, level, select), select)
            for key, stored in expected
        ]
        for top in (None, *range(1, len(expected) + 2)):
            found: list[object] = []
            token: dict[str, str] | None = {}
            while token is not None:
                answer = self.door.send(listing(table, node, level, select, top, token))
                page = page_of(answer)
                assert top is None or len(page) <= top
                found += [in_any_order(members, select) for members in page]
                token = token_of(answer)
                assert len(found) <= len(expected), "an entity came twice"
                if token is not None:
                    self.token = (table, node, token)
            assert found == rendered

    @precondition(allowed("resume"))
    @rule()
    def resume(self) -> None:
        """A token stays valid while others write: it names the next key, whether a row has it or not (wire 6.9)."""
        if self.token is None:
            return
        table, node, token = self.token
        answer = self.door.send(listing(table, node, token=token))
        refused = outcome_of(lambda: self.model.table(table))
        assert outcome_of(lambda: answer.require(200)) == refused
        if refused is not None:
            return
        first = key_order(key_of_token(token))
        expected = [
            expected_members(table, key, stored, "minimalmetadata")
            for key, stored in self.matching(table, node)
            if key_order(key) >= first
        ]
        assert page_of(answer) == expected

    # Shared by the rules.

    def key_at(self, place: Key) -> Key:
        return self.partitions[int(place[0])], self.rows[int(place[1])]

    def resolved(self, table: str, write: Write) -> Write:
        """The write with the key of its place, and the ETag that its `if_match` word means at this moment."""
        write = replace(write, key=self.key_at(write.key))
        is_there = self.model.has(table, write.key)
        current = self.model.get(table, write.key).etag if is_there else FOREIGN_TAG
        tags = {
            "current": current,
            "plain colons": current.replace("%3A", ":"),
            "stale": self.old_etags[-1],
            "foreign": FOREIGN_TAG,
            "malformed": "blah",
        }
        return replace(write, if_match=tags.get(write.if_match or "", write.if_match))

    def compare_writes(self, table: str, writes: Sequence[Write], answer: Answer) -> None:
        for write in writes:
            if self.model.has(table, write.key):
                self.old_etags.append(self.model.get(table, write.key).etag)
        assert explains(self.model, table, list(writes), answer), answer
        assert explains(self.model, table, None, self.door.send(listing(table)))

    def matching(self, table: str, node: Filter | None) -> list[tuple[Key, Stored]]:
        return [
            (key, stored)
            for key, stored in self.model.entities(table)
            if node is None or matches(node, with_system_properties(key, stored))
        ]
