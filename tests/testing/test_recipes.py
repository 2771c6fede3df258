"""Every Python block of the guide is a test file that passes when a reader copies and runs it."""

import re
from pathlib import Path

import pytest

from testing.pytest_runs import run_pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
OPTIONS = re.findall(
    r"^```toml\n\[tool.pytest.ini_options\]\n(.*?)^```",
    GUIDE.read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)

NOT_OF_THE_EXTRA = [
    "aiohttp",
    "httpx",
    "hypothesis",
    "jsonschema",
    "keyring",
    "pyarrow",
    "rich",
    "setproctitle",
    "yaml",
    "backports.zstd",
]


@pytest.mark.slow
def test_every_recipe_passes(tmp_path: Path) -> None:
    # Packages that are installed here, and that the extra `testing` does not install.
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({NOT_OF_THE_EXTRA}))\n", encoding="utf-8"
    )
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"test_recipe_{number}.py").write_text(block, encoding="utf-8")
    tests = sum(
        len(re.findall(r"^(?:    )?(?:async )?def test_", block, re.MULTILINE)) for block in BLOCKS
    )
    run = run_pytest(tmp_path, "", options="".join(OPTIONS))
    assert run.status == 0, run.output
    passed = re.search(
        r"= (\d+) passed in", run.output
    )  # the line has no skipped test and no warning
    assert passed is not None, run.output
    assert int(passed[1]) >= tests > len(BLOCKS)


def test_a_recipe_that_fails_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_recipe_0.py").write_text(BLOCKS[0].replace("== 1", "== 2"), encoding="utf-8")
    run = run_pytest(tmp_path, "")
    assert "1 failed" in run.output
