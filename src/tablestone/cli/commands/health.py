"""`tablestone health`: whether a server is ready, as one line and an exit status, for containers and scripts.

Imports little, because Docker runs it every few seconds.
"""

import http.client
import json
from contextlib import closing
from typing import Any, Final

import click

from tablestone.tools.admin_address import admin_address
from tablestone.tools.errors import TransferFailed

ANSWER_SECONDS_MAX: Final = 4.0
"""Less than the five seconds after which deploy/Dockerfile gives up, so that the line is seen."""
PAGE: Final = "/health/ready"


@click.command(epilog="Example: tablestone health --admin 10003")
@click.option(
    "--admin",
    envvar="TABLESTONE_ADMIN",
    show_envvar=True,
    metavar="[HOST:]PORT",
    required=True,
    help="Admin address of the server.",
)
def health(admin: str) -> int:
    """Ask a running server whether it is ready.

    Prints one line. The exit status is 0 if the server is ready, and 1 if it is not or does not
    answer within 4 seconds.
    """
    host, port = admin_address(admin)
    shown = f"The admin address {host}:{port}"
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)) as asking:
            asking.request("GET", PAGE)
            text = asking.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TransferFailed(f"{shown} does not answer ({why}).") from None
    try:
        found: dict[str, Any] = json.loads(text)
        status, workers = found["status"], found["workers"]
    except (ValueError, TypeError, KeyError):
        raise TransferFailed(
            f"{shown} answers, but not with health: give the port of --admin, not that of the tables."
        ) from None
    remarks = [*found.get("reasons", ()), *found.get("warnings", ())]
    line = f"{status}, {workers['ready']} of {workers['configured']} workers"
    click.echo(": ".join([line, " ".join(remarks)] if remarks else [line]))
    return 0 if status == "ready" else 1
