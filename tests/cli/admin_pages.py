"""The pages of a running server's admin address, and the process that serves them."""

import http.client
import json
import re
from typing import Any
from urllib.parse import urlsplit

from server_process import ServerProcess

ADMIN_LINE = re.compile(r"^Admin address: http://(\S+)$", re.MULTILINE)


def admin_of(server: ServerProcess) -> str:
    """HOST:PORT of the server's admin address."""
    (address,) = ADMIN_LINE.findall("".join(server.stdout))
    return str(address)


def page(server: ServerProcess, path: str, method: str = "GET") -> tuple[int, str]:
    """The status and the text of a page."""
    with_port = urlsplit(f"//{admin_of(server)}")
    connection = http.client.HTTPConnection(str(with_port.hostname), with_port.port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def json_page(server: ServerProcess, path: str) -> tuple[int, dict[str, Any]]:
    """The status and the object of a JSON page."""
    status, text = page(server, path)
    return status, json.loads(text)
