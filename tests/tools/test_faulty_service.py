"""A service that throttles, resets, loses answers and truncates them: the stored and the read data are the same."""

import socket
from typing import Any

import pytest

from server_process import ServerProcess
from tablestone.model.keys import EntityKey
from tablestone.tools.client import Operation, Page, TableEndpoint
from tools.data_tools import DataTools, entity
from tools.faulty_service import ANSWER_LOST, BUSY, CUT_OFF, RESET, THROTTLED, Plan, faulty_service


def every(number: int, fault: str, *, of: str = "") -> Plan:
    """A fault for every `number`-th request whose path contains `of`."""
    return lambda count, _method, path: fault if of in path and count % number == 0 else None


def through(tools: DataTools, address: tuple[str, int], port: int) -> str:
    """The faulty service's connection string."""
    return tools.connection_string.replace(f":{address[1]}/", f":{port}/")


FAULTS = [BUSY, THROTTLED, RESET, ANSWER_LOST, CUT_OFF]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rule", ["fail", "replace"])
def test_an_import_stores_each_row_once(
    tools: DataTools, table: str, tablestone_server: ServerProcess, fault: str, rule: str
) -> None:
    """With `fail`, a row that was stored without an answer is no conflict: the stored entity equals the row."""
    entities = [entity(f"p{n // 500}", f"{n:05}", n=n) for n in range(2000)]
    path = tools.write_lines("a.jsonl", entities)
    tools.run("tables", "--create", table)
    direct = tools.connection_string
    with faulty_service(tablestone_server.address, every(3, fault, of="$batch")) as service:
        tools.connection_string = through(tools, tablestone_server.address, service.port)
        told = tools.run("import", path, table, "--on-conflict", rule).stdout
        assert told.startswith("2,000 entities stored in ")
        assert service.done.count(fault) >= 5
    tools.connection_string = direct
    assert tools.all_of(table) == entities


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_an_export_is_whole(
    tools: DataTools, table: str, tablestone_server: ServerProcess, fault: str
) -> None:
    entities = [entity("p", f"{n:05}", n=n) for n in range(4000)]
    tools.run("import", tools.write_lines("a.jsonl", entities), table)
    direct = tools.connection_string
    with faulty_service(tablestone_server.address, every(2, fault, of=f"{table}()")) as service:
        tools.connection_string = through(tools, tablestone_server.address, service.port)
        found = tools.run("export", table, "-").entities
        assert service.done != []
    tools.connection_string = direct
    assert found == entities


def test_an_endpoint_that_stays_away_is_a_sentence(
    tools: DataTools, table: str, tablestone_server: ServerProcess, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.0)
    direct = tools.connection_string
    with faulty_service(tablestone_server.address, every(1, BUSY)) as service:
        tools.connection_string = through(tools, tablestone_server.address, service.port)
        failed = tools.run("count", table, status=1).stderr
    tools.connection_string = direct
    assert failed == "tablestone: The service answers HTTP status 503 (tried 10 times).\n"


def test_an_endpoint_that_never_was_there_is_a_sentence_soon(
    tools: DataTools, tablestone_server: ServerProcess
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    direct = tools.connection_string
    tools.connection_string = through(tools, tablestone_server.address, port)
    failed = tools.run("count", "Orders", status=1).stderr
    tools.connection_string = direct
    assert failed.startswith(f"tablestone: The service cannot be reached: 127.0.0.1:{port}: ")
    assert failed.endswith(" (tried 4 times).\n")


def test_a_deletion_whose_answer_is_lost_is_counted(
    tools: DataTools, table: str, tablestone_server: ServerProcess
) -> None:
    entities = [entity("p", f"{n:05}") for n in range(300)]
    tools.run("import", tools.write_lines("a.jsonl", entities), table)
    batches = iter(range(10**9))

    def second_answer(_number: int, _method: str, path: str) -> str | None:
        return ANSWER_LOST if "$batch" in path and next(batches) == 1 else None

    direct = tools.connection_string
    with faulty_service(tablestone_server.address, second_answer) as service:
        tools.connection_string = through(tools, tablestone_server.address, service.port)
        told = tools.run("clear", table, "--yes", "--parallel", "1").lines
        assert service.done == [ANSWER_LOST]
    tools.connection_string = direct
    assert told == [
        "300 entities deleted.",
        "The answer for 100 of them was lost: they are gone, and another client may have deleted some.",
    ]
    assert tools.all_of(table) == []


def test_what_another_client_deletes_meanwhile_is_reported(
    tools: DataTools, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.run(
        "import", tools.write_lines("a.jsonl", [entity("p", f"{n}") for n in range(3)]), table
    )
    real = TableEndpoint.page

    def page(self: TableEndpoint, *arguments: Any) -> Page:
        found = real(self, *arguments)
        self.transact(table, [Operation("DELETE", EntityKey("p", "1"), if_match="*")])
        return found

    monkeypatch.setattr(TableEndpoint, "page", page)
    told = tools.run("clear", table, "--yes").lines
    assert told == ["2 entities deleted.", "1 were gone already: another client deleted them."]
