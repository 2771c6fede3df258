"""No input costs more than its length explains, and a quadratic parser is noticed.

`python -m tests.stress.fuzz growth` shows the costs.
"""

from functools import partial

import pytest

from stress.fuzz.growing_inputs import GROWING
from stress.fuzz.growth import worst
from stress.fuzz.parser import call
from stress.fuzz.parsers import PARSERS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", GROWING)
def test_the_cost_grows_with_the_length(kind: str) -> None:
    growing = GROWING[kind]
    parse = partial(call, PARSERS[growing.parser])
    assert worst(parse, growing.make, growing.largest) is None


def parameters_by_copying(content: bytes) -> dict[bytes, bytes]:
    """How the server once read the parameters of an unauthenticated, malformed query string."""
    found: dict[bytes, bytes] = {}
    for pair in content.split(b"&"):
        name, _, value = pair.partition(b"=")
        found = {name: value, **found}
    return found


def test_a_quadratic_parser_is_noticed() -> None:
    growing = GROWING["query-string: parameters"]
    assert worst(parameters_by_copying, growing.make, growing.largest // 4) is not None
