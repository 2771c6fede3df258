"""A Tablestone server for tests, steered over HTTP as any language can. In Python, `tablestone.testing` needs less."""

import json
import os
import shlex
import subprocess
import urllib.request
from typing import Any

OPTIONS = "serve --engine memory --port 0 --control 0 --print json"


class TablestoneServer:
    """A server of its own for a run of tests, from `__init__` to `stop`."""

    def __init__(self) -> None:
        command = shlex.split(os.environ.get("TABLESTONE", "tablestone"))
        self._process = subprocess.Popen(  # noqa: S603 - the command that the person who tests has named
            [*command, *OPTIONS.split()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._control: str = json.loads(self._process.stdout.readline())["control"]

    def ask(self, method: str, path: str, members: dict[str, Any] | None = None) -> Any:
        """The answer of the control API."""
        body = json.dumps(members or {}).encode() if method in {"POST", "PUT"} else None
        request = urllib.request.Request(  # noqa: S310 - the server on this machine
            self._control + path, body, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.communicate()
