"""The short form of the overload: a quiet client is answered beside a crowd, and no client gets a server error.

The long form, `python -m tests.stress.overload`, judges the times too; a test's machine may be busy.
"""

from pathlib import Path

import pytest

from stress.overload.overloading import overload

PLAN = {"idle": 100, "busy": 20, "pipelining": 2, "slow_readers": 2, "slow_writers": 2}


@pytest.mark.slow
def test_a_quiet_client_is_answered_beside_a_crowd(tmp_path: Path) -> None:
    found = overload(tmp_path, PLAN, 60, judge_ratio=False)
    assert found.problems == []
    assert found.crowd["200"] > 0
