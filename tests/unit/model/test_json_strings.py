"""The JSON string of a text: the same for long texts, which another library writes, as for short ones."""

import json

import pytest

from tablestone.model.entity_json import quote


@pytest.mark.parametrize("length", [1, 63, 64, 5_000])
def test_every_character_is_escaped_as_the_service_does(length: int) -> None:
    """As recorded: ASCII only, hex digits in lower case (wire 5.2)."""
    for code in [*range(0x180), 0x2028, 0xFFFF, 0x1F600]:
        text = chr(code).rjust(length, "x")
        assert quote(text) == json.dumps(text, ensure_ascii=True), hex(code)
