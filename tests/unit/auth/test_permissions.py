"""Permissions: every operation has its row in the one table, and the documentation shows the same table."""

import re
from pathlib import Path
from typing import get_args

from tablestone.auth.permissions import NEEDS, AnyOf
from tablestone.model.operations import EntityGroupTransaction, Operation

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
_SERVICE = "Microsoft.Storage/storageAccounts/tableServices/"
_BLOCK = re.compile(r"<!-- permissions:.*?-->\n(.*?)<!-- end of permissions -->", re.DOTALL)


def test_every_operation_has_a_row() -> None:
    assert set(NEEDS) == set(get_args(Operation))


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


def _cell(alternatives: AnyOf, before: str = "") -> str:
    texts = [
        "+".join(f"`{item.removeprefix(_SERVICE)}`" for item in sorted(alternative))
        for alternative in alternatives
    ]
    return before + " or ".join(texts) if texts else "never"


def permission_table() -> str:
    """The table of permissions as the documentation has it."""
    lines = [
        "| operation | account SAS: `srt`, `sp` | table SAS: `sp` | action of a role |",
        "|---|---|---|---|",
    ]
    for operation, need in NEEDS.items():
        if operation is EntityGroupTransaction:
            continue
        cells = (
            _words(operation.__name__),
            _cell(need.account_sas, f"`{need.resource_type}`, "),
            _cell(need.table_sas),
            _cell(need.actions),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_documentation_shows_the_table() -> None:
    """If it fails, paste what it prints between the two comments."""
    found = _BLOCK.search(_PAGE.read_text(encoding="utf-8"))
    assert found
    assert found[1] == permission_table(), permission_table()
