"""`tablestone explore`: a page in the browser for the tables of any endpoint."""

import asyncio
import contextlib
import os
import secrets
import socket
import sys
import threading
import webbrowser
from types import FrameType
from typing import Final

import click
import uvicorn

from tablestone.cli.data_options import connection_for, with_connection
from tablestone.explorer.account import ExplorerSettings
from tablestone.explorer.grid_query import saved_queries_file
from tablestone.server.start import listen
from tablestone.server.worker import StartRefused
from tablestone.tools.connection import Connection, GivenConnection, open_profiles, parse_place
from tablestone.tools.errors import TransferRefused
from tablestone.tools.insight import admin_address

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
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, server_header=False, lifespan="off"
        )
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            _Server(config).run(sockets=[listener])


def open_browser(address: str) -> None:
    """Open a browser with windows, if there is one: one in the terminal would cover the output."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform == "darwin" or any(map(os.environ.get, variables)):
        webbrowser.open(address)


class _Server(uvicorn.Server):
    """The server of the page. It ends soon even if a page waits for an endpoint that does not answer."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        end = threading.Timer(END_SECONDS_MAX, os._exit, (0,))
        end.daemon = True
        end.start()


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
