"""Permissions: every operation has its row in the one table."""

from __future__ import annotations

from typing import get_args

from tablestone.auth.permissions import NEEDS
from tablestone.operations import Operation


def test_every_operation_has_a_row() -> None:
    assert set(NEEDS) == set(get_args(Operation))
