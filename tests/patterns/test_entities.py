"""Dataclasses as entities: what is stored comes back, with the type that the field says."""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, Optional
from uuid import UUID

import pytest
from azure.data.tables import EdmType, EntityProperty
from hypothesis import given
from hypothesis import strategies as st

from patterns.conftest import Half
from table_patterns import FieldError, Int64, from_entity, to_entity


class State(Enum):
    OPEN = 1
    PAID = "paid"


class Size(IntEnum):
    LARGE = 5


class Sizes(Flag):
    SMALL = 1
    LARGE = 2


@dataclass
class Order:
    partition_key: str
    row_key: str
    state: State = State.OPEN
    count: int = 0
    cents: Int64 = 0
    price: Decimal = Decimal(0)
    weight: float = 0.0
    is_gift: bool = False
    seal: bytes = b""
    number: UUID = UUID(int=0)  # noqa: RUF009 - a UUID does not change
    placed: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    sizes: Sizes = Sizes.SMALL
    note: str | None = None
    paid_at: Optional[datetime] = None  # noqa: UP045 - a form of annotation that people write


TIMES = st.datetimes(
    min_value=datetime(1601, 1, 2),  # noqa: DTZ001 - the earliest that the service knows
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(UTC) | st.just(timezone(timedelta(hours=5))),
)
ORDERS = st.builds(
    Order,
    partition_key=st.just("p"),
    row_key=st.just("1"),
    state=st.sampled_from(State),
    count=st.integers(-(2**31), 2**31 - 1),
    cents=st.integers(-(2**63), 2**63 - 1),
    price=st.decimals(allow_nan=False),
    weight=st.floats(allow_nan=False),
    is_gift=st.booleans(),
    seal=st.binary(max_size=20),
    number=st.uuids(),
    placed=TIMES,
    sizes=st.sampled_from(list(Sizes)),
    note=st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    paid_at=st.none() | TIMES,
)


@given(order=ORDERS)
def test_an_instance_comes_back(order: Order) -> None:
    assert from_entity(Order, to_entity(order)) == order


def test_an_instance_comes_back_from_a_table(half: Half) -> None:
    table = half.table()
    order = Order(
        *("p", "1", State.PAID, 5, 2**40, Decimal("12.50"), 2.0, True, b"\0", UUID(int=7)),
        *(datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC), Sizes.LARGE, "ü"),
    )
    table.create_entity(to_entity(order))
    stored = table.get_entity("p", "1")
    assert from_entity(Order, stored) == order
    assert (stored["price"], stored["state"]) == ("12.50", "PAID")
    assert stored["cents"] == EntityProperty(2**40, EdmType.INT64)
    assert "paid_at" not in stored
    assert type(from_entity(Order, stored).placed) is datetime


def test_properties_without_a_field_are_left_out_and_fields_have_defaults() -> None:
    entity = {"PartitionKey": "p", "RowKey": "1", "Other": 5}
    assert from_entity(Order, entity) == Order("p", "1")


@dataclass
class Strict:
    partition_key: str
    row_key: str
    count: int
    note: str | None
    made: list[int] = field(default_factory=list, init=False)


def test_an_optional_field_without_a_default_is_none() -> None:
    assert from_entity(Strict, {"PartitionKey": "p", "RowKey": "1", "count": 5}) == Strict(
        "p", "1", 5, None
    )
    with pytest.raises(FieldError, match="count: the entity has no such property"):
        from_entity(Strict, {"PartitionKey": "p", "RowKey": "1"})


STORED_WRONG = [
    # the field, its value, words of the error
    ("count", 2**31, "2147483648 needs more than 32 bits"),
    ("count", True, "True is no int"),
    ("count", "5", "'5' is no int"),
    ("cents", 2**63, "needs more than 64 bits"),
    ("weight", "1", "'1' is no float"),
    ("weight", True, "True is no float"),
    ("price", 1.5, "1.5 is no Decimal"),
    ("state", "OPEN", "'OPEN' is no State"),
    ("placed", datetime(2026, 1, 1), "has no zone"),  # noqa: DTZ001 - the case
    ("placed", None, "None is no datetime"),
    ("placed", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "out of range"),
    ("note", 5, "5 is no str"),
    ("note", State.PAID, "would not come back as str"),
    ("count", Size.LARGE, "would not come back as int"),
    ("cents", Size.LARGE, "would not come back as int"),
    ("sizes", Sizes.LARGE | Sizes.SMALL, "would not come back as Sizes"),
    ("sizes", Sizes(0), "would not come back as Sizes"),
]


@pytest.mark.parametrize(("name", "value", "words"), STORED_WRONG)
def test_a_value_of_another_type_is_not_stored(name: str, value: Any, words: str) -> None:
    order = dataclasses.replace(Order("p", "1"), **{name: value})
    with pytest.raises(FieldError, match=f"^{name}: .*{words}"):
        to_entity(order)


READ_WRONG = [
    # the property, its value, words of the error
    ("count", "5", "'5' is no int"),
    ("count", True, "True is no int"),
    ("count", EntityProperty(5, EdmType.INT64), ".* is no int"),
    ("cents", "5", "'5' is no int"),
    ("price", "dear", "'dear' is no Decimal"),
    ("price", 5, "5 is no Decimal"),
    ("state", "LOST", "'LOST' is no State"),
    ("placed", datetime(2026, 1, 1), ".* is no datetime"),  # noqa: DTZ001 - the case
    ("placed", "2026-01-01", "'2026-01-01' is no datetime"),
    ("is_gift", 1, "1 is no bool"),
    ("number", "5", "'5' is no UUID"),
]


@pytest.mark.parametrize(("name", "value", "words"), READ_WRONG)
def test_a_property_of_another_type_is_told(name: str, value: Any, words: str) -> None:
    with pytest.raises(FieldError, match=f"^{name}: {words}"):
        from_entity(Order, {"PartitionKey": "p", "RowKey": "1", name: value})


@dataclass
class Keyless:
    name: str


@dataclass
class Nested:
    partition_key: str
    row_key: str
    parts: list[str]


@dataclass
class Stamped:
    partition_key: str
    row_key: str
    Timestamp: datetime


@dataclass
class Numbered:
    partition_key: str
    row_key: int


@dataclass
class Unkeyed:
    partition_key: str | None
    row_key: str


NO_ENTITIES = [
    # a value, words of the error
    ({}, "no dataclass"),
    (Keyless("a"), "Keyless has no field partition_key and no field row_key"),
    (Nested("p", "1", []), "parts: no EDM type is known for list"),
    (Stamped("p", "1", datetime(2026, 1, 1, tzinfo=UTC)), "Timestamp: the service has this"),
    (Numbered("p", 1), "row_key: a key is a str"),
    (Unkeyed(None, "1"), "partition_key: a key is a str"),
]


@pytest.mark.parametrize(("value", "words"), NO_ENTITIES)
def test_what_is_no_entity_is_refused(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        to_entity(value)


@dataclass
class Named:
    partition_key: str
    row_key: str
    note: str | None = "new"


def test_none_is_refused_where_it_would_come_back_as_a_default() -> None:
    with pytest.raises(FieldError, match="note: None is not stored"):
        to_entity(Named("p", "1", None))
