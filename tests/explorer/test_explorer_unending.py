"""Endpoints that never answer, or never stop: each page says so, and the explorer's memory stays small."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from explorer.test_explorer_bad_input import answering, connection_string
from explorer.test_page_guard import COOKIE, send
from tablestone.tools import client
from tablestone.tools.connection import parse_connection_string

OPENED = {"cookie": COOKIE}
PAGES = ("/", "/service", "/tables/T", "/tables/T/size", "/tables/T/entity?pk=a&rk=b")
PIECE = b"a" * 65_536
HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"value":["'


@contextmanager
def endpoint(*, is_silent: bool) -> Iterator[str]:
    """An endpoint that accepts each request and never answers, or never ends its answer; its connection string."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(60)
                connection.recv(65_536)
                if is_silent:
                    connection.recv(65_536)  # until the other side gives up
                    return
                connection.sendall(HEAD)
                while True:
                    connection.sendall(PIECE)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/devstoreaccount1"
        yield connection_string(url)
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    ("is_silent", "words"),
    [(True, "no whole answer came within 0.2 s"), (False, "the answer is larger than 1 MiB")],
)
def test_an_endless_answer_is_explained(
    path: str, *, is_silent: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PERSON_BYTES_MAX", 2**20)
    if is_silent:
        monkeypatch.setattr(client, "PERSON_SECONDS", 0.2)
    with endpoint(is_silent=is_silent) as place:
        answer = send("GET", path, OPENED, connection=parse_connection_string(place))
    assert answer.status_code == 502
    assert words in answer.text
    assert 'aria-label="Pages"' in answer.text


def test_an_endless_list_of_tables_is_explained() -> None:
    """Every answer has the same continuation token."""
    body = b'{"value": [{"TableName": "T"}]}'
    following = {"x-ms-continuation-NextTableName": "T"}
    with answering(lambda _path: (200, "application/json", body), lambda _path: following) as place:
        answer = send("GET", "/", OPENED, connection=parse_connection_string(place))
    assert answer.status_code == 502
    assert "its list of tables has no end" in answer.text
