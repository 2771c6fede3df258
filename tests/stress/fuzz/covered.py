"""The steps from line to line that an input takes in the server's code, and the fewest inputs that cover them all.

Slow, because every line is traced: meant for inputs that are kept, not for each one tried.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import tablestone
from stress.fuzz.parser import Parser, call

_SOURCE = str(tablestone.__file__).rpartition("/")[0]

Step = tuple[CodeType, int, int]
"""A function, and two of its lines that ran one after the other."""


@contextmanager
def _traced(steps: set[Step]) -> Iterator[None]:
    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_SOURCE):
            return None
        before = 0

        def trace_lines(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                steps.add((frame.f_code, before, frame.f_lineno))
                before = frame.f_lineno
            return trace_lines

        return trace_lines

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracing)


def steps_of(parser: Parser, content: bytes) -> set[Step]:
    """The steps that a parser takes with this input, even one that ends in an error."""
    steps: set[Step] = set()
    with _traced(steps), suppress(Exception):
        call(parser, content)
    return steps


def fewest(parser: Parser, inputs: Iterable[bytes]) -> list[bytes]:
    """The shortest inputs that together take every step of these inputs."""
    taken: set[Step] = set()
    chosen = []
    for content in sorted(inputs, key=len):
        new = steps_of(parser, content) - taken
        if new:
            chosen.append(content)
            taken |= new
    return chosen
