"""The exact headers of each class of answer: nothing is missing and nothing else is sent (wire 2.2, 2.3)."""

import pytest

from spec_tables import Row
from wire.case_tables import check, fill, parameters, prepare, send
from wire.service_under_test import ServiceUnderTest


@pytest.mark.parametrize("row", parameters("headers.toml"))
def test_the_header_set_is_exact(service: ServiceUnderTest, row: Row) -> None:
    prepare(service, row)
    response = send(service, row)
    check({name: value for name, value in row.items() if name != "answer"}, response)
    expected = {name.lower(): fill(value) for name, value in row["answer"].items()}
    found = {
        name: "*" if expected.get(name) == "*" else value
        for name, value in response.headers.items()
    }
    assert found == expected
