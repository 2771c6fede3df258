"""Files of other tools, broken files, and keys made from columns."""

import gzip
import io
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tables import load
from tablestone.model.edm import EdmType
from tablestone.tools.errors import TransferFailed, TransferRefused
from tablestone.tools.formats import typed_csv
from tablestone.tools.formats.compressed import CompressedAppender, ReadPosition
from tablestone.tools.formats.reading_file import read_rows
from tablestone.tools.formats.rows import Reading, Rejected, Row, parse_types
from wire.case_tables import rows as rows_of

Found = list[dict[str, Any] | str]


def read(path: Path, **reading: Any) -> Found:
    """For every row, the JSON that is stored, or `number: reason`."""
    found: Found = []
    for row in read_rows(str(path), Reading(**reading), None, ReadPosition()):
        if isinstance(row, Rejected):
            found.append(f"{row.number}: {row.reason}")
        else:
            assert isinstance(row, Row)
            found.append(orjson.loads(row.body))
    return found


def reading_of(case: dict[str, Any]) -> dict[str, Any]:
    """The import options in a row of the table."""
    named: dict[str, Any] = {
        name: case[name]
        for name in ("partition_key", "row_key", "encoding", "delimiter", "drop_keys")
        if name in case
    }
    if "types" in case:
        named["types"] = parse_types((case["types"],))
    return {
        **named,
        "nulls": frozenset(case.get("nulls", ())),
        "drop": frozenset(case.get("drop", ())),
    }


@pytest.mark.parametrize("case", rows_of("files.toml"), ids=lambda case: case["name"])
def test_a_file(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / case["file"]
    content = case["content"].encode(case.get("written_as", "utf-8"))
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    if "schema" in case:
        (tmp_path / "x.schema.csv").write_text(case["schema"])
    found = read(path, **reading_of(case))
    assert found == [orjson.loads(row) if row.startswith("{") else row for row in case["rows"]]


@pytest.mark.parametrize("case", load("files.toml")["refused"], ids=lambda case: case["name"])
def test_a_file_that_is_refused(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / case["file"]
    path.write_bytes(case["content"].encode(case.get("written_as", "utf-8")))
    if "schema" in case:
        (tmp_path / "x.schema.csv").write_text(case["schema"])
    with pytest.raises((TransferRefused, TransferFailed)) as refused:
        read(path, **reading_of(case))
    assert str(refused.value).replace(f"{tmp_path}/", "") == case["sentence"]


def test_a_parquet_file_of_another_tool(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "station": pa.array(["JFK", "EWR"]).dictionary_encode(),
        "hour": pa.array([1, 2], pa.int8()),
        "big": pa.array([2**40, None]),
        "temp": pa.array([1.5, None], pa.float32()),
        "day": pa.array([15706, 15707], pa.date32()),
        "when": pa.array([1_357_002_000_000_000_000, None], pa.timestamp("ns")),
    }
    pq.write_table(pa.table(columns), path)
    assert read(
        path, partition_key="station", row_key="{hour:02}", types={"big": EdmType.STRING}
    ) == [
        {
            "PartitionKey": "JFK",
            "RowKey": "01",
            "station": "JFK",
            "hour": 1,
            "big": "1099511627776",
            "temp": 1.5,
            "day@odata.type": "Edm.DateTime",
            "day": "2013-01-01T00:00:00Z",
            "when@odata.type": "Edm.DateTime",
            "when": "2013-01-01T01:00:00Z",
        },
        {
            "PartitionKey": "EWR",
            "RowKey": "02",
            "station": "EWR",
            "hour": 2,
            "day@odata.type": "Edm.DateTime",
            "day": "2013-01-02T00:00:00Z",
        },
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "x.parquet cannot be read as Parquet: "),
        ({"PartitionKey": ["a"], "RowKey": ["b"], "list": [[1, 2]]}, "the column 'list' is list<"),
        (
            {"PartitionKey": ["a"], "Row": ["b"]},
            "has no column 'RowKey'; it has PartitionKey, Row. Name the column of the RowKey with --row-key.",
        ),
    ],
)
def test_a_parquet_file_that_is_refused(tmp_path: Path, content: Any, sentence: str) -> None:
    path = tmp_path / "x.parquet"
    if content is None:
        path.write_bytes(b"PAR1 and no more")
    else:
        pq.write_table(pa.table(content), path)
    with pytest.raises(TransferRefused) as refused:
        read(path)
    assert sentence in str(refused.value)


def test_compressed_files_that_are_cut_off(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"PartitionKey":"a","RowKey":"b"}\n' * 1000)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TransferFailed, match="is damaged or not whole"):
        read(path)
    path.write_bytes(b"no gzip")
    with pytest.raises(TransferFailed, match="is damaged or not whole"):
        read(path)
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(b"no zstandard")
    with pytest.raises(TransferFailed, match="is damaged or not whole"):
        read(path)
    written = io.BytesIO()
    frame = CompressedAppender(written, ".zst")
    frame.write(b'{"PartitionKey":"a","RowKey":"b"}\n' * 1000)
    frame.finish()
    whole = written.getvalue()
    for length in (1, 10, len(whole) - 1):
        path.write_bytes(whole + whole[:length])
        with pytest.raises(TransferFailed, match="is damaged or not whole"):
            read(path)


MANIFEST = {"Version": 2, "PayloadFormat": "Json", "TableName": "Weather", "TotalDataFiles": 2}


def test_what_azcopy_7_wrote(tmp_path: Path) -> None:
    manifest = tmp_path / "account_Weather_20180528T030611.manifest"
    manifest.write_bytes(orjson.dumps(MANIFEST))
    for index in (1, 0):
        entities = [
            {"PartitionKey": "p", "RowKey": str(index), "Timestamp": "2018-05-28T03:06:11.6482709Z"}
        ]
        name = f"account_Weather_20180528T030611_{index}_01CDA2BC.json"
        (tmp_path / name).write_bytes(orjson.dumps(entities, option=orjson.OPT_INDENT_2))
    assert read(manifest) == [
        {"PartitionKey": "p", "RowKey": "0"},
        {"PartitionKey": "p", "RowKey": "1"},
    ]
    numbers = [row.number for row in read_rows(str(manifest), Reading(), None, ReadPosition())]
    assert numbers == [1, 2]


def test_a_manifest_of_any_name_finds_its_split_files(tmp_path: Path) -> None:
    """Documented names: the time of the export is followed by the key range, the split and the checksum."""
    described = {
        **MANIFEST,
        "AccountName": "account",
        "Timestamp": "2018-05-28T03:06:11.6482709Z",
        "TotalDataFiles": 3,
    }
    manifest = tmp_path / "nightly.manifest"
    manifest.write_bytes(orjson.dumps(described))
    own = ["0_0_C3040FE8", "0_10_0AB9AC20", "1_0_0AB9AC21"]
    others = ["account_Weather_20180529T030611.6482709Z_0_0_C3040FE8"]
    others.append("account_WeatherOld_20180528T030611.6482709Z_0_0_C3040FE8")
    for name in [f"account_Weather_20180528T030611.6482709Z_{rest}" for rest in own] + others:
        entities = [{"PartitionKey": "p", "RowKey": name[-12:]}]
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps(entities))
    assert [row["RowKey"] for row in read(manifest) if isinstance(row, dict)] == [
        *("0_0_C3040FE8", "_10_0AB9AC20", "1_0_0AB9AC21")
    ]


def test_a_manifest_of_csv(tmp_path: Path) -> None:
    manifest = tmp_path / "x.manifest"
    manifest.write_bytes(orjson.dumps({**MANIFEST, "PayloadFormat": "Csv", "TotalDataFiles": 1}))
    (tmp_path / "x_0_0_C3040FE8.csv").write_text(
        "PartitionKey,RowKey,Timestamp,n\np,1,2018-05-28T03:06:11Z,5\n"
    )
    assert read(manifest) == [{"PartitionKey": "p", "RowKey": "1", "n": "5"}]
    (tmp_path / "x_0_0_C3040FE8.schema.csv").write_text(
        "PartitionKey,RowKey,Timestamp,n\nEdm.String,Edm.String,Edm.DateTime,Edm.Int32\n"
    )
    assert read(manifest) == [{"PartitionKey": "p", "RowKey": "1", "n": 5}]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (MANIFEST, "counts 2 data files, and 0 are beside it."),
        ({**MANIFEST, "TotalDataFiles": 0}, "has no data file beside it."),
        (
            {**MANIFEST, "PayloadFormat": "Atom"},
            "describes files of Atom, which AzCopy 7 did not write.",
        ),
        ({"Version": 2}, "is not a manifest of AzCopy."),
    ],
)
def test_a_manifest_that_is_refused(tmp_path: Path, content: dict[str, Any], sentence: str) -> None:
    manifest = tmp_path / "x.manifest"
    manifest.write_bytes(orjson.dumps(content))
    with pytest.raises(TransferRefused) as refused:
        read(manifest)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be"])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('PartitionKey,RowKey,a\np,r,1\np,s,"2\np,t,3\n', 3),
        ('PartitionKey,RowKey,a\np,r,1\np,s,"2', 3),
        ('PartitionKey,RowKey,a\r\np,r,1\r\np,s,"2\r\n', 3),
        ('PartitionKey,RowKey,a\np,r,"1\n2"\np,"s\np,t,3\n', 4),  # the row has too few cells
        ('PartitionKey,RowKey,a\np,r,"1\n""2"""\n"p,s,""2""\n', 4),
    ],
)
def test_a_quote_that_is_never_closed(
    tmp_path: Path, encoding: str, content: str, line: int
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content.encode(encoding))
    with pytest.raises(TransferRefused) as refused:
        read(path, encoding=encoding)
    assert str(refused.value) == f"{path}: the quote that opens in line {line} is never closed."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("cell", ['"x\ny"', '""""', '"\n"', 'a"b', '"a"b', "x"])
def test_closed_quotes_at_the_end_of_a_file(
    tmp_path: Path, encoding: str, end: str, cell: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(f"PartitionKey,RowKey,a\np,r,{cell}{end}".encode(encoding))
    plain = cell[1:].rpartition('"') if cell.startswith('"') else ("", "", cell)
    expected = plain[0].replace('""', '"') + plain[2]
    assert read(path, encoding=encoding) == [{"PartitionKey": "p", "RowKey": "r", "a": expected}]


def test_a_quote_after_rows_that_are_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is a failure, otherwise a refusal."""
    path = tmp_path / "x.csv"
    rows = "".join(f"p,{n},x\n" for n in range(1000))
    broken = f'PartitionKey,RowKey,a\n{rows}p,last,"x\n'
    path.write_text(broken)
    sentence = r"the quote that opens in line 1,002 is never closed\."
    with pytest.raises(TransferRefused, match=sentence):
        read(path)
    monkeypatch.setattr(typed_csv, "LENGTH_AHEAD", 1000)
    given: list[object] = []
    with pytest.raises(TransferFailed, match=sentence):
        given.extend(read_rows(str(path), Reading(), None, ReadPosition()))
    assert 800 < len(given) <= 1000
    monkeypatch.setattr(typed_csv, "ROW_LENGTH_MAX", 1000)
    for content in (f"{rows}\n", "x" * 1000):
        path.write_text(f'PartitionKey,RowKey,a\np,first,"{content}')
        with pytest.raises(TransferRefused, match="perhaps a quote is never closed"):
            read(path)


START = "PartitionKey,RowKey,a\n"


@pytest.mark.parametrize(
    ("content", "encoding", "sentence"),
    [
        (
            START.encode() + b"p,r,x\n" * 200_000 + b"\xff",
            "utf-8",
            "(invalid start byte after row 19",
        ),
        (START.encode(), "utf-16", "is not utf-16 (UTF-16 stream does not start with BOM)"),
        (START.encode(), "utf-32", "is not utf-32 ("),
        (START.encode(), "hex", "--encoding 'hex' is not known."),
        (START.encode(), "rot13", "--encoding 'rot13' is not known."),
        (
            START.encode("utf-16"),
            "utf-16-le",
            "begins with a byte order mark: say --encoding utf-16.",
        ),
        (START.encode("utf-32"), "utf-8", "is UTF-32: say --encoding utf-32."),
        (
            b'PartitionKey,RowKey,"a\n' + b"p,r,x\n" * 9_999,
            "utf-8",
            "opens in line 1 is never closed.",
        ),
        (b"x" * 300_000, "utf-8", "has a first line that is too long to name the columns."),
    ],
)
def test_a_csv_file_that_cannot_be_read(
    tmp_path: Path, content: bytes, encoding: str, sentence: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises((TransferRefused, TransferFailed)) as refused:
        read(path, encoding=encoding)
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 300


def test_rows_are_counted_as_in_a_spreadsheet_and_rejected_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'PartitionKey;RowKey;a\r\np;1;2\r\n\r\n\r\np;"NA";"";NA;\r\np;;x\r\n')
    rows = list(read_rows(str(path), Reading(nulls=frozenset({"NA"})), None, ReadPosition()))
    assert [row.number for row in rows] == [2, 5, 6]
    assert isinstance(rows[1], Rejected)
    assert rows[1].text == 'p;"NA";"";NA;'


def cells_of(text: str, delimiter: str, absent: AbstractSet[str]) -> list[list[str | None]]:
    """A model of the parser, which looks at one character after the other. `IndexError` if a quote is not closed."""
    rows: list[list[str | None]] = []
    row: list[str | None] = []
    at = 0
    while at < len(text) or row:
        if not row and text[at] in "\r\n":
            at += 1
            continue
        cell, is_quoted = "", text[at : at + 1] == '"'
        if is_quoted:
            at += 1
            while text[at] != '"' or text[at : at + 2] == '""':
                cell += text[at]
                at += 2 if text[at] == '"' else 1
            at += 1
        while text[at : at + 1] not in (delimiter, "\r", "\n", ""):
            cell += text[at]
            at += 1
        row.append(None if cell in absent and not is_quoted else cell)
        if text[at : at + 1] != delimiter:
            rows.append(row)
            row = []
        at += 1
    return rows


PIECES: Final = ("a", "\n", "\r\n", "\r", ";", '"', '""', '";', ';"', '"";""', "NA", '"NA"', '""""')
NULLS: Final = frozenset(("NA", '"'))


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example('"x;"";y";""')
@example('"x\n";"";"NA";NA')
@example('"x\n"";"";y";""')
@example('";""";""""')
def test_cells_are_those_of_a_model(text: str) -> None:
    """Quotes alone keep some of them from being absent, also on lines that begin within quotes."""
    parser = typed_csv.Parser(io.StringIO(text, newline=""), ";", NULLS)
    try:
        expected = cells_of(text, ";", {"", *NULLS})
    except IndexError:
        with pytest.raises(typed_csv.NotClosed):
            list(parser.rows())
    else:
        assert list(filter(None, parser.rows())) == expected
