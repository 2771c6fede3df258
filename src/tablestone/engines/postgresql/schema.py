"""The tables in PostgreSQL and the function that commits: made once, by the first server.

**Keys.** An entry of a B-tree has at most 2,704 bytes, and keys are longer. So a key is one text of bytes in which the
partition ends with a mark (`stored_key`), and it is cut: `head` is its first part, `tail` the rest, empty for nearly
every key. (head, tail) are in the order of the keys; the primary key is head and the digest of the tail.

**A commit** is one call of `commit_rows`, a transaction of its own. The function is VOLATILE, and the session is READ
COMMITTED: so each statement in it sees what was committed before that statement began. It locks first and reads then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

FORMAT: Final = 1
"""Of the tables and the function. A server refuses any other."""
RULES_FORMAT: Final = 2
"""The same, with rules of accounts, which servers that know only earlier formats would ignore."""
STEPS: Final[Mapping[int, str]] = {}
"""For each older format, the statements that make the next one of it."""
GRANTS: Final = """
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.rows, {schema}.entries, {schema}.floors, {schema}.sessions TO {role};
GRANT SELECT ON {schema}.storage TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};
"""
"""What a server needs; it owns nothing."""
ROLE: Final = "SELECT count(*) FROM pg_roles WHERE rolname = $1::text"
GRANTED: Final = """
SELECT has_schema_privilege($1::text, $2::text, 'USAGE') AND has_table_privilege($1::text, 'rows', 'DELETE'),
    has_database_privilege($1::text, current_database(), 'CONNECT')
"""
HEAD_BYTES: Final = 2600
"""With a digest and the headers, 2,656 bytes of an entry of the primary key."""
DEFAULT_SCHEMA: Final = "tablestone"
_END: Final = b"\0\0"
"""After each part of a key but the last. A zero byte of such a part is followed by a one."""


class StoredKey(NamedTuple):
    head: bytes
    digest: bytes
    tail: bytes


def stored_key(*parts: bytes) -> StoredKey:
    """A key of several parts: stored keys order as the tuples of their parts do."""
    leading = b"".join(part.replace(b"\0", b"\0\1") + _END for part in parts[:-1])
    key = leading + parts[-1]
    head, tail = key[:HEAD_BYTES], key[HEAD_BYTES:]
    return StoredKey(head, hashlib.sha256(tail).digest() if tail else b"", tail)


def parts_of(head: bytes, tail: bytes, count: int) -> list[bytes]:
    """The parts of a stored key that has so many."""
    rest, parts = head + tail, list[bytes]()
    for _ in range(count - 1):
        part, _end, rest = rest.partition(_END)
        parts.append(part.replace(b"\0\1", b"\0"))
    return [*parts, rest]


STATEMENTS: Final = """
-- While a load has not ended, `source` is what is loaded, up to the key of `partition` and `row`.
CREATE TABLE storage (
    format integer NOT NULL,
    id bytea NOT NULL,
    source bytea,
    partition bytea,
    row bytea
);

CREATE TABLE rows (
    head bytea NOT NULL,
    digest bytea NOT NULL,
    tail bytea NOT NULL,
    version bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (head, digest)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rows ALTER COLUMN value SET STORAGE EXTERNAL;

CREATE TABLE entries (
    head bytea NOT NULL,
    digest bytea NOT NULL,
    tail bytea NOT NULL,
    PRIMARY KEY (head, digest)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- The greatest version that a row of a partition had when it was deleted: what is made again gets a greater one.
CREATE TABLE floors (
    partition bigint PRIMARY KEY,
    version bigint NOT NULL
);

-- A connection's last commit. Who asks what became of it ends the session: then the connection commits no more.
CREATE TABLE sessions (
    id uuid PRIMARY KEY,
    last bigint NOT NULL DEFAULT 0,
    ended boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);

CREATE FUNCTION commit_rows(
    session uuid, number bigint,
    locks bigint[], shared_locks bigint[],
    relied_heads bytea[], relied_digests bytea[], relied_versions bigint[],
    partition_lock bigint,
    heads bytea[], digests bytea[], tails bytea[],
    kinds "char"[], expected bigint[], versions bigint[], row_values bytea[],
    old_entry_heads bytea[], old_entry_digests bytea[],
    entry_heads bytea[], entry_digests bytea[], entry_tails bytea[],
    OUT outcome "char", OUT at_index integer, OUT present bigint[], OUT waited double precision
) LANGUAGE plpgsql VOLATILE AS $body$
#variable_conflict use_column
DECLARE
    n bigint;
    floor_version bigint;
    deleted bigint;
    began timestamptz := clock_timestamp();
BEGIN
    -- In one order, whatever the kind of lock, so that no two commits wait for each other.
    FOREACH n IN ARRAY locks LOOP
        IF n = ANY (shared_locks) THEN
            PERFORM pg_advisory_xact_lock_shared(n);
        ELSE
            PERFORM pg_advisory_xact_lock(n);
        END IF;
    END LOOP;
    waited := extract(epoch FROM clock_timestamp() - began);

    IF cardinality(relied_heads) > 0 THEN
        PERFORM FROM unnest(relied_heads, relied_digests, relied_versions) AS w (head, digest, version)
            LEFT JOIN rows AS r ON r.head = w.head AND r.digest = w.digest
            WHERE coalesce(r.version, 0) <> w.version;
        IF FOUND THEN
            outcome := 'o';
            RETURN;
        END IF;
    END IF;

    SELECT array_agg(coalesce(r.version, 0) ORDER BY w.n) INTO present
        FROM unnest(heads, digests) WITH ORDINALITY AS w (head, digest, n)
        LEFT JOIN rows AS r ON r.head = w.head AND r.digest = w.digest;
    FOR i IN 1 .. cardinality(heads) LOOP
        n := present[i];
        IF NOT (expected[i] = n OR expected[i] = -1 OR (expected[i] = -2 AND n <> 0)) THEN
            outcome := 'c';
            at_index := i - 1;
            RETURN;
        END IF;
    END LOOP;

    IF 'p' = ANY (kinds) THEN
        -- A server whose clock is behind may not give a version again, also not to a row that was deleted.
        SELECT version INTO floor_version FROM floors WHERE partition = partition_lock;
        floor_version := coalesce(floor_version, 0);
        outcome := 'a';
        FOR i IN 1 .. cardinality(heads) LOOP
            IF kinds[i] = 'p' THEN
                IF present[i] = 0 THEN
                    present[i] := floor_version;
                END IF;
                IF versions[i] <= present[i] THEN
                    outcome := 'v';
                END IF;
            END IF;
        END LOOP;
        IF outcome = 'v' THEN
            RETURN;
        END IF;
    END IF;

    UPDATE sessions SET last = number, at = now() WHERE id = session AND NOT ended;
    IF NOT FOUND THEN
        outcome := 's';
        RETURN;
    END IF;

    IF 'p' = ANY (kinds) THEN
        INSERT INTO rows AS r (head, digest, tail, version, value)
            SELECT w.head, w.digest, w.tail, w.version, w.value
            FROM unnest(heads, digests, tails, kinds, versions, row_values)
                AS w (head, digest, tail, kind, version, value)
            WHERE w.kind = 'p'
            ON CONFLICT (head, digest) DO UPDATE SET version = excluded.version, value = excluded.value;
    END IF;
    IF 'd' = ANY (kinds) THEN
        WITH gone AS (
            DELETE FROM rows AS r USING unnest(heads, digests, kinds) AS w (head, digest, kind)
            WHERE w.kind = 'd' AND r.head = w.head AND r.digest = w.digest RETURNING r.version
        ) SELECT max(version) INTO deleted FROM gone;
        IF deleted IS NOT NULL THEN
            INSERT INTO floors AS f (partition, version) VALUES (partition_lock, deleted)
                ON CONFLICT (partition) DO UPDATE SET version = greatest(f.version, excluded.version);
        END IF;
    END IF;
    IF cardinality(old_entry_heads) > 0 THEN
        DELETE FROM entries AS e USING unnest(old_entry_heads, old_entry_digests) AS w (head, digest)
            WHERE e.head = w.head AND e.digest = w.digest;
    END IF;
    IF cardinality(entry_heads) > 0 THEN
        INSERT INTO entries (head, digest, tail)
            SELECT * FROM unnest(entry_heads, entry_digests, entry_tails) ON CONFLICT DO NOTHING;
    END IF;
    outcome := 'a';
END
$body$;
"""
"""What the schema has. Names need no schema: it is the only one in the search path."""
