"""The state machine: Hypothesis runs random steps on a server and on the model, which are compared after each.

The steps are in `program.py` and `owners.py`. Hypothesis chooses them, gives each a `Random` that it records, and finds
the shortest program that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from stress.property.door import MakeService
from stress.property.owners import ALWAYS_ALLOWED, STEPS
from stress.property.program import Program
from tablestone.tables.service import TableService

randoms = st.randoms(use_true_random=False)


def allowed(name: str) -> Callable[[TableMachine], bool]:
    return lambda machine: name in machine.enabled


class TableMachine(RuleBasedStateMachine):
    """One program. Subclasses choose the engine."""

    ENGINE: ClassVar[str]
    MAKE_SERVICE: ClassVar[MakeService] = TableService

    def __init__(self) -> None:
        super().__init__()
        self.program: Program | None = None
        self.enabled: set[str] = set()

    def teardown(self) -> None:
        if self.program is not None:
            self.program.close()

    @initialize(
        swarm=st.sets(st.sampled_from(sorted(set(STEPS) - ALWAYS_ALLOWED)), min_size=2),
        random=randoms,
    )
    def begin(self, swarm: set[str], random: Random) -> None:
        self.enabled = swarm | ALWAYS_ALLOWED
        self.program = Program(self.ENGINE, random, type(self).MAKE_SERVICE)


def _rule(name: str) -> Any:
    def step(machine: TableMachine, random: Random) -> None:
        assert machine.program is not None
        STEPS[name](machine.program, random)

    step.__name__ = step.__qualname__ = name
    return precondition(allowed(name))(rule(random=randoms)(step))


for _name in STEPS:
    setattr(TableMachine, f"step_{_name}", _rule(_name))
