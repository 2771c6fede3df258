"""The dates of a SAS and of a stored access policy: valid and invalid texts (auth 2.5)."""

from datetime import UTC, datetime

import pytest

from tablestone.clock import TICKS_PER_SECOND
from tablestone.model.shared_access import parse_instant


def _ticks(*moment: int) -> int:
    since = datetime(*moment, tzinfo=UTC) - datetime(1, 1, 1, tzinfo=UTC)  # type: ignore[misc,arg-type]
    return (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-06", _ticks(2024, 5, 6)),
        ("2024-05-06T07:08Z", _ticks(2024, 5, 6, 7, 8)),
        ("2024-05-06T07:08+02:00", _ticks(2024, 5, 6, 5, 8)),
        ("2024-05-06T07:08:09Z", _ticks(2024, 5, 6, 7, 8, 9)),
        ("2024-05-06T07:08:09-00:30", _ticks(2024, 5, 6, 7, 38, 9)),
        ("2024-05-06T07:08:09.123456Z", _ticks(2024, 5, 6, 7, 8, 9) + 1_234_560),
        ("2024-05-06T07:08:09.1234567+00:00", _ticks(2024, 5, 6, 7, 8, 9) + 1_234_567),
        ("2024-05-06T07:08:09.000000001Z", _ticks(2024, 5, 6, 7, 8, 9)),
        ("0001-01-01", 0),
        ("9999-12-31T23:59:59.9999999Z", _ticks(9999, 12, 31, 23, 59, 59) + 9_999_999),
    ],
)
def test_a_date_is_read(text: str, expected: int) -> None:
    assert parse_instant(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "now", "2024", "2024-05", "2024-5-6", "2024-02-30", "2024-13-01", "0000-01-01"),
        *("2024-05-06T07:08", "2024-05-06T07:08:09", "2024-05-06 07:08Z", "2024-05-06t07:08Z"),
        *("2024-05-06T07:08z", "2024-05-06T07Z", "2024-05-06Z", "2024-05-06T24:00Z"),
        *("2024-05-06T07:60Z", "2024-05-06T07:08:60Z", "2024-05-06T07:08:09.Z"),
        *("2024-05-06T07:08:09.1234567890Z", "2024-05-06T07:08+0200", "2024-05-06T07:08 Z"),
        *("2024-05-06T07:08+15:00", "0001-01-01T00:00+01:00", "9999-12-31T23:59-00:01"),
        *("2024-05-06T07:08Z ", " 2024-05-06", "\u0662\u0660\u0662\u0664-05-06", "2024-05-06\n"),
        "Mon, 06 May 2024 07:08:09 GMT",
    ],
)
def test_anything_else_is_no_date(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the whole message
        parse_instant(text)
