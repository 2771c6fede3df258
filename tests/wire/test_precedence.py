"""The precedence of errors: requests with two faults, for the steps of errors.PRECEDENCE (auth 11, wire 3.9)."""

from itertools import pairwise

import pytest

from spec_tables import Row
from tablestone.model.errors import PRECEDENCE
from wire.case_tables import check, parameters, prepare, rows, send
from wire.service_under_test import ServiceUnderTest

_STEPS = [line.partition(":")[0] for line in PRECEDENCE]


@pytest.mark.parametrize("row", parameters("precedence.toml"))
def test_the_earlier_step_wins(service: ServiceUnderTest, row: Row) -> None:
    assert _STEPS.index(row["first"]) <= _STEPS.index(row["second"])
    prepare(service, row)
    check(row, send(service, row))


@pytest.mark.parametrize("pair", list(pairwise(_STEPS)), ids=" before ".join)
def test_every_step_is_held_against_the_next(pair: tuple[str, str]) -> None:
    found = [*rows("precedence.toml"), *rows("sas.toml")]
    shown = {(row["first"], row["second"]) for row in found if "first" in row}
    assert pair in shown
