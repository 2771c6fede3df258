"""Round trips: every legal entity through the whole server, and every text form and back.

An entity is sent as JSON, stored, and read at each metadata level. `payloads` derives the expected answer from the
typed values in a slow way; the server cuts its answers from stored text.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stress.property.door import Door
from stress.property.model import Key, Model, Properties, Value, Write, ordinal
from stress.property.payloads import (
    LEVELS,
    Request,
    entity_path,
    expected_members,
    parse_members,
    write_request,
)
from tablestone.model.edm import DATE_TIME_MAX, format_date_time, parse_date_time
from tablestone.model.etag import format_etag, parse_etag
from tablestone.model.keys import decode_key, encode_key

# A lone surrogate is not text; keys have no control characters either (wire 1.3).
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
key_texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\#?"), max_size=20
)
NO_XML_NAME = set("\u00aa\u00b5\u00ba\u2054")
"""Letters in Python and in the service's grammar, but not in names of XML: such a property is refused (wire 9)."""
names = st.from_regex(r"[^\W\d]\w{0,12}", fullmatch=True).filter(
    lambda name: (
        name.isidentifier()
        and name not in ("PartitionKey", "RowKey", "Timestamp")
        and not NO_XML_NAME & set(name)
    )
)
moments = st.builds(
    lambda moment, ticks: f"{moment.isoformat(timespec='seconds')}.{ticks:07}Z",
    st.datetimes().filter(lambda moment: moment.year >= 1601),
    st.integers(0, 9_999_999),
)
values: st.SearchStrategy[Value] = st.one_of(
    st.tuples(st.just("Edm.String"), texts),
    st.tuples(st.just("Edm.Boolean"), st.booleans()),
    st.tuples(st.just("Edm.Int32"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("Edm.Int64"), st.integers(-(2**63), 2**63 - 1)),
    # -0.0 becomes 0.0 (wire 5.3).
    st.tuples(st.just("Edm.Double"), st.floats().map(lambda number: number or 0.0)),
    st.tuples(st.just("Edm.DateTime"), moments),
    st.tuples(st.just("Edm.Guid"), st.uuids().map(str)),
    st.tuples(st.just("Edm.Binary"), st.binary(max_size=20)),
)
properties = st.dictionaries(names, values, max_size=6)
keys = st.tuples(key_texts, key_texts)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    door = Door("memory")
    door.send(Request("POST", "/Tables", {}, b'{"TableName":"Water"}')).require(201)
    yield door
    assert door.close() == []


def send(door: Door, model: Model, write: Write) -> None:
    answer = door.send(write_request("Water", write))
    etag = answer.require(201, 204).headers.get("etag")
    model.apply("Water", [write], [etag])


def require_equal(door: Door, model: Model, key: Key) -> None:
    """Compare at every level, alone and in a list."""
    stored = model.get("Water", key)
    for level in LEVELS:
        accept = {"Accept": f"application/json;odata={level}"}
        expected = expected_members("Water", key, stored, level)
        alone = door.send(Request("GET", f"/{entity_path('Water', key)}", accept)).require(200)
        members = parse_members(alone.body)
        assert [each for each in members if each[0] != "odata.metadata"] == expected
        listed = door.send(Request("GET", "/Water", accept)).require(200)
        assert dict(parse_members(listed.body))["value"] == [expected]


@given(key=keys, inserted=properties, merged=properties, replaced=properties)
def test_every_legal_entity_survives(
    door: Door, key: Key, inserted: Properties, merged: Properties, replaced: Properties
) -> None:
    model = Model()
    model.create_table("Water")
    send(door, model, Write("insert", key, inserted))
    require_equal(door, model, key)
    send(door, model, Write("insert_or_merge", key, merged))
    require_equal(door, model, key)
    send(door, model, Write("insert_or_replace", key, replaced))
    require_equal(door, model, key)
    send(door, model, Write("delete", key, {}, "*"))


@given(left=st.text(), right=st.text())
def test_encoded_keys_sort_as_utf16(left: str, right: str) -> None:
    """Wire 6.10."""
    encoded_left, encoded_right = encode_key(left), encode_key(right)
    units_left, units_right = ordinal(left), ordinal(right)
    assert (encoded_left < encoded_right) == (units_left < units_right)
    assert decode_key(encoded_left) == left


@given(st.integers(2, DATE_TIME_MAX))
def test_a_version_is_its_etag_and_its_timestamp(version: int) -> None:
    """Wire 4: the tag as sent, and with plain colons."""
    assert parse_etag(format_etag(version)) == version
    assert parse_etag(format_etag(version).replace("%3A", ":")) == version
    assert parse_date_time(format_date_time(version)) == version
