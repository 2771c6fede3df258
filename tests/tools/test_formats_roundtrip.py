"""Every value of every type goes through every format of files and comes back as it was."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tablestone.model import edm
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.keys import EntityKey
from tablestone.tools import odata
from tablestone.tools.errors import TransferFailed
from tablestone.tools.exporting import Target, convert
from tablestone.tools.formats.compressed import CompressedAppender, ReadPosition
from tablestone.tools.formats.json_lines import write_line
from tablestone.tools.formats.reading_file import read_rows
from tablestone.tools.formats.rows import Reading, Row
from tablestone.tools.odata import TypedEntity
from tablestone.tools.queries import Columns, Mixed

# Text without lone surrogates, which UTF-8 cannot encode. It may contain NUL and line feeds.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        " ",
        '"',
        ",",
        "\n",
        "\r\n",
        "\r",
        "NaN",
        "null",
        "=1+1",
        "'",
        "😀",
        "\x00",
        "\ufeff",
        "1,2",
        "true",
    ]
)
KEYS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\#?"), max_size=8
) | st.sampled_from(["", "it's", "a b", "%41", "+", "é", "😀", " x "])
NAMES = st.sampled_from(
    [
        *("a", "B", "temp", "_x", "été", "when"),
        # Properties with nearly the names that the service or a tool uses itself.
        *("etag", "ETag", "Etag", "timestamp", "TIMESTAMP", "partitionKey", "rowkey", "odata"),
    ]
)
VALUES = st.one_of(
    TEXT.map(lambda text: EdmValue(EdmType.STRING, text)),
    st.integers(edm.INT32_MIN, edm.INT32_MAX).map(lambda number: EdmValue(EdmType.INT32, number)),
    st.integers(edm.INT64_MIN, edm.INT64_MAX).map(lambda number: EdmValue(EdmType.INT64, number)),
    st.floats(allow_nan=True, allow_infinity=True).map(
        lambda x: EdmValue(EdmType.DOUBLE, x or 0.0)
    ),
    st.booleans().map(lambda value: EdmValue(EdmType.BOOLEAN, value)),
    st.integers(edm.DATE_TIME_MIN, edm.DATE_TIME_MAX).map(lambda x: EdmValue(EdmType.DATE_TIME, x)),
    st.uuids().map(lambda value: EdmValue(EdmType.GUID, str(value))),
    st.binary(max_size=12).map(lambda value: EdmValue(EdmType.BINARY, value)),
)
ENTITIES = st.lists(
    st.builds(
        lambda partition, row, properties: TypedEntity(EntityKey(partition, row), properties),
        KEYS,
        KEYS,
        st.dictionaries(NAMES, VALUES, max_size=4),
    ),
    min_size=1,
    max_size=5,
)


def as_served(entity: TypedEntity) -> dict[str, Any]:
    """The entity in the JSON that the service sends."""
    raw = orjson.loads(odata.write_body(entity))
    system = {"odata.etag": 'W/"x\'"', "Timestamp": "2026-01-01T00:00:00.1234567Z"}
    return {**system, **raw}


def through_lines(entities: list[dict[str, Any]], path: Path) -> None:
    compression = path.suffix if path.suffix in (".gz", ".zst") else ""
    with path.open("wb") as file:
        appender = CompressedAppender(file, compression)
        for raw in entities:
            appender.write(write_line(raw))
            appender.finish()


def through_columns(kind: str) -> Callable[[list[dict[str, Any]], Path], None]:
    def write(entities: list[dict[str, Any]], path: Path) -> None:
        spool = path.with_name("spool.jsonl.zst")
        through_lines(entities, spool)
        columns = Columns()
        for raw in entities:
            columns.add(raw)
        kept = Columns(orjson.loads(orjson.dumps(columns.state())))
        with path.open("wb") as file:
            convert(spool, file, Target(str(path), kind, Mixed.COLUMNS, with_timestamp=True), kept)

    return write


FORMATS = {
    "x.jsonl": through_lines,
    "x.jsonl.gz": through_lines,
    "x.jsonl.zst": through_lines,
    "x.csv": through_columns("csv"),
    "x.csv.gz": through_columns("csv"),
    "x.csv.zst": through_columns("csv"),
    "x.parquet": through_columns("parquet"),
}


def comparable(entity: TypedEntity) -> tuple[EntityKey, dict[str, object]]:
    """NaN equals NaN here. -0.0 does not occur, because the service has none."""
    return entity.key, {
        name: (kind, "NaN" if isinstance(value, float) and math.isnan(value) else value)
        for name, (kind, value) in entity.properties.items()
    }


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entities=ENTITIES)
def test_all_types_come_back(tmp_path: Path, name: str, entities: list[TypedEntity]) -> None:
    path = tmp_path / name
    FORMATS[name]([as_served(entity) for entity in entities], path)
    found = list(read_rows(str(path), Reading(), None, ReadPosition()))
    assert all(isinstance(row, Row) for row in found), found
    read = [odata.read_entity(orjson.loads(row.body)) for row in found if isinstance(row, Row)]
    assert [comparable(each) for each in read] == [comparable(each) for each in entities]


EDGES = [
    EdmValue(EdmType.INT64, 2**53 + 1),
    EdmValue(EdmType.INT64, edm.INT64_MIN),
    EdmValue(EdmType.DATE_TIME, edm.DATE_TIME_MIN),
    EdmValue(EdmType.DATE_TIME, edm.DATE_TIME_MAX),
    EdmValue(EdmType.DATE_TIME, edm.parse_date_time("2013-01-01T00:00:00.1234567Z")),
    EdmValue(EdmType.DOUBLE, math.nan),
    EdmValue(EdmType.DOUBLE, math.inf),
    EdmValue(EdmType.DOUBLE, 5e-324),
    EdmValue(EdmType.STRING, ""),
    EdmValue(EdmType.STRING, "x" * 32_768),
    EdmValue(EdmType.BINARY, b""),
    EdmValue(EdmType.BINARY, bytes(range(256)) * 256),
    EdmValue(EdmType.GEOGRAPHY_POINT, edm.geography_point(-73.78, 40.64)),
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "value", EDGES, ids=lambda value: f"{value.type.value} {str(value.value)[:24]}"
)
def test_values_at_the_edges(tmp_path: Path, name: str, value: EdmValue) -> None:
    entities = [
        TypedEntity(EntityKey("p", "1"), {"a": value}),
        TypedEntity(EntityKey("p", "2"), {}),
    ]
    FORMATS[name]([as_served(entity) for entity in entities], tmp_path / name)
    rows = list(read_rows(str(tmp_path / name), Reading(), None, ReadPosition()))
    read = [odata.read_entity(orjson.loads(row.body)) for row in rows if isinstance(row, Row)]
    assert [comparable(each) for each in read] == [comparable(each) for each in entities]


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except ValueError:
        return True
    return False


TYPED_TEXTS = st.sampled_from(["Edm.Int64", "Edm.Guid", "Edm.DateTime"]).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.sampled_from(["-0", "007", "2015-02-29T00:00:00Z", "2016-02-29T00:00:00Z", "24:00"])
        | st.from_regex(odata._USUAL_TEXTS[kind].__self__, fullmatch=True),  # type: ignore[attr-defined]
    )
)


@settings(max_examples=300)
@given(
    typed=TYPED_TEXTS,
    plain=st.one_of(TEXT, st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats()),
    key=KEYS | st.sampled_from(["a/b", "a\x7f", "x" * 1025]),
)
def test_a_quick_look_refuses_the_same_as_a_whole_reading(
    typed: tuple[str, str], plain: object, key: str
) -> None:
    raw = {
        "PartitionKey": key,
        "RowKey": "1",
        "typed": typed[1],
        "typed@odata.type": typed[0],
        "plain": plain,
    }
    assert is_refused(lambda: odata.require_valid(raw, 100)) == is_refused(
        lambda: odata.read_entity(raw)
    )


def test_a_property_of_two_types_is_an_error_or_two_columns() -> None:
    columns = Columns()
    columns.add({"PartitionKey": "p", "RowKey": "1", "a": 1})
    columns.add({"PartitionKey": "p", "RowKey": "2", "a": "x"})
    columns.add({"PartitionKey": "p", "RowKey": "3", "a": "y"})
    with pytest.raises(TransferFailed) as failed:
        columns.pairs(Mixed.FAIL)
    assert str(failed.value) == (
        "a has values of several types: 1 of Int32 and 2 of String. --mixed columns gives each type a column "
        "of its own."
    )
    assert columns.pairs(Mixed.COLUMNS) == [("a", EdmType.INT32), ("a", EdmType.STRING)]
