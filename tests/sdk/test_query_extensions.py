"""The last keys first through SDKs, as docs/guides/query-extensions.md shows it: their pages go on in that order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.data.tables import TableClient

from sdk.install import language

if TYPE_CHECKING:
    from conftest import StartServer

pytestmark = pytest.mark.sdk
ROOT = Path(__file__).parents[2]
ROWS = [f"{number:02}" for number in range(7)]
JAVASCRIPT = """
import {{ TableClient }} from "@azure/data-tables";
const connectionString = process.argv[1];
{snippet}
const found = [];
const pages = table.listEntities({{ queryOptions: {{ filter: "PartitionKey eq 'pump-7'" }} }});
for await (const page of pages.byPage({{ maxPageSize: 3 }})) for (const each of page) found.push(each.rowKey);
console.log(found.join());
"""


@pytest.fixture
def connection_string(private_server: StartServer, tmp_path: Path) -> str:
    """Of a server with the table Log."""
    server = private_server(tmp_path / "data", "--query-extensions=true")
    table = TableClient.from_connection_string(server.connection_string, "Log")
    table.create_table()
    for partition in ("pump-6", "pump-7", "pump-8"):
        for row in ROWS:
            table.create_entity({"PartitionKey": partition, "RowKey": row})
    return server.connection_string


def snippet(name: str) -> str:
    guide = (ROOT / "docs/guides/query-extensions.md").read_text(encoding="utf-8")
    found = re.search(rf"    ```{name}\n(.*?)    ```", guide, re.DOTALL)
    assert found is not None
    return re.sub(r"^    ", "", found[1], flags=re.MULTILINE)


def test_python(connection_string: str) -> None:
    names: dict[str, Any] = {"connection_string": connection_string}
    text = snippet("python").replace("results_per_page=10", "results_per_page=3")
    exec(text, names)  # noqa: S102 - the guide's
    assert [each["RowKey"] for each in names["newest"]] == ROWS[::-1]


def test_javascript(connection_string: str) -> None:
    if (reason := language("javascript").missing()) is not None:
        pytest.skip(reason)
    text = JAVASCRIPT.format(snippet=snippet("js"))
    command = [language("javascript").interchange()[0], "--input-type=module", "--eval", text]
    ended = subprocess.run(
        [*command, connection_string],
        cwd=ROOT / "tests/sdk/javascript",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert ended.stdout.strip() == ",".join(ROWS[::-1]), ended.stderr
