"""The short form of the long life: `python -m tests.long_life` sends 100,000 requests, and more if it is told to."""

from __future__ import annotations

from pathlib import Path

from long_life.living import live


def test_ten_thousand_requests_on_one_connection(tmp_path: Path) -> None:
    lived = live(tmp_path, 10_000, seed=1)
    assert lived.problems == []
    assert lived.requests >= 10_000
