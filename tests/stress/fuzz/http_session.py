"""A client that sends bytes over one connection and reads the raw answers.

It opens a new connection when the server has closed the last one.
"""

import socket
from dataclasses import dataclass
from typing import Final

ANSWER_SECONDS_MAX: Final = 60.0


class NoAnswer(Exception):
    """The server closed the connection, or nothing came in time."""


@dataclass(frozen=True)
class Answer:
    """An answer. Header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Session:
    """A connection to a server, opened when it is needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._unread = b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._unread = b""

    def ask(self, request: bytes, *, is_head: bool = False) -> Answer:
        """The answer to one request; raises `NoAnswer`. Reopens a connection that was closed while idle."""
        reused = self._socket is not None
        try:
            return self._ask(request, is_head=is_head)
        except NoAnswer:
            self.close()
            if not reused:
                raise
        return self._ask(request, is_head=is_head)

    def _ask(self, request: bytes, *, is_head: bool) -> Answer:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, timeout=ANSWER_SECONDS_MAX)
            self._socket.sendall(request)
            answer = self._read(is_head=is_head)
        except OSError as error:
            raise NoAnswer(str(error)) from error
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def _read(self, *, is_head: bool) -> Answer:
        while b"\r\n\r\n" not in self._unread:
            self._receive()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        status = int(status_line.split(" ")[1])
        has_body = not (is_head or status in (204, 304))
        length = int(headers.get("content-length", "0")) if has_body else 0
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self._read_chunks())
        return Answer(status, headers, self._take(length))

    def _read_chunks(self) -> bytes:
        """A body of chunks, as an application behind ASGI may stream it."""
        pieces = []
        while True:
            while b"\r\n" not in self._unread:
                self._receive()
            size, _, self._unread = self._unread.partition(b"\r\n")
            pieces.append(self._take(int(size, 16)))
            self._take(2)
            if not pieces[-1]:
                return b"".join(pieces)

    def _take(self, length: int) -> bytes:
        while len(self._unread) < length:
            self._receive()
        taken, self._unread = self._unread[:length], self._unread[length:]
        return taken

    def _receive(self) -> None:
        assert self._socket is not None
        received = self._socket.recv(1 << 20)
        if not received:
            raise NoAnswer("the server closed the connection")
        self._unread += received
