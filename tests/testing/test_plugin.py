"""The pytest plugin as its users run it: on their test files, in a process of its own."""

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from testing.pytest_runs import PLUGIN, run_pytest

ROOT = Path(__file__).parents[2]

SNIPPET = """
    def test_orders(table_service):
        orders = table_service.create_table("Orders")
        orders.create_entity({"PartitionKey": "p", "RowKey": "r"})
        assert len(list(orders.list_entities())) == 1
"""


def test_the_plugin_is_found_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # The name is that of the module, so that `-p` and `pytest_plugins` name this plugin and not a second one.
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert import_module(PLUGIN).table_service


def test_the_snippet_of_the_guide_works_with_nothing_configured(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, SNIPPET, "-W", "error")
    assert run.status == 0, run.output


@pytest.mark.parametrize("fixture", ["table_service", "async_table_service", "table_client"])
def test_a_fixture_without_the_sdk_says_what_installs_it(tmp_path: Path, fixture: str) -> None:
    without = 'import sys\nsys.modules["azure"] = None\ndef test_it({}):\n    pass\n'
    run = run_pytest(tmp_path, without.format(fixture))
    assert run.status == 1
    assert "This fixture needs azure-data-tables: pip install " in run.output
    assert "Traceback" not in run.output


def test_each_test_has_an_empty_account(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, SNIPPET + SNIPPET.replace("test_orders", "test_again"))
    assert "2 passed" in run.output


ALL_FIXTURES = """
    import asyncio
    from azure.data.tables import TableClient, TableServiceClient

    def test_all(
        table_storage, table_account, connection_string, table_service, table_client,
        async_table_service, async_table_client,
    ):
        assert table_account.connection_string == connection_string
        assert table_account.endpoint.startswith(table_storage.address)
        assert table_service.account_name == table_account.name
        table_client.create_entity({"PartitionKey": "p", "RowKey": "r"})

        async def read():
            names = [table.name async for table in async_table_service.list_tables()]
            return names, [entity async for entity in async_table_client.list_entities()]

        assert asyncio.run(read()) == (
            [table_client.table_name], [{"PartitionKey": "p", "RowKey": "r"}]
        )
        assert len(table_storage.requests) == 4

    def test_the_table_is_empty_again(table_client):
        assert list(table_client.list_entities()) == []
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "scope"), [("memory", "function"), ("memory", "module"), ("sqlite", "session")]
)
def test_every_fixture_works_in_every_scope(tmp_path: Path, engine: str, scope: str) -> None:
    options = f'tablestone_engine = "{engine}"\ntablestone_account_scope = "{scope}"'
    run = run_pytest(tmp_path, ALL_FIXTURES, "-W", "error", options=options)
    assert "2 passed" in run.output, run.output


def test_an_asynchronous_test_uses_the_asynchronous_clients(tmp_path: Path) -> None:
    test_file = """
        import pytest

        @pytest.mark.asyncio
        async def test_orders(async_table_client):
            await async_table_client.create_entity({"PartitionKey": "p", "RowKey": "r"})
            assert [entity async for entity in async_table_client.list_entities()]
    """
    run = run_pytest(tmp_path, test_file, plugins=("pytest_asyncio.plugin",))
    assert "1 passed" in run.output, run.output


@pytest.mark.slow
def test_processes_of_xdist_do_not_see_each_other(tmp_path: Path) -> None:
    tests = "".join(SNIPPET.replace("test_orders", f"test_{n}") for n in range(12))
    run = run_pytest(tmp_path, tests, "-n", "3", plugins=("xdist",))
    assert "12 passed" in run.output, run.output


MARKED = """
    import pytest

    pytestmark = pytest.mark.table_data("fixtures")

    @pytest.mark.table_data("fixtures/Orders.jsonl", table="Copies")
    def test_marked(table_storage, table_account):
        assert sorted(table_storage.dump(table_account)) == ["Copies", "Orders"]

    def test_alone(table_service):
        assert len(list(table_service.get_table_client("Orders").list_entities())) == 2
"""


def test_a_marker_seeds_the_account_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "Orders.jsonl").write_text(
        '{"PartitionKey":"p","RowKey":"1"}\n{"PartitionKey":"p","RowKey":"2"}\n'
    )
    run = run_pytest(tmp_path, MARKED, "--strict-markers")
    assert "2 passed" in run.output, run.output


def test_a_marker_with_a_bad_line_says_which(tmp_path: Path) -> None:
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "Orders.jsonl").write_text("no")
    output = run_pytest(tmp_path, MARKED).output
    assert "table_data: " in output
    assert "Orders.jsonl, line 1: not JSON" in output
    assert "plugin.py" not in output


MARK = "    import pytest\n    @pytest.mark.table_data"


@pytest.mark.parametrize("arguments", ["", '"fixtures", tabel="Orders"'])
def test_a_marker_that_means_nothing_is_refused(tmp_path: Path, arguments: str) -> None:
    run = run_pytest(
        tmp_path, SNIPPET.replace("    def test", f"{MARK}({arguments})\n    def test")
    )
    assert "The marker table_data takes paths, and table= for the name of the table." in run.output


FAILING = """
    import pytest
    from azure.core.exceptions import ResourceNotFoundError

    def test_passes(table_client):
        table_client.upsert_entity({"PartitionKey": "earlier", "RowKey": "r"})

    def test_fails(table_client):
        list(table_client.query_entities("total gt 5"))
        table_client.get_entity("p", "r")
"""


def test_a_failing_test_shows_its_last_requests(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, FAILING).output
    assert "1 failed, 1 passed" in output
    shown = output.partition("tablestone: last requests")[2]
    assert [line.partition(" ")[2] for line in shown.splitlines() if line.startswith("#")] == [
        "CreateTable TestTable -> 201",
        "QueryEntities TestTable [table: 0 read, 0 returned] -> 200",
        "GetEntity TestTable -> 404 ResourceNotFound",
    ]


def test_the_next_test_finds_the_clock_as_it_was(tmp_path: Path) -> None:
    test_file = """
        from datetime import UTC, datetime

        def test_turns(table_storage):
            table_storage.clock.freeze(datetime(2001, 1, 1, tzinfo=UTC))

        def test_next(table_storage):
            assert table_storage.clock.now().year > 2001
    """
    assert "2 passed" in run_pytest(tmp_path, test_file).output


def test_faults_and_clock_end_before_the_teardown_of_fixtures(tmp_path: Path) -> None:
    test_file = """
        from datetime import UTC, datetime
        import pytest

        @pytest.fixture
        def ends(table_storage, table_service):
            yield
            assert table_storage.clock.now().year > 2001
            table_service.create_table("Ended")
            table_storage.faults.add(error="ServerBusy")
            raise ValueError("the teardown of the user")

        def test_turns(table_storage, table_client, ends):
            table_storage.clock.freeze(datetime(2001, 1, 1, tzinfo=UTC))
            table_storage.faults.add(operation="CreateTable", error="InternalError")
            table_storage.faults.add(operation="DeleteTable", error="InternalError")

        def test_next(table_storage):
            assert table_storage.clock.now().year > 2001
            assert table_storage.faults.rules == []
    """
    output = run_pytest(tmp_path, test_file).output
    assert "2 passed, 1 error" in output
    assert "the teardown of the user" in output


def test_tests_that_share_an_account_share_no_table_under_realism(tmp_path: Path) -> None:
    test_file = """
        import pytest

        @pytest.mark.parametrize("attempt", range(3))
        def test_again(table_client, table_service, table_storage, table_account, attempt):
            assert list(table_client.list_entities()) == []
            table_client.create_entity({"PartitionKey": "p", "RowKey": "r"})
            assert list(table_storage.dump(table_account)) == [table_client.table_name]
            if attempt == 1:
                table_service.delete_table(table_client.table_name)
    """
    options = 'tablestone_realism = true\ntablestone_account_scope = "module"'
    run = run_pytest(tmp_path, test_file, options=options)
    assert "3 passed" in run.output, run.output


def test_a_run_may_refuse_every_unknown_version(tmp_path: Path) -> None:
    test_file = """
        import pytest
        from azure.core.exceptions import HttpResponseError

        def later(request):
            request.http_request.headers["x-ms-version"] = "2099-01-01"

        def test_later(table_service):
            with pytest.raises(HttpResponseError) as raised:
                table_service.create_table("Orders", raw_request_hook=later)
            assert raised.value.status_code == 400
    """
    run = run_pytest(tmp_path, test_file, options='tablestone_any_version = "false"')
    assert "1 passed" in run.output, run.output


def test_entities_of_2_mib_are_an_option(tmp_path: Path) -> None:
    test_file = """
        def test_large(table_client):
            large = "x" * 1_000_000
            table_client.create_entity({"PartitionKey": "p", "RowKey": "1", "Value": large})
            assert table_client.get_entity("p", "1")["Value"] == large
    """
    run = run_pytest(tmp_path, test_file, options='tablestone_entity_size = "2MiB"')
    assert "1 passed" in run.output, run.output
    assert "1 failed" in run_pytest(tmp_path, test_file).output


def test_a_test_may_restore_a_snapshot_without_its_account(tmp_path: Path) -> None:
    test_file = """
        import pytest

        @pytest.fixture(scope="session")
        def prepared(table_storage):
            yield table_storage.snapshot()

        @pytest.mark.parametrize("attempt", range(2))
        def test_restores(prepared, table_storage, table_account, table_client, attempt):
            table_storage.restore(prepared)
    """
    run = run_pytest(tmp_path, test_file)
    assert "2 passed" in run.output, run.output
    assert "error" not in run.output


def test_a_project_that_asks_for_nothing_loads_nothing(tmp_path: Path) -> None:
    test_file = """
        import sys

        def test_nothing():
            assert not {"httptools", "uvloop", "azure.data.tables"} & set(sys.modules)
    """
    assert "1 passed" in run_pytest(tmp_path, test_file).output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            'tablestone_engine = "disk"',
            "tablestone_engine: There is no engine 'disk': use memory, sqlite or a URL.",
        ),
        (
            'tablestone_account_scope = "test"',
            "tablestone_account_scope is 'test': use one of function, class",
        ),
        ('tablestone_realism = "much"', "tablestone_realism is neither true nor false."),
        (
            'tablestone_any_version = "all"',
            "tablestone_any_version is 'all': use one of later, true, false.",
        ),
        (
            'tablestone_entity_size = "3MiB"',
            "tablestone_entity_size is '3MiB': use one of 1MiB, 2MiB.",
        ),
        (
            'tablestone_engine = "sqlite:/proc/no"',
            "tablestone_engine: The data directory /proc/no cannot be used",
        ),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(
    tmp_path: Path, options: str, sentence: str
) -> None:
    run = run_pytest(tmp_path, SNIPPET, options=options)
    assert run.status != 0
    assert sentence in re.sub(r"\s+", " ", run.output)
    assert "plugin.py" not in run.output


def test_a_plugin_that_is_named_again_is_the_same_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f'pytest_plugins = ["{PLUGIN}"]\n')
    assert "1 passed" in run_pytest(tmp_path, SNIPPET, plugins=(PLUGIN,)).output


def test_a_second_plugin_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_configure(config):\n"
        "    from tablestone.testing import plugin\n"
        "    plugin.pytest_configure(config)\n"
    )
    run = run_pytest(tmp_path, SNIPPET)
    assert run.status == 4
    assert "The plugin of tablestone is loaded twice" in run.output
