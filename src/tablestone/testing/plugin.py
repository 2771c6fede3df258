"""The pytest plugin: fixtures of a table service in the test's own process; a failing test's report shows its requests.

pytest finds the plugin by itself (entry point `pytest11`). The service is imported when a test first asks for a
fixture. Each process has one storage, with pytest-xdist too. Each test has its own account, unless an option lets a
class, module, package or session share one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from tablestone.extras import needs
from tablestone.limits import ENTITY_SIZES
from tablestone.wire.versions import UnknownVersions

if TYPE_CHECKING:
    from azure.data.tables import TableClient, TableServiceClient
    from azure.data.tables.aio import TableClient as AsyncTableClient
    from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

    from tablestone.testing.storage import StorageAccount, TableStorage

ENGINE_OPTION: Final = "tablestone_engine"
SCOPE_OPTION: Final = "tablestone_account_scope"
REALISM_OPTION: Final = "tablestone_realism"
ANY_VERSION_OPTION: Final = "tablestone_any_version"
ENTITY_SIZE_OPTION: Final = "tablestone_entity_size"
ANY_VERSIONS: Final = tuple(form.value for form in UnknownVersions)
SCOPES: Final = ("function", "class", "module", "package", "session")
REQUESTS_SHOWN_MAX: Final = 20
TABLE_NAME: Final = "TestTable"
"""The table of the first `table_client` of an account."""
SECTION: Final = "tablestone: last requests"

Scope = Literal["session", "package", "module", "class", "function"]


class _OneProcess:
    """The storage of this process, if a test has asked for one, and the number of requests before this test."""

    def __init__(self) -> None:
        self.storage: TableStorage | None = None
        self.requests_before = 0


_KEY: Final = pytest.StashKey[_OneProcess]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(ENGINE_OPTION, "memory, sqlite, or the URL of an engine", default="memory")
    parser.addini(
        REALISM_OPTION,
        "names of deleted tables stay taken for 40 s, pages end with partition ranges, the secondary is behind",
        type="bool",
        default=False,
    )
    parser.addini(
        ANY_VERSION_OPTION,
        f"which unknown versions of the service are served: {', '.join(ANY_VERSIONS)}",
        default=UnknownVersions.LATER.value,
    )
    parser.addini(
        ENTITY_SIZE_OPTION,
        f"the largest entity, as --entity-size: {' or '.join(ENTITY_SIZES)}",
        default=next(iter(ENTITY_SIZES)),
    )
    parser.addini(
        SCOPE_OPTION, f"what has an account of its own: {', '.join(SCOPES)}", default="function"
    )


def pytest_configure(config: pytest.Config) -> None:
    if _KEY in config.stash:
        raise pytest.UsageError(
            "The plugin of tablestone is loaded twice: pytest finds it by itself, so leave out -p."
        )
    config.stash[_KEY] = _OneProcess()
    config.addinivalue_line(
        "markers",
        "table_data(path, ..., table=None): store the entities of a file or a directory in the account of the test; "
        "a path is relative to the test file, and the name of a file is that of the table",
    )
    try:
        config.getini(REALISM_OPTION)
    except (ValueError, pytest.UsageError):
        raise pytest.UsageError(f"{REALISM_OPTION} is neither true nor false.") from None
    for option, words in (
        (SCOPE_OPTION, SCOPES),
        (ANY_VERSION_OPTION, ANY_VERSIONS),
        (ENTITY_SIZE_OPTION, ENTITY_SIZES),
    ):
        if (word := config.getini(option)) not in words:
            raise pytest.UsageError(f"{option} is {word!r}: use one of {', '.join(words)}.")


def _account_scope(fixture_name: str, config: pytest.Config) -> Scope:  # noqa: ARG001 - pytest gives it by name
    scope: Scope = config.getini(SCOPE_OPTION)
    return scope


@pytest.fixture(scope="session")
def table_storage(request: pytest.FixtureRequest) -> Iterator[TableStorage]:
    """The table service of this process. After each test, its clock is reset and its faults are removed."""
    from tablestone.engines.contract import EngineRefused  # noqa: PLC0415 - loads the server
    from tablestone.testing.state import StorageRefused  # noqa: PLC0415 - as above
    from tablestone.testing.storage import TableStorage  # noqa: PLC0415 - as above

    process = request.config.stash[_KEY]
    try:
        storage = TableStorage(
            engine=request.config.getini(ENGINE_OPTION),
            realism=request.config.getini(REALISM_OPTION),
            any_version=request.config.getini(ANY_VERSION_OPTION),
            entity_size=request.config.getini(ENTITY_SIZE_OPTION),
        ).start()
    except (StorageRefused, EngineRefused) as refused:
        pytest.fail(f"{ENGINE_OPTION}: {refused}", pytrace=False)
    with contextlib.closing(storage):
        process.storage = storage
        yield storage
        process.storage = None


@pytest.fixture(scope=_account_scope)
def table_account(table_storage: TableStorage) -> Iterator[StorageAccount]:
    """An empty account, for this test alone unless `tablestone_account_scope` says otherwise."""
    from tablestone.testing.state import StorageRefused  # noqa: PLC0415 - loads the server

    account = table_storage.create_account()
    yield account
    with contextlib.suppress(StorageRefused):  # the test may have restored a snapshot without it
        table_storage.delete_account(account.name)


@pytest.fixture(autouse=True)
def _table_data(request: pytest.FixtureRequest) -> None:
    """Store the files that the test's `table_data` markers name."""
    markers = list(request.node.iter_markers("table_data"))
    if not markers:
        return
    storage: TableStorage = request.getfixturevalue("table_storage")
    account: StorageAccount = request.getfixturevalue("table_account")
    from tablestone.testing.state import SeedRefused  # noqa: PLC0415 - loads the server

    for marker in reversed(markers):
        if not marker.args or set(marker.kwargs) - {"table"}:
            pytest.fail(
                "The marker table_data takes paths, and table= for the name of the table.",
                pytrace=False,
            )
        for path in marker.args:
            try:
                storage.seed(request.path.parent / path, account=account, **marker.kwargs)
            except SeedRefused as refused:
                pytest.fail(f"table_data: {refused}", pytrace=False)


@pytest.fixture(scope=_account_scope)
def connection_string(table_account: StorageAccount) -> str:
    """The connection string of the account, for every SDK."""
    return table_account.connection_string


@contextlib.contextmanager
def _refusing_without_azure() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError:
        pytest.fail(needs("This fixture", "azure-data-tables", "testing"), pytrace=False)


@pytest.fixture(scope=_account_scope)
def table_service(connection_string: str) -> Iterator[TableServiceClient]:
    """An `azure.data.tables.TableServiceClient` on the account, over HTTP."""
    with _refusing_without_azure():
        from azure.data.tables import TableServiceClient  # noqa: PLC0415 - loads slowly

    with TableServiceClient.from_connection_string(connection_string) as service:
        yield service


@pytest.fixture(scope=_account_scope)
def _table_names() -> Iterator[str]:
    """Table names for tests that share an account. Each is used once: the name of a deleted table may stay taken."""
    return (f"{TABLE_NAME}{number}" if number > 1 else TABLE_NAME for number in count(1))


@pytest.fixture
def table_client(
    table_storage: TableStorage,
    table_account: StorageAccount,
    table_service: TableServiceClient,
    _table_names: Iterator[str],
) -> Iterator[TableClient]:
    """An `azure.data.tables.TableClient` on an empty table of the account. `table_name` is the table's name."""
    from tablestone.testing.state import StorageRefused  # noqa: PLC0415 - loads the server

    with table_service.create_table(next(_table_names)) as client:
        yield client
        with contextlib.suppress(StorageRefused):  # as for the account
            table_storage.delete_table(client.table_name, table_account)


@pytest.fixture(scope=_account_scope)
def async_table_service(
    table_storage: TableStorage, connection_string: str
) -> AsyncTableServiceClient:
    """An async `TableServiceClient` without socket, event loop or `close`: it works with any plugin for async tests."""
    with _refusing_without_azure():
        from azure.data.tables.aio import TableServiceClient  # noqa: PLC0415 - loads slowly

    from tablestone.testing.transports import AsyncStorageTransport  # noqa: PLC0415 - loads slowly

    return TableServiceClient.from_connection_string(
        connection_string, transport=AsyncStorageTransport(table_storage)
    )


@pytest.fixture
def async_table_client(
    table_client: TableClient, async_table_service: AsyncTableServiceClient
) -> AsyncTableClient:
    """An `azure.data.tables.aio.TableClient` on the table of `table_client`."""
    return async_table_service.get_table_client(table_client.table_name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    process = item.config.stash[_KEY]
    process.requests_before = 0 if process.storage is None else process.storage.requests_count


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Reset clock and faults before the teardown, which they would disturb, and after it: it may add some."""
    process = item.config.stash[_KEY]
    _reset_clock_and_faults(process.storage)
    try:
        return (yield)
    finally:
        _reset_clock_and_faults(process.storage)


def _reset_clock_and_faults(storage: TableStorage | None) -> None:
    if storage is not None:
        storage.clock.reset()
        storage.faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[Any],  # noqa: ARG001 - pytest gives it by name
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the requests of a failed test to its report."""
    report = yield
    process = item.config.stash[_KEY]
    if report.failed and process.storage is not None:
        made = process.storage.requests_since(process.requests_before)
        if made:
            shown = "\n".join(map(str, made[-REQUESTS_SHOWN_MAX:]))
            report.sections.append((SECTION, shown))
    return report
