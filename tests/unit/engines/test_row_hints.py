"""The C function that decides hints: what it does not understand is "perhaps", and who may call it."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from time import process_time

import apsw
import pytest

from hint_ways import COMPILER, HEADERS, SOURCE, deciding_in, library, needs_c, needs_compiler
from tablestone.engines.contract import AllOf, AnyOf, Contains, Hint, NumberAfter, RowBetween
from tablestone.engines.sqlite import row_hints
from tablestone.engines.sqlite.row_hints import gives_function, program_of, way

ASK = "SELECT row_may_match(?, ?, ?)"
EXAMINED_MAX = 2 << 20
N = b',"n":'
FROM_FIVE = NumberAfter(N, 5.0, 6.0)
PROGRAM = program_of(FROM_FIVE, EXAMINED_MAX)
NO = b'{,"n":7}'
"""A value for which PROGRAM says "no"."""


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    with deciding_in("C"), closing(apsw.Connection(":memory:")) as opened:
        assert gives_function(opened)
        yield opened


def answers(connection: apsw.Connection, hint: Hint, values: Sequence[bytes]) -> list[int]:
    """Of one statement, so that the program is read once."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS asked (value BLOB)")
    connection.execute("DELETE FROM asked")
    connection.executemany("INSERT INTO asked VALUES (?)", [(value,) for value in values])
    found = connection.execute(
        "SELECT row_may_match(?, value, NULL) FROM asked ORDER BY rowid",
        (program_of(hint, EXAMINED_MAX),),
    )
    return [answer for (answer,) in found]


@needs_c
@pytest.mark.parametrize(
    ("number", "answer"),
    [
        *((b"5", 1), (b"5.5}", 1), (b"4.99", 0), (b"6.01", 0), (b"-5", 0), (b"", 1), (b"-", 1)),
        *((b"0.55e1", 1), (b"5500E-3", 1), (b"55e+0", 0), (b'"7"', 1), (b"true", 1), (b" 7", 1)),
        *((b"5" + b"0" * 60, 0), (b"5" + b"0" * 40 + b"e-40", 1), (b"5." + b"0" * 60, 1)),
        *(
            (b"7" * 65, 1),
            (b"7" * 64, 0),
            (b"5" + b"0" * 1000, 1),
            (b"0." + b"0" * 40 + b"5e41", 1),
        ),
        *((b"5e99999999999999999999", 0), (b"5e-9999", 0)),
        *((b"5.99999999999999999999999999999999", 1), (b"60e-1", 1), (b"5\0", 1), (b"7\0", 0)),
    ],
)
def test_numbers(connection: apsw.Connection, number: bytes, answer: int) -> None:
    for before in (b"", b"x" * 100, b"x" * (1 << 20), b"\0" * 31):
        assert answers(connection, FROM_FIVE, [before + N + number]) == [answer]


@needs_c
def test_every_number_of_ten_is_read_as_python_reads_it(connection: apsw.Connection) -> None:
    for exponent in range(-330, 309):
        text = f"1.2345678901234567e{exponent}"
        number = float(text)
        room = number * 1e-13 + 5e-324
        near = NumberAfter(N, number - room, number + room)
        below = NumberAfter(N, 0.0, number - room)
        value = N + text.encode()
        assert answers(connection, near, [value]) == [1], text
        assert answers(connection, below, [value]) == [int(number - room >= number)], text


@needs_c
def test_a_marker_is_found_wherever_the_last_row_had_it(connection: apsw.Connection) -> None:
    values = []
    for before in (0, 500, 499, 468, 467, 0, 1 << 20, 33, 4, 0):
        values += [b"x" * before + N + b"5", b"x" * before + N + b"7", b"x" * before]
    assert answers(connection, FROM_FIVE, values) == [1, 0, 0] * 10
    for length in range(1, 100):
        text = bytes(range(1, length + 1))
        found = [text, b"x" + text, text[:-1], b"\xff" * 200 + text, text + b"\xff" * 15, b""]
        assert answers(connection, Contains(text), found) == [1, 1, 0, 1, 1, 0]


@needs_c
def test_a_marker_is_found_across_the_place_where_the_search_began(
    connection: apsw.Connection,
) -> None:
    for before in range(440, 501):
        values = [b"x" * 500 + N + b"5", b"x" * before + N + b"5"]
        assert answers(connection, FROM_FIVE, values) == [1, 1], before


@needs_c
@pytest.mark.parametrize(
    ("hint", "ordinary", "hostile"),
    [
        (NumberAfter(N, 5.0, 6.0, quoted=True), b'"7"', b'"' + b"9" * 4000),
        (Contains(b',"' + b"n" * 59 + b'"'), b"", b',"' * 2000),
    ],
    ids=["digits", "ends of the marker"],
)
def test_a_hostile_value_takes_little_more_time(
    connection: apsw.Connection, hint: Hint, ordinary: bytes, hostile: bytes
) -> None:
    """One look at a value of 4 KiB is short, so a piece of a thousand is."""

    def seconds(after: bytes) -> float:
        answers(connection, hint, [N + after + b"x" * (4000 - len(after))] * 500)
        asked = "SELECT sum(row_may_match(?, value, NULL)) FROM asked"
        times = []
        for _ in range(5):
            started = process_time()
            connection.execute(asked, (program_of(hint, EXAMINED_MAX),)).fetchall()
            times.append(process_time() - started)
        return min(times)

    assert seconds(hostile) < 3 * seconds(ordinary) + 0.0005


def nested(depth: int) -> Hint:
    return AllOf((nested(depth - 1),)) if depth else FROM_FIVE


MALFORMED = {
    "nothing": b"",
    "a later version": b"\2" + PROGRAM[1:],
    "more after its end": PROGRAM + b"\0",
    "two nodes": PROGRAM + PROGRAM[5:],
    "an unknown kind": PROGRAM[:5] + b"\7" + PROGRAM[6:],
    "no marker": program_of(NumberAfter(b"", 8.0, 9.0), EXAMINED_MAX),
    "an empty needle": program_of(AllOf((Contains(b""), FROM_FIVE)), EXAMINED_MAX),
    "no number": program_of(NumberAfter(N, float("nan"), 6.0), EXAMINED_MAX),
    "any of nothing": program_of(AnyOf(()), EXAMINED_MAX),
    "parts of a leaf": PROGRAM[:7] + b"\1\0" + PROGRAM[9:] + PROGRAM[5:],
    "a length past its end": PROGRAM[:25] + b"\xff\xff\xff\xff" + PROGRAM[29:],
    "too deep": program_of(nested(16), EXAMINED_MAX),
    "too wide": program_of(AllOf((FROM_FIVE,) * 128), EXAMINED_MAX),
    "too long": program_of(AllOf((Contains(b"x" * (16 << 20)), FROM_FIVE)), EXAMINED_MAX),
}


@needs_c
@pytest.mark.parametrize("program", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_program_is_perhaps(connection: apsw.Connection, program: bytes) -> None:
    assert connection.execute(ASK, (program, NO, b"")).get == 1


@needs_c
def test_a_cut_program_is_perhaps(connection: apsw.Connection) -> None:
    whole = program_of(AllOf((FROM_FIVE, Contains(b"x"), RowBetween(b"a", b"b"))), EXAMINED_MAX)
    for length in range(len(whole)):
        assert connection.execute(ASK, (whole[:length], NO, b"")).get == 1
    assert connection.execute(ASK, (whole, NO, b"")).get == 0


@needs_c
def test_programs_of_the_largest_size_are_read(connection: apsw.Connection) -> None:
    for hint in nested(15), AllOf((FROM_FIVE,) * 127):
        assert answers(connection, hint, [NO, N + b"5"]) == [0, 1]


@needs_c
@pytest.mark.parametrize("other", [None, 5, 7.5, NO.decode()])
def test_what_is_no_blob_is_perhaps(connection: apsw.Connection, other: object) -> None:
    of_row = program_of(RowBetween(b"a", b"b"), EXAMINED_MAX)
    for asked in (other, NO, b""), (PROGRAM, other, b""), (of_row, NO, other):
        assert connection.execute(ASK, asked).get == 1
    assert connection.execute(ASK, (PROGRAM, NO, other)).get == 0, "the row is not needed"
    assert connection.execute(ASK, (of_row, NO, b"")).get == 0


@needs_c
def test_a_program_that_changes_between_rows_is_read_again(connection: apsw.Connection) -> None:
    programs = [program_of(NumberAfter(N, low, low + 0.5), EXAMINED_MAX) for low in (6.0, 7.0)]
    connection.execute("CREATE TEMP TABLE programs (program BLOB)")
    connection.executemany("INSERT INTO programs VALUES (?)", [(each,) for each in programs * 3])
    found = connection.execute(
        "SELECT row_may_match(program, ?, NULL) FROM programs ORDER BY rowid", (NO,)
    )
    assert [answer for (answer,) in found] == [0, 1] * 3


@needs_c
def test_no_view_and_no_trigger_may_call_it(connection: apsw.Connection) -> None:
    connection.execute("CREATE VIEW called AS SELECT row_may_match(x'', x'', x'')")
    with pytest.raises(apsw.SQLError, match="unsafe use of row_may_match"):
        connection.execute("SELECT * FROM called").fetchall()


@pytest.mark.parametrize("language", [pytest.param("C", marks=needs_c), "SQL"])
def test_extensions_cannot_be_loaded_afterwards(language: str) -> None:
    with deciding_in(language), closing(apsw.Connection(":memory:")) as connection:
        assert gives_function(connection) == (language == "C")
        assert way() == language
        for refused in (
            lambda: connection.execute("SELECT load_extension('x')").get,
            lambda: connection.load_extension("x"),
        ):
            with pytest.raises(apsw.Error, match="not authorized"):
                refused()


FAULTS = {
    "no library": None,
    "no entry": ("sqlite3_rowhints_init", "sqlite3_other_init"),
    "refuses": ("return sqlite3_create_function", "return 1 + sqlite3_create_function"),
    "always no": ("may_match(program, value, row));", "0);"),
    "always perhaps": ("may_match(program, value, row));", "1);"),
    "the bounds the other way": ("node->from <= value", "node->from >= value"),
    "none of any": ("return 1;\n        return 0;\n    }", "return 0;\n        return 0;\n    }"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_library_that_fails_is_not_used(
    fault: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "librow_hints.so"
    if fault is None:
        made.write_bytes(b"\x7fELF, but no library")
    else:
        text = SOURCE.read_text("utf-8")
        assert text.count(fault[0]) == 1
        (tmp_path / "faulty.c").write_text(text.replace(*fault), "utf-8")
        command = [str(COMPILER), "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(made)]
        subprocess.run([*command, str(tmp_path / "faulty.c")], check=True)
    monkeypatch.setattr(row_hints, "LIBRARY", made)
    assert way() == "SQL"


def test_a_path_that_is_not_utf_8_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_hints, "LIBRARY", Path("/\udcff/librow_hints.so"))
    assert way() == "SQL"


@needs_compiler
def test_the_library_shows_its_entry_alone() -> None:
    """`sqlite3_api` would be that of another extension in the process, and of another SQLite."""
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library()], check=True, capture_output=True, text=True
    )
    assert [line.split()[-1] for line in symbols.stdout.splitlines()] == ["sqlite3_rowhints_init"]


def test_an_sqlite_that_loads_no_extensions_is_served() -> None:
    class Bare:
        """apsw on an SQLite without extensions."""

    assert not gives_function(Bare())  # type: ignore[arg-type]


@needs_compiler
def test_a_build_reads_no_header_of_the_machines_sqlite() -> None:
    command = [str(COMPILER), "-M", f"-I{HEADERS}", str(SOURCE)]
    rule = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    read = {Path(name) for name in re.split(r"[\s\\]+", rule) if "sqlite3" in Path(name).name}
    assert read == {HEADERS / "sqlite3.h", HEADERS / "sqlite3ext.h"}


def test_the_headers_are_of_one_version_that_is_named() -> None:
    version = re.search(r'#define SQLITE_VERSION +"([0-9.]+)"', (HEADERS / "sqlite3.h").read_text())
    assert version is not None
    readme = (HEADERS / "README.md").read_text("utf-8")
    assert f"of SQLite {version[1]}," in readme
    for name in ("sqlite3.h", "sqlite3ext.h"):
        assert f"{sha256((HEADERS / name).read_bytes()).hexdigest()}  {name}" in readme


def test_the_source_is_short() -> None:
    assert len(SOURCE.read_text("utf-8").splitlines()) <= 400
