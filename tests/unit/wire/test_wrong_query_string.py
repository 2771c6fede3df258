"""The parameters of a refused query string: the steps before the refusal still need them (wire 14 row 24)."""

import pytest

from tablestone.model.errors import StorageError
from tablestone.wire.address import parse_query_string, readable_parameters


@pytest.mark.parametrize(
    ("query", "found", "repeated"),
    [
        ("a=1&b=2&a=3", {"a": "1", "b": "2"}, {"a"}),
        ("a=%FF&b=2", {"b": "2"}, set()),
        ("comp=acl&COMP=x&b", {"comp": "acl", "b": ""}, {"comp"}),
    ],
)
def test_what_can_be_read(query: str, found: dict[str, str], repeated: set[str]) -> None:
    with pytest.raises(StorageError):
        parse_query_string(query.encode())
    assert readable_parameters(query.encode()) == (found, frozenset(repeated))


def test_as_many_parameters_as_a_url_can_hold() -> None:
    """Each is read once, because this needs no credentials. `tests/stress/fuzz/test_growth.py` measures it."""
    names = [f"{number:x}" for number in range(13_000)]
    query = "&".join([*names, names[-1]]).encode()
    assert len(query) < 65_536
    parameters, repeated = readable_parameters(query)
    assert (list(parameters), set(repeated)) == (names, {names[-1]})
