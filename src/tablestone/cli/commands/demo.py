"""`tablestone demo`: a server in memory with sample data and a workload, and the explorer on it."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click
import orjson

from tablestone.cli.commands.explore import open_browser
from tablestone.cli.option_sources import AZURITE_VARIABLE, KEY_VARIABLE
from tablestone.cli.options import CONFIG_VARIABLE, SERVER_OPTIONS
from tablestone.extras import IS_FROZEN
from tablestone.tools.client import Operation, Query, TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import Unreachable
from tablestone.tools.odata import key_of
from tablestone.tools.sample_data import load_sample_data

PROGRAM: Final = (sys.executable,) if IS_FROZEN else (sys.executable, "-m", "tablestone")
SERVE: Final = (
    *("serve", "--engine", "memory", "--explorer", "--print", "json"),
    *("--keep-changes", "16MiB"),
)
HOT_PARTITION: Final = "UA"
"""The partition of Flights that gets most writes: the airline with the most flights."""
SCAN: Final = "tailnum eq 'N730MQ'"
"""A filter without a key: the server reads all 842 flights for the four of this aircraft."""
ROUND_SECONDS: Final = 0.5
ROUNDS_PER_SCAN: Final = 10


@click.command(epilog="Example: tablestone demo --port 0 --admin 0")
@click.option("--port", metavar="PORT", default="10002", help="Port of the tables; 0: a free one.")
@click.option(
    "--admin", metavar="PORT", default="10003", help="Port of the explorer; 0: a free one."
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
def demo(port: str, admin: str, *, no_browser: bool) -> int:
    """Try the explorer on sample data with a workload.

    Starts a server in memory, which ends with the command, fills three tables, and runs a workload
    that has a hot partition and a scan.
    """
    # A missing package is reported for this command, and not for the server that it starts.
    import tablestone.explorer.application  # noqa: F401, PLC0415 - its help needs no page

    # SIGTERM stops the server too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _server("--port", port, "--admin", admin) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if ready:
                with suppress(Unreachable):  # the server was ended
                    _show(json.loads(ready), no_browser=no_browser)
    except KeyboardInterrupt:
        return 0
    return process.returncode


@contextmanager
def _server(*options: str) -> Iterator[subprocess.Popen[str]]:
    """The process of a server, which is stopped at the end. If it does not start, it says why."""
    # The options of the user's own server, such as its data directory, are not for this one.
    others = {option.variable for option in SERVER_OPTIONS}
    others |= {CONFIG_VARIABLE, KEY_VARIABLE, AZURITE_VARIABLE}
    with subprocess.Popen(  # noqa: S603 - our own command
        [*PROGRAM, *SERVE, "--log-level", "warning", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={name: text for name, text in os.environ.items() if name not in others},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _show(ready: dict[str, Any], *, no_browser: bool) -> None:
    connection = parse_connection_string(ready["accounts"][0]["connection_string"])
    # The queries of an agent that begins with `tablestone-` get no advice.
    with TableEndpoint(connection, agent="demo") as endpoint:
        load_sample_data(endpoint)
        print(f"Explorer: {ready['explorer']}", f"Table endpoint: {connection.url}", sep="\n")
        print(
            "The tables Airports, Flights and Weather are filled, and a workload runs. After a minute, the tab Heat "
            "of the table Flights shows its hottest partition and the query that scans. Its tab Changes shows what the "
            "workload writes, and puts an old version of an entity back. Ctrl+C ends the demo.",
            flush=True,
        )
        if not no_browser:
            open_browser(ready["explorer"])
        _work(endpoint)


def _work(endpoint: TableEndpoint) -> None:
    """Write to one partition, read from all, and scan now and then, without end."""
    page = endpoint.page(Query("Flights", select=("PartitionKey", "RowKey")), None)
    flights = [key_of(raw) for raw in page.entities]
    hot = itertools.cycle(key for key in flights if key.partition_key == HOT_PARTITION)
    read = itertools.cycle(flights)
    for number in itertools.count():
        # With a fraction, JSON shows that the type is Double.
        delay = orjson.dumps({"dep_delay": number % 60 + 0.5})
        changed = [Operation("MERGE", key, delay, "*") for key in itertools.islice(hot, 60)]
        endpoint.transact("Flights", changed)
        for key in itertools.islice(read, 0, 5 * 171, 171):
            endpoint.get("Flights", key)
        endpoint.page(Query("Weather", "PartitionKey eq 'JFK' and RowKey ge '2013-01-03'"), None)
        if number % ROUNDS_PER_SCAN == 0:
            endpoint.page(Query("Flights", SCAN), None)
        time.sleep(ROUND_SECONDS)
