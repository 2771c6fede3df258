"""The guides that show commands: each command does what the page says."""

import os
import re
import shutil
from pathlib import Path

import pytest

from deploy.deployed import DEPLOY, needs
from deploy.install import program
from docs.guides.page_commands import GUIDES, commands_of, fits, run_page
from server_process import free_ports
from tablestone.tools.connection import LOCAL_ACCOUNT, LOCAL_KEY

PAGES = (
    "ci.md",
    "commands.md",
    "curl.md",
    "encryption.md",
    "from-azurite.md",
    "insight.md",
    "monitoring.md",
    "storage-explorer.md",
)


@needs("helm")
def test_the_commands_with_helm(tmp_path: Path) -> None:
    helm = program("helm")
    assert helm is not None
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    path = f"{Path(helm).parent}:{os.environ['PATH']}"
    page = (GUIDES / "containers.md").read_text(encoding="utf-8")
    run_page(page, tmp_path, environment={"PATH": path})


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_does_what_the_page_says(page: str, tmp_path: Path) -> None:
    run_page((GUIDES / page).read_text(encoding="utf-8"), tmp_path)


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    """Its commands print what it says, and so do the program and the test that its reader saves."""
    page = (GUIDES.parent / "start" / "tutorial.md").read_text(encoding="utf-8")
    tables, admin = map(str, free_ports(2))
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={LOCAL_ACCOUNT};AccountKey={LOCAL_KEY};"
        f"TableEndpoint=http://127.0.0.1:{tables}/{LOCAL_ACCOUNT};"
    )
    for text, name in re.findall(r"^```python\n(# (\S+)\n.*?)^```", page, re.MULTILINE | re.DOTALL):
        program = text.replace("UseDevelopmentStorage=true", connection)
        (tmp_path / name).write_text(program, encoding="utf-8")
    for ours, instead in (
        ("$ tablestone demo\n", "$ tablestone demo --no-browser --port 10002 --admin 10003\n"),
        ("$ . .venv/bin/activate\n", ""),
        # A reader takes longer than the counts.
        ("$ tablestone insight", "$ sleep 5; tablestone insight"),
    ):
        assert ours in page
        page = page.replace(ours, instead)
    run_page(
        page,
        tmp_path,
        places={"10002": tables, "10003": admin},
        environment={"AZURE_STORAGE_CONNECTION_STRING": connection},
    )


def test_a_page_is_taken_apart() -> None:
    page = "text\n```console\n$ cat <<END\n> one\n> END\none\n$ true\n```\n```console\n$ ls\n```\n"
    assert [(each.typed, each.shown) for each in commands_of(page)] == [
        ("cat <<END\none\nEND", "one\n"),
        ("true", ""),
        ("ls", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a…c\n", "abc\n", "fits"),
        ("a…c\n", "abd\n", "does not"),
        ("", "anything\n", "fits"),
        ("a\n", "a\nb\n", "does not"),
    ],
)
def test_what_fits(shown: str, printed: str, expected: str) -> None:
    assert fits(shown, printed) == (expected == "fits")


@pytest.mark.parametrize("planted", ["false", "echo other"])
def test_a_command_that_does_something_else_is_found(planted: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"exit status 1|other"):
        run_page(f"```console\n$ {planted}\nshown\n```\n", tmp_path)


def test_commands_share_one_shell(tmp_path: Path) -> None:
    page = "```console\n$ name=value; mkdir there; cd there\n$ echo $name; basename $PWD\nvalue\nthere\n```\n"
    run_page(page, tmp_path)
