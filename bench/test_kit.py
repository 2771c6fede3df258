"""How long the test kit takes: `python -m bench.test_kit`, after `pip install '.[testing]'`.

Start and stop in the process, a fresh account, a reset, a snapshot of 100,000 entities, 1,000 tests with an account
each; then a server under control, beside Azurite where Node is installed: the start, and a reset between two tests.
Azurite has no reset, so its tables are deleted one by one. Each figure is the median of its repetitions.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

from bench import servers
from bench.prerequisites import PrerequisiteError
from tablestone.testing import TableStorage

ENTITIES = 100_000
ACCOUNTS = 1000
TESTS = 1000
TABLES = 10
"""How many tables a test leaves behind, each with ten entities."""
STARTS = 5
CONTROLLED = [
    *("-m", "tablestone", "serve", "--engine", "memory", "--port", "0"),
    *("--control", "0", "--print", "json"),
]

TEST_FILE = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_it(number{fixture}):
    pass
"""


def milliseconds(work: Callable[[], object], times: int) -> float:
    """The median of so many runs."""
    took = []
    for _ in range(times):
        started = perf_counter()
        work()
        took.append(1000 * (perf_counter() - started))
    return median(took)


def show(what: str, figure: float) -> None:
    print(f"{what:52} {figure:9.2f} ms", flush=True)


def in_process() -> None:
    """Starts and stops, accounts, and a reset, in this process."""
    storage = TableStorage()
    show("first start", milliseconds(storage.start, 1))
    show("stop", milliseconds(storage.close, 1))
    later = [TableStorage() for _ in range(20)]
    show("later start", median(milliseconds(each.start, 1) for each in later))
    show("stop, median of 20", median(milliseconds(each.close, 1) for each in later))
    with TableStorage() as storage:
        show(f"fresh account, of {ACCOUNTS}", milliseconds(storage.create_account, ACCOUNTS))
        account = storage.create_account()
        rows = [{"PartitionKey": "p", "RowKey": f"{n:03}"} for n in range(100)]
        took = []
        for _ in range(50):
            storage.seed({"Orders": rows}, account=account)
            took.append(milliseconds(lambda: storage.reset(account), 1))
        show("reset of an account with 100 entities", median(took))


def snapshots() -> None:
    """A snapshot of many entities, and its restoration."""
    with TableStorage() as storage:
        storage.seed({
            "Orders": [
                {"PartitionKey": f"{n // 1000:04}", "RowKey": f"{n:06}", "total": n}
                for n in range(ENTITIES)
            ]
        })  # fmt: skip
        show(f"snapshot of {ENTITIES} entities", milliseconds(storage.snapshot, 20))
        snapshot = storage.snapshot()
        show(f"restore of {ENTITIES} entities", milliseconds(lambda: storage.restore(snapshot), 20))


def tests_with_accounts() -> None:
    """What an account for each test costs in all: a run of pytest with the fixture, less one without it."""

    def run(fixture: str) -> float:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "test_accounts.py"
            file.write_text(TEST_FILE.format(tests=TESTS, fixture=fixture))
            plugin = ["-p", "tablestone.testing.plugin"]
            alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": ":".join(sys.path)}
            command = [sys.executable, "-m", "pytest", "-q", *plugin, file.name]
            started = perf_counter()
            subprocess.run(command, cwd=directory, env=alone, capture_output=True, check=True)
            return 1000 * (perf_counter() - started)

    without = median(run("") for _ in range(3))
    show(
        f"{TESTS} tests with an account each, overhead in all",
        median(run(", table_account") for _ in range(3)) - without,
    )


def fill(service: TableServiceClient) -> None:
    """Create the tables of one test."""
    for table in range(TABLES):
        client = service.create_table(f"Orders{table}")
        client.submit_transaction(
            [("create", {"PartitionKey": "p", "RowKey": str(row)}) for row in range(10)]
        )


def delete_tables(service: TableServiceClient) -> None:
    """Reset the way that clients of Azurite do."""
    for table in list(service.list_tables()):
        service.delete_table(table.name)


def under_control() -> None:
    """A server in its own process."""

    def start() -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        process = subprocess.Popen(
            [sys.executable, *CONTROLLED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    took = []
    for _ in range(STARTS):
        started = perf_counter()
        process, ready = start()
        took.append(1000 * (perf_counter() - started))
        process.terminate()
        process.wait()
    show("serve --control, until it is ready", median(took))
    process, ready = start()
    endpoint = f"{ready['address']}/{servers.ACCOUNT}"
    reset = urllib.request.Request(f"{ready['control']}/reset", b"{}", method="POST")  # noqa: S310 - this machine
    resets, deletions = [], []
    with TableServiceClient(endpoint, credential=_credential()) as service:
        for _ in range(10):
            fill(service)
            resets.append(milliseconds(lambda: urllib.request.urlopen(reset).close(), 1))  # noqa: S310 - this machine
            fill(service)
            deletions.append(milliseconds(lambda: delete_tables(service), 1))
    show(f"reset of {TABLES} tables over HTTP", median(resets))
    show(f"reset by deleting {TABLES} tables", median(deletions))
    process.terminate()
    process.wait()


def azurite() -> None:
    """The same with Azurite, here not in a container."""
    took = []
    for _ in range(STARTS):
        started = perf_counter()
        server = servers.start(servers.AZURITE, Path())
        took.append(1000 * (perf_counter() - started))
        server.stop()
    show("Azurite, until it accepts connections", median(took))
    server = servers.start(servers.AZURITE, Path())
    endpoint = f"http://{server.address}{server.base_path}"
    deletions = []
    with TableServiceClient(endpoint, credential=_credential()) as service:
        for _ in range(10):
            fill(service)
            deletions.append(milliseconds(lambda: delete_tables(service), 1))
    show(f"Azurite, reset by deleting {TABLES} tables", median(deletions))
    server.stop()


def _credential() -> AzureNamedKeyCredential:
    return AzureNamedKeyCredential(servers.ACCOUNT, servers.KEY)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.test_kit", description=__doc__)
    parser.parse_args()
    in_process()
    snapshots()
    tests_with_accounts()
    under_control()
    try:
        azurite()
    except PrerequisiteError as missing:
        print(missing)


if __name__ == "__main__":
    main()
