"""A reader of the feed of changes: what it has applied to an empty store is what the account's tables hold.

It reads on from the cursor of any line, as after a crash, also inside a transaction, and begins anew where a cursor is
of an earlier account of the name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stress.property.answers import listing
from stress.property.payloads import Request

if TYPE_CHECKING:
    from random import Random

    from stress.property.door import Answer
    from stress.property.program import Owner, Program

Line = dict[str, Any]
GONE: Final = b"InvalidChangeCursor"


@dataclass
class Follower:
    """What a reader has, by the names of tables in lower case, and where it goes on."""

    tables: dict[str, dict[tuple[str, str], Line]] = field(default_factory=dict)
    cursor: str | None = None

    def apply(self, line: Line) -> None:
        table, kind = line["table"].lower(), line["kind"]
        if kind == "table-created":
            self.tables[table] = {}
        elif kind == "table-deleted":
            del self.tables[table]
        else:
            key = key_of(line)
            if kind == "put":
                self.tables[table][key] = line["entity"]
            else:
                self.tables[table].pop(key, None)


def key_of(line: Line) -> tuple[str, str]:
    entity = line.get("entity", line)
    return entity["PartitionKey"], entity["RowKey"]


def follow(program: Program, random: Random) -> None:
    """Read the feed of an account, sometimes with an end in the middle of a page."""
    owner, ends_early = program.owner(random), bool(random.randrange(2))
    follower = follower_of(program, owner, random, ends_early=ends_early)
    if follower is not None and not ends_early:
        require_the_tables_of(follower, owner)


def follow_all(program: Program, random: Random) -> None:
    """Read all feeds to their ends, and compare."""
    for owner in program.owners.values():
        follower = follower_of(program, owner, random, ends_early=False)
        if follower is None:
            return
        require_the_tables_of(follower, owner)
        for table, found in follower.tables.items():
            answer = program.door.send(owner.request(listing(table), random)).require(200)
            stored = json.loads(answer.body)["value"]
            live = {key: each for key, each in found.items() if owner.model.has(table, key)}
            assert list(live.values()) == sorted_as(live, stored)
            last = {key_of(each): each for each in of_table(program, owner, random, table)}
            puts = {key: each["entity"] for key, each in last.items() if each["kind"] == "put"}
            assert puts == found


def of_table(program: Program, owner: Owner, random: Random, table: str) -> list[Line]:
    """All lines of a table's feed."""
    found: list[Line] = []
    since = ""
    while True:
        answer = _page(program, owner, random, f"/{table}?comp=changes{since}")
        found += _lines(answer)
        if "x-tablestone-more" not in answer.headers:
            return found
        since = f"&since={quote(answer.headers['x-tablestone-cursor'])}"


def require_the_tables_of(follower: Follower, owner: Owner) -> None:
    """The tables and ETags that were followed are those of the model."""
    found = {
        table: {key: entity["odata.etag"] for key, entity in rows.items()}
        for table, rows in follower.tables.items()
    }
    assert found == {
        table: {key: stored.etag for key, stored in of.rows.items()}
        for table, of in owner.model.tables.items()
    }, owner.name


def sorted_as(found: dict[tuple[str, str], Line], stored: list[Line]) -> list[Line]:
    """Entities in the order of these keys; there must be no others."""
    by_key = {(each["PartitionKey"], each["RowKey"]): each for each in stored}
    assert by_key.keys() == found.keys()
    return [by_key[key] for key in found]


def follower_of(
    program: Program, owner: Owner, random: Random, *, ends_early: bool
) -> Follower | None:
    """The account's reader once it has read on; None if the engine keeps no changes."""
    if program.door.engine.changes is None:
        return None
    follower = program.followers.setdefault(owner.name, Follower())
    while True:
        since = "" if follower.cursor is None else f"&since={quote(follower.cursor)}"
        answer = _page(program, owner, random, f"/?restype=service&comp=changes{since}")
        if GONE in answer.body:
            program.followers[owner.name] = follower = Follower()
            continue
        lines = _lines(answer)
        assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
        until = random.randint(0, len(lines)) if ends_early else len(lines)
        for line in lines[:until]:
            follower.apply(line)
            follower.cursor = line["cursor"]
        if ends_early:
            return follower
        follower.cursor = answer.headers["x-tablestone-cursor"]
        if "x-tablestone-more" not in answer.headers:
            return follower


def _page(program: Program, owner: Owner, random: Random, path: str) -> Answer:
    return program.door.send(owner.request(Request("GET", path), random))


def _lines(answer: Answer) -> list[Line]:
    assert answer.status == 200, answer.body
    lines = [json.loads(line) for line in answer.body.splitlines()]
    following = 0
    for line in lines:
        assert following in (0, line.get("following", 0) + 1), "a transaction is divided"
        following = line.get("following", 0)
    assert following == 0, "a transaction is divided"
    return lines
