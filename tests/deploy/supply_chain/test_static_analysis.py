"""The static analyser finds weaknesses under this project's settings: Ruff's security rules, taken from Bandit."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

WEAKNESSES = {
    "S102": "exec(text)",
    "S105": 'password = "hunter2"',
    "S108": 'path = "/tmp/tablestone"',
    "S113": "requests.get(url)",
    "S301": "pickle.loads(text)",
    "S307": "eval(text)",
    "S311": "random.random()",
    "S314": "xml.etree.ElementTree.fromstring(text)",
    "S324": "hashlib.md5(text)",
    "S323": "ssl._create_unverified_context()",
    "S501": "requests.get(url, verify=False, timeout=1)",
    "S506": "yaml.load(text)",
    "S602": "subprocess.run(text, shell=True)",
    "S608": 'query = f"SELECT * FROM stored_rows WHERE row = {text}"',
}
MODULES = "hashlib pickle random requests ssl subprocess yaml xml.etree.ElementTree"
NOT_CHECKED = re.compile(r"# noqa: (S\d+)\b(?! - \w)")


@pytest.mark.skipif(find_spec("ruff") is None, reason="needs pip install '.[dev]'")
def test_a_planted_weakness_is_found() -> None:
    program = "".join(f"import {module}\n" for module in MODULES.split())
    program += "".join(f"{line}\n" for line in WEAKNESSES.values())
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"),
            *("--stdin-filename", "src/tablestone/planted.py", "-"),
        ],
        input=program,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 1, ended
    assert set(re.findall(r" (S\d+) ", ended.stdout)) >= set(WEAKNESSES)


def test_an_exception_from_a_security_rule_says_why() -> None:
    bare = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in (ROOT / "src").rglob("*.py")
        for found in NOT_CHECKED.findall(path.read_text("utf-8"))
    ]
    assert bare == []
    assert NOT_CHECKED.findall("exec(x)  # noqa: S102") == ["S102"], "a bare one is found"
