"""Random queries with extensions, each beside a twin: the whole table is read, and the answer computed from that.

Functions of text, the last keys first, counts, filters, tops and tokens, by the owner and by signatures with ranges, on
tables with indexes and expiry, with small limits so that every way to read is taken. The twin uses the model of filters
of the property suite, and shares no code with the server's parser, planner or storage.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch
from urllib.parse import quote, unquote

from sas_signing import completed, query_of, signed
from stress.property import pools
from stress.property.answers import with_system_properties
from stress.property.filter_model import FUNCTIONS, Both, Comparison, Not, matches, text_of
from stress.property.model import Expiry, Stored, Write, key_order
from stress.property.payloads import entity_path, write_request
from tablestone.wire.continuation import format_token, parse_token
from wire.service_under_test import ACCOUNT, KEY, ServiceUnderTest

if TYPE_CHECKING:
    from stress.property.filter_model import Filter
    from stress.property.model import Key, Value
    from wire.service_under_test import Response

ENGINES: Final = ("memory", "sqlite")
KINDS: Final = ("page", "page newest", "page sas", "page newest sas", "point read", "count")
"""What each run of some length has compared, among others."""
QUERIES_OF_A_TABLE: Final = 25
WRITES: Final = (0, 5, 30, 100, 150)
INDEXED: Final = ("a", "B", "RowKey")
PARTITIONS: Final = ("", "a", "ab", "it's", "😀")
TEXTS: Final = (
    "",
    "a",
    "ab",
    "aab",
    "b",
    "ba",
    "a b",
    "A",
    "it's",
    "é",
    "😀",
    "a😀b",
    "\ue000",
    "\uffff",
)
"""Keys, values and parts of texts: many begin with, end with or contain another."""
OWN: Final = [("x-tablestone-indexes", "1")]
NEWEST: Final = "$orderby=" + quote("PartitionKey desc,RowKey desc")
NAMES: Final = ("NextPartitionKey", "NextRowKey")
LIMITS: Final = {
    "tablestone.tables.index_reads.FEW_ENTRIES": (1, 3, 20),
    "tablestone.tables.index_reads.SORTED_ENTRIES_MAX": (6, 30),
    "tablestone.tables.index_reads.ENTRIES_PER_READ": (2, 10),
    "tablestone.tables.index_reads.ROWS_PER_READ_MIN": (1, 5),
    "tablestone.limits.SCAN_ROWS_PER_READ": (3, 10),
    "tablestone.limits.SCAN_ROWS_PER_HINTED_READ": (5,),
}


class Caller(NamedTuple):
    """The owner, or the holder of a signature; `bounds` are spk, srk, epk and erk."""

    sas: str = ""
    bounds: tuple[str | None, ...] = (None,) * 4

    def may_read(self, key: Key) -> bool:
        """The table of auth 3.5."""
        order = key_order(key)
        spk, srk, epk, erk = (
            None if bound is None else key_order((bound, ""))[0] for bound in self.bounds
        )
        lower = spk is None or (order >= (spk, srk) if srk is not None else order[0] >= spk)
        upper = epk is None or (order <= (epk, erk) if erk is not None else order[0] <= epk)
        return lower and upper

    def holds_partition(self, partition: str) -> bool:
        order, _ = key_order((partition, ""))
        spk, epk = (
            None if bound is None else key_order((bound, ""))[0] for bound in self.bounds[::2]
        )
        return (spk is None or order >= spk) and (epk is None or order <= epk)


@contextmanager
def small_limits(random: Random) -> Iterator[None]:
    patches = [patch(name, random.choice(values)) for name, values in LIMITS.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


class Twin:
    """A server with one table, written at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.done: Counter[str] = Counter()
        self.expires = not random.randrange(2)
        self.service = ServiceUnderTest(query_extensions=True, remote_indexes=True)
        can = self.service.engine.capabilities
        self.directions = (False, True, True) if can.reads_backwards else (False,)
        self.service.send("POST", "/Tables", body=b'{"TableName": "Water"}')
        if self.expires:
            assert (
                self.service.send("PUT", "/Water?comp=expiry", OWN, b'{"after": 60}').status < 300
            )
        self.rows: dict[Key, Stored] = {}
        wanted = [name for name in INDEXED if can.keeps_entries and random.randrange(4)]
        writes = random.choice(WRITES)
        made_at = {name: random.randrange(writes + 1) for name in wanted}
        for number in range(writes + 1):
            for name in [each for each, moment in made_at.items() if moment == number]:
                self._index(name)
            self._write()

    def _index(self, name: str) -> None:
        within = {"withinPartition": True} if not self.random.randrange(3) else {}
        body = json.dumps({"property": name, **within}).encode()
        answer = self.service.send("PUT", "/Water?comp=indexes", OWN, body)
        assert answer.status == 202, answer
        self.service.work()

    def _write(self) -> None:
        random = self.random
        key = random.choice(PARTITIONS), random.choice(TEXTS)
        given = {name: self._value() for name in pools.NAMES[:3] if random.randrange(4)}
        kind = "insert or replace"
        if key in self.rows and not random.randrange(6):
            self.delete(key)
            return
        request = write_request("Water", Write(kind, key, given))
        answer = self.service.send("PUT", request.path, list(request.headers.items()), request.body)
        assert answer.status == 204, answer
        self.rows[key] = Stored(answer.headers["etag"], given)
        self.service.clock.now += timedelta(milliseconds=random.choice((0, 0, 1, 300)))

    def _value(self) -> Value:
        random = self.random
        return random.choice(
            (("Edm.String", random.choice(TEXTS[:6])), random.choice(pools.VALUES))
        )

    def delete(self, key: Key) -> None:
        path = f"/{entity_path('Water', key)}"
        if self.service.send("DELETE", path, [("If-Match", "*")]).status == 204:
            del self.rows[key]  # the row of an expired entity stays until it is swept

    def close(self) -> None:
        self.service.close()

    # The twin's answers.

    def live(self) -> list[Key]:
        """The keys of all entities that have not expired, in order; the server lists the same."""
        ticks = round(self.service.clock.now.timestamp() * 10**6) * 10
        expiry = Expiry(60, "") if self.expires else None
        found = [k for k, row in self.rows.items() if not (expiry and expiry.hides(row, ticks))]
        return sorted(found, key=key_order)

    def wanted(self, node: Filter | None, caller: Caller, *, reverse: bool) -> list[Key]:
        """The keys of the entities that a query finds, in its order."""
        found = [
            key
            for key in self.live()
            if caller.may_read(key)
            and (node is None or matches(node, with_system_properties(key, self.rows[key])))
        ]
        return found[::-1] if reverse else found

    # The server's answers.

    def get(
        self, path: str, parameters: list[str], caller: Caller, *headers: tuple[str, str]
    ) -> Response:
        self.service.seconds = count(0, self.random.choice((0, 0, 1, 4)))
        parameters = [*parameters, caller.sas]
        unsigned = [("Authorization", "-")] if caller.sas else []
        query = "&".join(filter(None, parameters))
        return self.service.send("GET", f"/{path}?{query}", [*headers, *unsigned])

    def check_whole(self) -> None:
        found: list[Key] = []
        token: list[str] = []
        while True:
            answer = self.get("Water()", token, Caller())
            found += keys_of(answer)
            token = token_of(answer)
            if not token:
                break
        assert found == self.live()

    def step(self) -> None:
        random = self.random
        if not random.randrange(5):
            self.service.clock.now += timedelta(seconds=random.choice((0.3, 5, 30)))
        if not random.randrange(3):
            self._write()
        self.check_whole()
        caller, node = self._caller(), self._filter()
        kind = random.choice((self._pages, self._pages, self._counted, self._resumed, self._point))
        kind(node, [] if node is None else ["$filter=" + quote(text_of(node), safe="")], caller)

    def _filter(self) -> Filter | None:
        """None, what an index serves, or a tree, half of whose leaves are functions."""
        random = self.random
        draw = random.randrange(6)
        if draw == 0:
            return None
        if draw > 2:
            return self._tree(random.choice((0, 2)))
        literal = ("Edm.String", random.choice(TEXTS[:6]))
        operator = random.choice(("eq", "eq", "startswith", "startswith", "le"))
        found = Comparison(random.choice(INDEXED), operator, literal)
        if draw == 1:
            return found
        partition = ("Edm.String", random.choice(PARTITIONS))
        return Both("and", Comparison("PartitionKey", "eq", partition), found)

    def _tree(self, depth: int) -> Filter:
        random = self.random
        draw = random.randrange(6) if depth else 5
        if draw == 0:
            return Not(self._tree(depth - 1))
        if draw < 3:
            word = random.choice(("and", "or"))
            return Both(word, self._tree(depth - 1), self._tree(depth - 1))
        if random.randrange(2):
            return pools.query_filter(random, 0)
        name = random.choice(("PartitionKey", "RowKey", "a", "a", "B", "B", "_c"))
        function = random.choice(("eq", "eq", "ge", "startswith", *FUNCTIONS))
        part = ("Edm.String", random.choice(TEXTS))
        return Comparison(name, function, part, random.random() < 0.5)

    def _caller(self) -> Caller:
        """The owner, or a signature whose range begins or ends anywhere. No bound is empty, which would be none."""
        random = self.random
        if random.randrange(2):
            return Caller()
        bounds: list[str | None] = []
        for _ in range(2):
            partition = random.choice((None, *filter(None, PARTITIONS)))
            row = None if partition is None else random.choice((None, *filter(None, TEXTS)))
            bounds += [partition, row]
        given = {"sp": random.choice(("r", "raud")), "tn": "Water"}
        names = ("spk", "srk", "epk", "erk")
        given |= {n: text for n, text in zip(names, bounds, strict=True) if text is not None}
        return Caller(query_of(signed(ACCOUNT, KEY, completed(given))), tuple(bounds))

    def _pages(self, node: Filter | None, asked: list[str], caller: Caller) -> None:
        reverse = self.random.choice(self.directions)
        self._follow(node, asked, caller, reverse=reverse, start=None)

    def _resumed(self, node: Filter | None, asked: list[str], caller: Caller) -> None:
        """From a token that names any key, of an entity or not, in the range or not."""
        key = self.random.choice(PARTITIONS), self.random.choice(TEXTS)
        reverse = self.random.choice(self.directions)
        order = [NEWEST] if reverse else []
        other = tokens(key, reverse=not reverse)
        assert self.get("Water()", [*asked, *order, *other], caller).status == 400
        self._follow(node, asked, caller, reverse=reverse, start=key)

    def _follow(
        self,
        node: Filter | None,
        asked: list[str],
        caller: Caller,
        *,
        reverse: bool,
        start: Key | None,
    ) -> None:
        """Page by page. Now and then the entity that a token names is deleted meanwhile."""
        random = self.random
        top = random.choice((None, 1, 2, 3, 1000))
        asked = [*asked, *([] if top is None else [f"$top={top}"]), *([NEWEST] if reverse else [])]
        if not random.randrange(4):
            asked.append("$select=PartitionKey,RowKey,a")
        place = start
        while True:
            token = [] if place is None else tokens(place, reverse=reverse)
            answer = self.get("Water()", [*asked, *token], caller)
            self.done[f"page{' newest' * reverse}{' sas' * bool(caller.sas)}"] += 1
            rest = self.rest(
                self.wanted(node, caller, reverse=reverse), place, caller, reverse=reverse
            )
            found = keys_of(answer)
            assert found == rest[: len(found)], (found, rest)
            assert len(found) <= (top or 1000)
            following = token_of(answer)
            if not following:
                assert found == rest, "the page is not the last one"
                return
            texts = [unquote(each.partition("=")[2]) for each in following]
            place = parse_token(texts[0], reverse=reverse), parse_token(texts[1], reverse=reverse)
            assert place in self.rows, "the token names no entity"
            assert caller.may_read(place), "the token leaks a key"
            left = self.rest(rest, place, caller, reverse=reverse)
            assert found + left == rest, "the token skips or repeats entities"
            if not random.randrange(6):
                self.delete(place)

    @staticmethod
    def rest(keys: list[Key], place: Key | None, caller: Caller, *, reverse: bool) -> list[Key]:
        if place is None:
            return keys
        if not caller.holds_partition(place[0]):  # auth 3.6
            return []
        order = key_order(place)
        return [k for k in keys if (key_order(k) <= order if reverse else key_order(k) >= order)]

    def _counted(self, node: Filter | None, asked: list[str], caller: Caller) -> None:
        """Whole, or by parts that add up."""
        wanted = len(self.wanted(node, caller, reverse=False))
        answer = self.get("Water/$count", asked, caller, ("Accept", "*/*"))
        if answer.status == 500:
            assert b"x-tablestone-partial: true" in answer.body
            self.done["count that takes long"] += 1
        else:
            assert (answer.status, answer.body) == (200, b"%d" % wanted), (answer, wanted)
            self.done["count"] += 1
        total = 0
        token: list[str] = []
        while True:
            answer = self.get(
                "Water/$count", [*asked, *token], caller, ("x-tablestone-partial", "true")
            )
            assert answer.status == 200, answer
            total += int(answer.body)
            token, before = token_of(answer), token
            if not token:
                break
            assert token != before, "the count does not go on"
            texts = [parse_token(unquote(each.partition("=")[2])) for each in token]
            assert caller.may_read((texts[0], texts[1])), "the token leaks a key"
            self.done["part of a count"] += 1
        assert total == wanted, (total, wanted)

    def _point(self, node: Filter | None, asked: list[str], caller: Caller) -> None:
        key = self.random.choice(PARTITIONS), self.random.choice(TEXTS)
        answer = self.get(entity_path("Water", key), asked, caller)
        is_found = key in self.wanted(node, caller, reverse=False)
        assert answer.status == (200 if is_found else 404), (key, answer)
        self.done["point read"] += 1


def keys_of(answer: Response) -> list[Key]:
    assert answer.status == 200, answer
    return [(each["PartitionKey"], each["RowKey"]) for each in json.loads(answer.body)["value"]]


def token_of(answer: Response) -> list[str]:
    """The parameters that continue; empty after the last page."""
    headers = [f"x-ms-continuation-{name.lower()}" for name in NAMES]
    if headers[0] not in answer.headers:
        return []
    return [f"{n}={quote(answer.headers[h], safe='')}" for n, h in zip(NAMES, headers, strict=True)]


def tokens(key: Key, *, reverse: bool) -> list[str]:
    texts = (format_token(text, reverse=reverse) for text in key)
    return [f"{n}={quote(text, safe='')}" for n, text in zip(NAMES, texts, strict=True)]


def run(engine: str, random: Random, queries: int) -> Counter[str]:
    """Ask a table so many queries; how many answers of which kind were compared."""
    with small_limits(random), patch("wire.service_under_test.URL", engine):
        twin = Twin(random)
        try:
            for _ in range(queries):
                twin.step()
        finally:
            twin.close()
    return twin.done
