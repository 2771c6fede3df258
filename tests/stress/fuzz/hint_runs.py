"""Hostile programs and rows for the C function that decides hints, compiled with sanitizers.

Three builds get the same cases: with SSE2, with `memmem`, and with neither. A problem is what a sanitizer reports, two
builds that differ, "no" for a row that certainly matches, and "no" by a program that is cut or has more after its end.
"""

import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from hint_ways import COMPILER, SOURCE
from tablestone.engines.contract import (
    AllOf,
    AnyOf,
    Contains,
    Hint,
    NumberAfter,
    RowBetween,
    TextAfter,
)
from tablestone.engines.sqlite.row_hints import program_of

DRIVER: Final = Path(__file__).with_name("row_hints_driver.c")
BUILDS: Final = {"sse2": (), "memmem": ("-U__SSE2__",), "portable": ("-U__SSE2__", "-D_WIN32")}
SANITIZERS: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROWS_OF_A_PROGRAM: Final = 6
PROGRAMS_AT_ONCE: Final = 500
ONE_MIB: Final = 1 << 20
ROUNDING: Final = 1e-12

_MARKERS: Final = (b',"a":', b',"ab":', b',"a":"', b"a", b"aa", b"\0", b',"' + b"n" * 90 + b'":')
_NUMBERS: Final = (
    *("0", "-0", "5", "-5.5", "1e3", "1E-3", "15.", "9" * 19, "9" * 1000, "0." + "0" * 999 + "1"),
    *("1" + "0" * 1000 + "e-1000", "1e999", "-1e-999", "1e99999999999", "1.7976931348623157E+308"),
    *("5e-324", "-", "--1", "1e", "1e+", "2147483647", "-9223372036854775808", "Infinity", "true"),
)
_PIECES: Final = (
    *(b"{", b"}", b",", b'"', b"-", b".", b"e", b"\0", b"2020-02-29T23:59:59Z", b"x" * 40),
    *_MARKERS,
    *(text.encode() for text in _NUMBERS),
)
_BOUNDS: Final = (float("-inf"), -6.0, -5.5, 0.0, 1e-300, 4.0, 5.0, 1000.0, 1e19, float("inf"))
_NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


class Case(NamedTuple):
    program: bytes
    hint: Hint | None
    """What the program means; None if it was changed."""
    rows: Sequence[tuple[bytes, bytes]]
    is_cut: bool
    """Every answer must be "perhaps"."""


def build(directory: Path) -> dict[str, Path]:
    """The drivers; `subprocess.CalledProcessError` if the compiler has no sanitizers."""
    assert COMPILER is not None
    drivers = {name: directory / name for name in BUILDS}
    for name, driver in drivers.items():
        flags = (*SANITIZERS, *BUILDS[name], f"-I{SOURCE.parent}")
        command = [COMPILER, *flags, "-o", str(driver), str(DRIVER)]
        subprocess.run(command, check=True, capture_output=True)
    return drivers


def run(inputs: int, seed: int, drivers: dict[str, Path]) -> Iterator[str]:
    """The problems that this many rows find."""
    random = Random(seed)
    refused = 0
    for _ in range(0, inputs, PROGRAMS_AT_ONCE * ROWS_OF_A_PROGRAM):
        cases = [_case(random) for _ in range(PROGRAMS_AT_ONCE)]
        given = b"".join(map(_written, cases))
        answers = {}
        for name, driver in drivers.items():
            ended = subprocess.run([driver], input=given, capture_output=True, check=False)
            if ended.returncode != 0:
                yield f"{name}: exit {ended.returncode}: {ended.stderr.decode()[:2000]}"
                return
            answers[name] = ended.stdout
        if len(set(answers.values())) != 1:
            yield "the builds differ"
        answer = iter(next(iter(answers.values())))
        for case in cases:
            for row, value in case.rows:
                is_refused = next(answer) == ord("0")
                refused += is_refused and case.hint is not None
                if is_refused and (case.is_cut or (case.hint and certain(case.hint, row, value))):
                    yield f"lost: {case.hint} {case.program!r} {row!r} {value[:200]!r}"
    if not refused:
        yield "no row was left out, so this run shows nothing"


def _written(case: Case) -> bytes:
    parts = [case.program, *(text for row in case.rows for text in row)]
    texts = [struct.pack("<I", len(part)) + part for part in parts]
    return texts[0] + struct.pack("<I", len(case.rows)) + b"".join(texts[1:])


def _case(random: Random) -> Case:
    hint = _hint(random, 3)
    program = program_of(hint, random.choice((0, 100, 4096, 2 * ONE_MIB)))
    rows = [_row(random) for _ in range(ROWS_OF_A_PROGRAM)]
    how = random.random()
    if how < 0.6:
        return Case(program, hint, rows, is_cut=False)
    if how < 0.8:
        cut = program[: random.randrange(len(program))]
        return Case(random.choice((cut, program + b"\0")), None, rows, is_cut=True)
    changed = bytearray(program)
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(len(changed))] = random.choice((0, 1, 7, 127, 255))
    return Case(bytes(changed), None, rows, is_cut=False)


def _hint(random: Random, depth: int) -> Hint:
    marker = b"" if random.random() < 0.01 else random.choice(_MARKERS)
    least, greatest = sorted(random.choices(_BOUNDS, k=2))
    flags = [random.random() < 0.5 for _ in range(3)]
    first, last = sorted(random.choices((b"", b"2020", b"2020-02-29T23:59:59", b"9"), k=2))
    kind = random.randrange(6 if depth else 4)
    if kind == 0:
        return Contains(marker and marker + random.choice(_NUMBERS).encode())
    if kind == 1:
        return NumberAfter(marker, least, greatest, *flags)
    if kind == 2:
        return TextAfter(marker, first, last, flags[0])
    if kind == 3:
        return RowBetween(first, None if flags[0] else last)
    parts = tuple(_hint(random, depth - 1) for _ in range(random.randint(1, 3)))
    return AllOf(parts) if kind == 4 else AnyOf(parts)


def _row(random: Random) -> tuple[bytes, bytes]:
    value = b"".join(random.choices(_PIECES, k=random.randrange(12)))
    how = random.random()
    if how < 0.3:
        value = value[: random.randrange(len(value) + 1)]
    elif how < 0.4:
        value += random.randbytes(random.randrange(64))
    elif how < 0.41:
        value = bytes(ONE_MIB) + value  # a marker at the very end
    return random.choice((b"", b"2", b"2020", b"9", b"\0")), value


def certain(hint: Hint, row: bytes, value: bytes) -> bool:
    """Whether the hint holds, whichever of several occurrences of a marker is meant."""
    match hint:
        case Contains(text):
            return text in value
        case NumberAfter(marker):
            after = list(_all_after(value, marker))
            return all(_number_holds(hint, each) for each in after) if after else hint.or_absent
        case TextAfter(marker, least, greatest, or_absent):
            found = [each[: len(least)] for each in _all_after(value, marker)]
            return all(least <= each <= greatest for each in found) if found else or_absent
        case RowBetween(start, end):
            return start <= row and (end is None or row < end)
        case AllOf(parts):
            return all(certain(part, row, value) for part in parts)
        case AnyOf(parts):
            return any(certain(part, row, value) for part in parts)


def _all_after(value: bytes, marker: bytes) -> Iterator[bytes]:
    at = value.find(marker)
    while at >= 0:
        yield value[at + len(marker) : at + len(marker) + 2000]
        at = value.find(marker, at + 1)


def _number_holds(hint: NumberAfter, text: bytes) -> bool:
    is_quoted = hint.quoted and text.startswith(b'"')
    number = _NUMBER.match(text[is_quoted:])
    if number is None:
        return True
    is_integer = number[1] is number[2] is None
    if not (is_quoted or hint.integers) and is_integer and text[number.end() :][:1] in (b",", b"}"):
        return True
    found = float(number[0])
    room = abs(found) * ROUNDING
    return hint.least + room <= found <= hint.greatest - room
