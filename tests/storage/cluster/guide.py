"""The operators' guide to a cluster, and its lines of nodetool, which the tests run."""

from pathlib import Path
from typing import Final

from storage.cluster.nodes import Node

_GUIDES: Final = Path(__file__).parents[3] / "docs" / "guides"
GUIDE: Final = "\n".join(page.read_text() for page in sorted(_GUIDES.glob("cassandra*.md")))


def nodetool(node: Node, command: str, **places: object) -> str:
    """Run a line of the guide on a node, with some of its words replaced."""
    assert f"    nodetool {command}\n" in GUIDE
    for name, place in places.items():
        command = command.replace(name, str(place))
    return node.nodetool(*command.split())
