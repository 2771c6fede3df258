"""No key shows in a process list, a journal, a reject file, an error or the output of a command."""

import time
from pathlib import Path

import pytest

from server_process import ServerProcess
from tablestone.cli.main import without_secrets
from tools.data_tools import DataTools, entity
from tools.faulty_service import BUSY, faulty_service

KEY = "c2VjcmV0IGtleQ=="


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            ["--connection-string", f"AccountName=a;AccountKey={KEY};X=y"],
            ["--connection-string", "AccountName=a;AccountKey=(hidden);X=y"],
        ),
        (
            ["--from", f"https://a.example/?sv=1&sig={KEY}&se=2"],
            ["--from", "https://a.example/?sv=1&sig=(hidden)&se=2"],
        ),
        (["--sas", f"sv=1&sig={KEY}"], ["--sas", "(hidden)"]),
        (["--sas", "@file"], ["--sas", "@file"]),
        (["query", "Weather"], ["query", "Weather"]),
    ],
)
def test_secrets_in_arguments(arguments: list[str], shown: list[str]) -> None:
    assert without_secrets(arguments) == shown


def test_a_process_does_not_show_its_key(
    tools: DataTools, tablestone_server: ServerProcess
) -> None:
    """A service that is always busy keeps the command waiting while the test reads its arguments."""
    key = tablestone_server.account_key
    with faulty_service(tablestone_server.address, lambda *_: BUSY) as service:
        text = tools.connection_string.replace(
            f":{tablestone_server.address[1]}/", f":{service.port}/"
        )
        process = tools.start("count", "Weather", "--connection-string", text)
        try:
            deadline = time.monotonic() + 30
            while not service.targets and time.monotonic() < deadline:
                time.sleep(0.02)
            assert service.targets
            shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        finally:
            process.kill()
            stdout, stderr = process.communicate()
    assert "count" in shown
    assert "AccountKey=(hidden)" in shown
    assert key not in shown + stdout + stderr


def test_no_file_of_a_transfer_holds_the_key(
    tools: DataTools, table: str, tablestone_server: ServerProcess
) -> None:
    path = tools.write_lines("a.jsonl", [entity("p", "1"), entity("p/", "2")])
    tools.run("import", path, table, "--on-conflict", "replace", status=1)
    tools.run("export", table, tools.directory / "b.jsonl")
    for file in tools.directory.rglob("*"):
        if file.is_file():
            assert tablestone_server.account_key not in file.read_text(), file


def test_a_wrong_key_is_not_shown(tools: DataTools) -> None:
    wrong = tools.connection_string.replace("AccountKey=Eby8", f"AccountKey={KEY[:4]}")
    failed = tools.run("tables", "--connection-string", wrong, status=1)
    assert "AuthenticationFailed" in failed.stderr
    assert wrong.partition("AccountKey=")[2].partition(";")[0] not in failed.stderr + failed.stdout
