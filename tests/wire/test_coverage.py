"""The tables are complete: every error code and every limit has a row, or the name of the test that shows it."""

import re
from pathlib import Path

import pytest

from spec_tables import Row, load
from tablestone import limits
from tablestone.model.errors import ERRORS
from wire.case_tables import rows

_ROOT = Path(__file__).resolve().parents[2]
_COMPATIBILITY = (_ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
_SPECIFICATION = "".join(
    path.read_text(encoding="utf-8") for path in (_ROOT / "docs" / "protocol").glob("*.md")
)
_CASES = (
    *("address", "hosts", "negotiate", "atom", "etag", "continuation", "select"),
    *("table_names", "limits"),
    *("versions", "headers", "precedence", "writes", "sas"),
    *("table_acl", "service_properties", "cors"),
)


def _all_rows() -> list[Row]:
    found = [row for name in _CASES for row in rows(f"{name}.toml")]
    batch = load("batch.toml")
    found += [*batch["case"], *batch["failure"]]
    found += load("filter_parse.toml")["error"]
    found += rows("bearer.toml")
    return [*found, *load("string_to_sign.toml")["refused"]]


def test_every_code_has_the_status_and_text_of_the_protocol() -> None:
    expected = {row["code"]: (row["status"], row["text"]) for row in load("errors.toml")["error"]}
    assert expected == {code: (row.status, row.text) for code, row in ERRORS.items()}


def test_every_code_is_shown() -> None:
    shown = {row["code"] for row in _all_rows() if "code" in row}
    shown |= {"InvalidInput"}
    elsewhere = {row["code"] for row in load("errors.toml")["elsewhere"]}
    assert elsewhere.isdisjoint(shown), "a code that a row shows needs no other place"
    assert shown | elsewhere == ERRORS.keys()


def test_every_limit_is_shown() -> None:
    shown = {row["limit"] for row in _all_rows() if "limit" in row}
    elsewhere = {row["limit"] for row in load("limits.toml")["elsewhere"]}
    assert elsewhere.isdisjoint(shown), "a limit that a row shows needs no other place"
    assert shown | elsewhere == {name for name in vars(limits) if name.isupper()}


@pytest.mark.parametrize(
    "row",
    [*load("limits.toml")["elsewhere"], *load("errors.toml")["elsewhere"]],
    ids=lambda row: row.get("limit") or row.get("code"),
)
def test_what_is_shown_elsewhere_is_there(row: Row) -> None:
    """A row names a test, or says why there can be none."""
    if "test" not in row:
        assert row["why"]
        return
    path, _, name = row["test"].partition("::")
    assert f"def {name}(" in (_ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "named",
    sorted(
        set(
            re.findall(
                r"`((?:tests/\S+\.py::\w+|[\w/]+\.toml: [^`]+))`", _COMPATIBILITY + _SPECIFICATION
            )
        )
    ),
)
def test_the_cases_that_a_document_names_are_there(named: str) -> None:
    if named.startswith("tests/"):
        path, _, name = named.partition("::")
        assert f"def {name}(" in (_ROOT / path).read_text(encoding="utf-8")
        return
    file, _, row_id = named.partition(": ")
    tables = [table for table in load(file).values() if isinstance(table, list)]
    found = [row for table in tables for row in table if isinstance(row, dict)]
    assert row_id in {row["id"] for row in found if "id" in row}


def test_every_line_of_its_tables_names_a_test() -> None:
    lines = [line for line in _COMPATIBILITY.splitlines() if line.startswith("| ")]
    bare = [line for line in lines if not re.search(r"::|\.toml: | shown by \|$", line)]
    assert bare == []
