"""Names that are refused for new properties may be in stored entities, whose Atom stays readable."""

from xml.etree import ElementTree as ET

import pytest

from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import is_identifier
from tablestone.model.entity_json import entity_renderer, members
from tablestone.model.keys import EntityKey
from tablestone.wire.atom_payload import AtomWriter
from tablestone.wire.negotiate import AtomForm

DATA = "{http://schemas.microsoft.com/ado/2007/08/dataservices}"
WRITTEN = {
    "\u00b5": "_x00B5_",
    "size_\u00b5m": "size__x00B5_m",
    "\u00aaa\u00ba": "_x00AA_a_x00BA_",
    "a\u2054b": "a_x2054_b",
    "größe": "größe",
}
"""Names as they were stored, and as they are written."""


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(
    "value", [EdmValue(EdmType.STRING, "s"), EdmValue(EdmType.INT64, 5)], ids=["text", "typed"]
)
def test_a_feed_is_well_formed_whatever_was_stored(name: str, value: EdmValue) -> None:
    assert is_identifier(name) is (WRITTEN[name] == name)
    key = EntityKey("p", "r")
    stored = entity_renderer(key, members({name: value, "after": value}).values())(1)
    writer = AtomWriter("http://host/account/", "account", AtomForm.PLAIN, 0)
    feed = ET.fromstring(writer.entities("table", [writer.listed("table", stored, None)] * 2, None))  # noqa: S314 - a test's own text
    for properties in feed.iter(f"{DATA[:-1]}/metadata}}properties"):
        names = [element.tag.removeprefix(DATA) for element in properties]
        assert names[-2:] == [WRITTEN[name], "after"]
