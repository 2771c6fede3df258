"""The writes of a table in insight: their kinds, their requests, the largest ones, and lost updates."""

from tablestone.insight.report import Activity
from tablestone.model.entity import Entity
from tablestone.model.operations import (
    DeleteEntity,
    EntityGroupTransaction,
    EntityWritten,
    InsertEntity,
    InsertOrMergeEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    TransactionCommitted,
    UpdateEntity,
)
from tablestone.telemetry.request_record import RequestRecord
from unit.insight.test_insight_counts import INSERT, KEY, counted, record_of


def put(properties: dict[str, str], size: int = 10) -> RequestRecord:
    """An insert of an entity with such members, in a body of this size."""
    made = record_of(InsertEntity("Readings", Entity(KEY, properties)), EntityWritten(5))
    made.bytes_in = size
    return made


def test_writes_by_kind_and_their_requests() -> None:
    """The answer to an upsert does not say whether the entity existed, so upserts are a kind of their own."""
    entity = Entity(KEY, {})
    writes = (
        *(InsertOrReplaceEntity("Readings", entity), InsertOrMergeEntity("Readings", entity)),
        *(UpdateEntity("Readings", entity, 5), MergeEntity("Readings", entity, 5)),
        *(INSERT, DeleteEntity("Readings", KEY, 5)),
    )
    all_at_once = EntityGroupTransaction("Readings", "p", writes)
    found = counted(
        *(record_of(each, EntityWritten(5)) for each in writes),
        record_of(all_at_once, TransactionCommitted([EntityWritten(5)] * 6)),
    )
    (table,) = found.tables.values()
    assert table.writes == {"upsert": 4, "update": 4, "insert": 2, "delete": 2}
    assert table.write_requests == 7


def test_the_largest_writes_of_a_table() -> None:
    """Only a large body is measured: a UTF-16 unit counts two bytes, and a member includes its name."""
    names = {f"a{number}": f'"a{number}":1' for number in range(250)}
    large = {"Text": f'"Text":"{"x" * 300_000}"'}
    (table,) = counted(put(names)).tables.values()
    assert (table.properties_max, table.entity_bytes_max) == (250, 0)
    (table,) = counted(put(large, 300_100), put({})).tables.values()
    fixed = 4 + 2 * (len(KEY.partition_key) + len(KEY.row_key)) + 8 + 2 * len("Text") + 4
    assert (table.properties_max, table.entity_bytes_max) == (1, fixed + 600_000)


def test_an_update_that_came_too_late_is_no_insert_of_an_entity_that_is_there() -> None:
    update = UpdateEntity("Readings", Entity(KEY, {}), 5)
    found = counted(
        record_of(INSERT, EntityWritten(5)),
        record_of(INSERT, None, "EntityAlreadyExists"),
        record_of(update, None, "UpdateConditionNotSatisfied"),
        record_of(DeleteEntity("Readings", KEY, 5), None, "UpdateConditionNotSatisfied"),
    )
    (table,) = found.tables.values()
    assert (Activity(*table.whole().numbers()).conflicts, table.lost_updates) == (3, 2)
