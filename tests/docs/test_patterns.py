"""The examples of docs/patterns run as they stand, and no page is longer than two screens."""

import re
from pathlib import Path

import pytest

from tablestone.advice.advising import RULES
from tablestone.testing.storage import StorageAccount

PAGES = sorted((Path(__file__).parents[2] / "docs" / "patterns").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCREEN_LINES = 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_runs(page: Path, table_account: StorageAccount) -> None:
    text = page.read_text("utf-8")
    names = {"connection_string": table_account.connection_string, "__name__": "__main__"}
    blocks = BLOCK.findall(text)
    assert blocks or page.stem == "index"
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)  # noqa: S102 - the page's own program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_at_most_two_screens(page: Path) -> None:
    assert len(page.read_text("utf-8").splitlines()) <= 2 * SCREEN_LINES


def test_advice_names_chapters_that_are_there() -> None:
    rules = [each for each in RULES if "docs/patterns/" in each.cost]
    chapters = {each.cost.rpartition("docs/patterns/")[2] for each in rules}
    assert len(rules) >= 8
    assert chapters <= {f"{page.name}." for page in PAGES}
