"""Writers of other things than entities: tables that come and go, and stored access policies."""

import json
import re
from random import Random
from typing import cast

from stress.crash.journal import NamedJournal, Rows, State
from stress.crash.writers import QUIET, Connection, Life, UntilKilled, part_of_batch

TABLES_COMING_AND_GOING = [f"Fleeting{number}" for number in range(4)]
ROWS_OF_A_TABLE = 80
TABLES_WITH_POLICIES = [f"Policed{number}" for number in range(3)]
POLICIES = ("first", "second", "third")
PERMISSIONS = ("r", "ra", "a", "ud", "raud")
POLICY = re.compile(r"<Id>(\w+)</Id>.*?<Permission>(\w+)</Permission>")


class TableWriter(UntilKilled):
    """Creates tables, inserts entities, deletes the tables, and creates them again."""

    def __init__(self, life: Life, journal: NamedJournal, randomness: Random) -> None:
        super().__init__(life, randomness)
        self.journal = journal

    def read(self) -> dict[str, State]:
        return read_tables(self.connection)

    def send_next(self) -> None:
        table = self.random.choice(TABLES_COMING_AND_GOING)
        rows = cast("Rows | None", self.journal.acknowledged.get(table))
        if rows is None:
            self.journal.begin(table, frozenset())
            body = json.dumps({"TableName": table}).encode()
            self.connection.send("POST", "/Tables", body, expected=204, headers=QUIET)
        elif len(rows) >= ROWS_OF_A_TABLE:
            self.journal.begin(table, None)
            self.connection.send("DELETE", f"/Tables('{table}')", expected=204)
        else:
            # Mostly so many that the sweeper needs several steps to remove them.
            number = self.random.choice((1, 1, ROWS_OF_A_TABLE // 2, ROWS_OF_A_TABLE))
            added = [f"{self.random.getrandbits(60):x}" for _ in range(number)]
            self.journal.begin(table, rows | frozenset(added))
            parts = [
                part_of_batch("POST", f"{self.connection.base}/{table}", entity_body(row), QUIET)
                for row in added
            ]
            self.connection.send_batch(parts)
        self.journal.acknowledge()


class PolicyWriter(UntilKilled):
    """Replaces the stored access policies of a few tables."""

    def __init__(self, life: Life, journal: NamedJournal, randomness: Random) -> None:
        super().__init__(life, randomness)
        self.journal = journal

    def read(self) -> dict[str, State]:
        return read_policies(self.connection)

    def send_next(self) -> None:
        table = self.random.choice(TABLES_WITH_POLICIES)
        chosen = self.random.sample(POLICIES, self.random.randint(0, len(POLICIES)))
        policies = frozenset((name, self.random.choice(PERMISSIONS)) for name in chosen)
        self.journal.begin(table, policies or None)
        body = "".join(
            f"<SignedIdentifier><Id>{name}</Id><AccessPolicy><Expiry>9000-01-01</Expiry>"
            f"<Permission>{permission}</Permission></AccessPolicy></SignedIdentifier>"
            for name, permission in sorted(policies)
        )
        self.connection.send(
            "PUT",
            f"/{table}?comp=acl",
            f"<SignedIdentifiers>{body}</SignedIdentifiers>".encode(),
            expected=204,
            content_type="application/xml",
        )
        self.journal.acknowledge()


def entity_body(row_key: str) -> bytes:
    return json.dumps({"PartitionKey": "p", "RowKey": row_key}).encode()


def read_tables(connection: Connection) -> dict[str, State]:
    """The tables that come and go, each with the RowKeys of its entities."""
    names = [table["TableName"] for table in connection.pages("/Tables")]
    return {
        name: frozenset(entity["RowKey"] for entity in connection.pages(f"/{name}()"))
        for name in names
        if name in TABLES_COMING_AND_GOING
    }


def read_policies(connection: Connection) -> dict[str, State]:
    """The policies, with their permissions, of each table that has some."""
    found: dict[str, State] = {}
    for table in TABLES_WITH_POLICIES:
        _, body = connection.send("GET", f"/{table}?comp=acl", expected=200)
        if policies := frozenset(POLICY.findall(body.decode())):
            found[table] = policies
    return found
