"""`tablestone explore`: a page in the browser for the tables of any endpoint."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import webbrowser
from typing import Final

import click

from tablestone.cli.data_options import connection_for, with_connection
from tablestone.configuration import Configuration
from tablestone.explorer.account import ExplorerSettings
from tablestone.explorer.grid_query import saved_queries_file
from tablestone.server.asgi import AsgiAnswering, AsgiApplication
from tablestone.server.http_server import HttpServer
from tablestone.server.start import listen
from tablestone.server.worker import StartRefused
from tablestone.tools.admin_address import admin_address
from tablestone.tools.connection import Connection, GivenConnection, open_profiles, parse_place
from tablestone.tools.errors import TransferRefused

END_SECONDS_MAX: Final = 3.0
"""Seconds that pages still have after Ctrl+C; then the process ends without them."""
HOST: Final = "127.0.0.1"
TOKEN_BYTES: Final = 24
USUAL_PORT: Final = 10003
"""The default port. A fixed one keeps the address of a query the same from day to day."""


@click.command(
    epilog="Example: tablestone explore 'DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…'"
)
@click.argument("connection", required=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"Port of the page on {HOST}; 0 takes a free port.  [default: {USUAL_PORT}, or a free port]",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--read-only", is_flag=True, help="Change nothing.")
@click.option(
    "--admin", metavar="[HOST:]PORT", help="Admin address of the server, for its heat map."
)
@with_connection
def explore(
    words: GivenConnection,
    connection: str | None,
    port: int | None,
    admin: str | None,
    *,
    no_browser: bool,
    read_only: bool,
) -> None:
    """Explore the tables of an endpoint in a browser.

    CONNECTION is a connection string, @FILE that holds one, the URL of an account with a shared
    access signature, or the name of a profile. Without it, the other options and the environment
    name the endpoint, as for every data tool.
    """
    from tablestone.explorer.application import create_explorer  # noqa: PLC0415 - its help needs no page

    if admin is not None:
        admin_address(admin)  # refused now, and not by the page
    settings = ExplorerSettings(
        _connection(connection, words),
        read_only=read_only,
        admin=admin,
        saved_queries=saved_queries_file(os.environ),
    )
    token = secrets.token_urlsafe(TOKEN_BYTES)
    application = create_explorer([settings], token)
    with _listen(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/?token={token}"
        print(f"Explorer of {settings.connection.url}: {address}", flush=True)
        print("Ctrl+C ends it.", file=sys.stderr, flush=True)
        if not no_browser:
            open_browser(address)
        asyncio.run(_serve(application, listener))


def open_browser(address: str) -> None:
    """Open a browser with windows, if there is one: one in the terminal would cover the output."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform == "darwin" or any(map(os.environ.get, variables)):
        webbrowser.open(address)


async def _serve(application: AsgiApplication, listener: socket.socket) -> None:
    """Serve the page until Ctrl+C. Ends soon even if a page waits for an endpoint that does not answer."""
    loop, stop_asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_asked.set)
    configuration = Configuration(HOST, 0, None, "", (), "warning")
    server = HttpServer(configuration, AsgiAnswering(application), listener, lambda: None)
    serving = asyncio.create_task(server.serve())
    await stop_asked.wait()
    server.stop()
    await asyncio.wait({serving}, timeout=END_SECONDS_MAX)
    if not serving.done():
        os._exit(0)


def _connection(place: str | None, words: GivenConnection) -> Connection:
    if place is None:
        return connection_for(words)
    if words != GivenConnection():
        raise TransferRefused("CONNECTION and an option each name an endpoint: give one of them.")
    return parse_place(place, open_profiles(os.environ))


def _listen(port: int | None) -> socket.socket:
    """The socket of the page. A free port replaces a busy default port, but not a busy port that was asked for."""
    if port is not None:
        return listen(HOST, port)
    with contextlib.suppress(StartRefused):
        return listen(HOST, USUAL_PORT)
    return listen(HOST, 0)
