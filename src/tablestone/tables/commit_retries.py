"""Retries after conflicts: the number of times that a commit is decided again after another commit was first.

Every loop that retries counts its conflicts here, and gives up with the one error that is raised here.
"""

from __future__ import annotations

from tablestone import limits
from tablestone.engines.contract import EngineUnavailable


class Overtaken(EngineUnavailable):
    """Other commits were first again and again. Nothing was applied, and the caller may try again."""


def one_more_conflict(conflicts: int, what: str) -> int:
    """The number of conflicts including this one; `Overtaken` if it reaches `limits.COMMIT_ATTEMPTS_MAX`.

    `what` names the contended object in the error's text.
    """
    if conflicts + 1 >= limits.COMMIT_ATTEMPTS_MAX:
        raise Overtaken(f"Other requests keep changing {what}.")
    return conflicts + 1
