"""Inputs for parsers without coverage: the kept ones as they are, then random changes of them.

Any error that is not one of the parser's own is a finding.
"""

import traceback
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from stress.fuzz.mutation import mutated
from stress.fuzz.parser import Parser, call

POOL_MAX = 500
"""Changed inputs that are kept to be changed again, besides those that the run began with."""


class Finding(NamedTuple):
    """An input, and the error that it leads to."""

    content: bytes
    error: str


def try_one(parser: Parser, content: bytes) -> Finding | bool:
    """The finding, or whether the parser accepts the input."""
    try:
        return call(parser, content)
    except Exception:  # noqa: BLE001 - this is what is looked for
        return Finding(content, traceback.format_exc())


def findings(
    parser: Parser, kept: Sequence[bytes], inputs: int, random: Random
) -> Iterator[Finding]:
    """The findings among the kept inputs and so many changes of them and of the parser's seeds."""
    pool = [*parser.seeds, *kept]
    for content in pool:
        found = try_one(parser, content)
        if isinstance(found, Finding):
            yield found
    begun_with = len(pool)
    for _ in range(inputs):
        content = mutated(random, random.choice(pool), pool, parser.words)
        found = try_one(parser, content)
        if isinstance(found, Finding):
            yield found
        elif found:  # an accepted input is worth changing again
            if len(pool) < begun_with + POOL_MAX:
                pool.append(content)
            else:
                pool[begun_with + random.randrange(POOL_MAX)] = content
