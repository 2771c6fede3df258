"""The C function that decides hints reads hostile programs and rows safely, and loses no row that matches."""

import subprocess
from pathlib import Path

import pytest

from hint_ways import SOURCE, needs_compiler
from stress.fuzz import hint_runs
from tablestone.engines.contract import NumberAfter

pytestmark = needs_compiler
INPUTS = 30_000


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    try:
        return hint_runs.build(tmp_path_factory.mktemp("drivers"))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the compiler has no sanitizers: {error.stderr.decode()[-200:]}")


def test_no_input_does_harm(drivers: dict[str, Path]) -> None:
    assert list(hint_runs.run(INPUTS // 3, 1, drivers)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("if (rest->length < length)", "if (0)", "AddressSanitizer"),
        ("length >= last + 16 &&", "length >= last + 15 &&", "AddressSanitizer"),
        pytest.param("significant += digits != 0;", "", "lost", marks=pytest.mark.slow),
        ("is_quoted = (node->flags & QUOTED) &&", "is_quoted =", "lost"),
        ("rest.length == 0)", "1)", "lost"),
    ],
    ids=["unchecked length", "load past the end", "19 digits", "quotation mark", "more after it"],
)
def test_a_planted_fault_is_found(
    right: str, wrong: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SOURCE.read_text("utf-8")
    assert text.count(right) == 1
    faulty = tmp_path / SOURCE.name
    faulty.write_text(text.replace(right, wrong), "utf-8")
    monkeypatch.setattr(hint_runs, "SOURCE", faulty)
    monkeypatch.setattr(hint_runs, "BUILDS", {"sse2": ()})
    try:
        faulty_drivers = hint_runs.build(tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no sanitizers")
    seeds = range(1, 31)  # a rare one is found by every sixth
    problems = (each for seed in seeds for each in hint_runs.run(INPUTS, seed, faulty_drivers))
    assert found in next(problems)


def test_a_number_near_a_bound_is_not_certain() -> None:
    hint = NumberAfter(b":", 1.0, 2.0)
    assert hint_runs.certain(hint, b"", b":1.5:1.5")
    assert not hint_runs.certain(hint, b"", b":1.5:2.5")
    assert not hint_runs.certain(hint, b"", b":1.0")
    assert hint_runs.certain(NumberAfter(b":", 1.0, 2.0, integers=False), b"", b":7,")
