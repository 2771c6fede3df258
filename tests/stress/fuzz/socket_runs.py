"""Sends bytes to the socket of a real server: the cases, and random changes of them in random pieces.

After a case the hidden write must not have been carried out. A changed case may be two valid requests, so only its
answers and what it leaves behind are checked.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from server_process import ServerProcess, start_server
from signing import signed_headers
from stress.fuzz.drafts import Request
from stress.fuzz.http_session import Answer
from stress.fuzz.judging import code_of, problems
from stress.fuzz.mutation import mutated
from stress.fuzz.parser_runs import leaks
from stress.fuzz.request_runs import SHOWN_EVERY, SPARE_DESCRIPTORS, Server, served
from stress.fuzz.socket_cases import CASES, CHUNKED, VERSION, SocketCase

TABLE: Final = "Sockets"
SECONDS_MAX: Final = 60.0
SOON: Final = {
    "tablestone.limits.BODY_READ_SECONDS_MAX": 1,
    "tablestone.limits.REQUEST_HEAD_SECONDS_MAX": 1,
}
"""Time limits of the server under test, so that a case that waits takes a second, not half a minute."""
WORDS: Final = (
    *(
        b"\r\n\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"Content-Length: 7\r\n",
        CHUNKED,
        b"0\r\n\r\n",
        b"7\r\n",
    ),
    *(
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"HTTP/1.0",
        b"HTTP/1.1\r\n",
        b"Host: h\r\n",
        b"Upgrade: h2c\r\n",
    ),
)


class Target:
    """A running server, and the bytes of requests to it."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.address = process.address

    def write_to(self, row: str) -> bytes:
        """The head of a signed write of a row, without framing and without the empty line."""
        target = f"/{self._process.account_name}/{TABLE}(PartitionKey='p',RowKey='{row}')"
        headers = signed_headers(
            self._process.account_name,
            self._process.account_key,
            method="PUT",
            target=target,
            content_type="application/json",
        )
        lines = [
            f"PUT {target} HTTP/1.1",
            "Host: h",
            *(f"{name}: {value}" for name, value in headers),
        ]
        return "".join(f"{line}\r\n" for line in lines).encode()

    def _unsigned_read(self) -> bytes:
        target = f"/{self._process.account_name}/{TABLE}()".encode()
        accept = b"Accept: application/json;odata=nometadata\r\n"
        return b"GET %b HTTP/1.1\r\nHost: h\r\n" % target + VERSION + accept

    def content(self, case: SocketCase) -> bytes:
        """The bytes of a case."""
        hidden = self.write_to("hidden") + b"Content-Length: 7\r\n\r\n" + b'{"n":1}'
        content = case.content
        for word, meant in (
            (b"@PUT@", self.write_to("r")),
            (b"@GET@", self._unsigned_read()),
            (b"@LENGTH@", b"%d" % len(hidden)),
            (b"@HEX@", b"%x" % len(hidden)),
            (b"@HIDDEN@", hidden),
            (b"@CHUNKED@", CHUNKED),
        ):
            content = content.replace(word, meant)
        return content

    def answers(self, content: bytes, *, pieces: int = 1, is_shut: bool = True) -> list[Answer]:
        """Everything that the server answers until it closes the connection; one answer if this side stays open."""
        with socket.create_connection(self.address, timeout=SECONDS_MAX) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            size = max(1, -(-len(content) // pieces))
            with suppress(OSError):  # a server may refuse before it has everything
                for start in range(0, len(content), size):
                    connection.sendall(content[start : start + size])
                if is_shut:
                    connection.shutdown(socket.SHUT_WR)
            return list(
                answers_in(_everything(connection) if is_shut else connection.recv(1 << 20))
            )

    def reset(self, content: bytes) -> None:
        """Send the bytes, and reset the connection."""
        with socket.create_connection(self.address, timeout=SECONDS_MAX) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                connection.sendall(content)


def _everything(connection: socket.socket) -> bytes:
    pieces = []
    with suppress(ConnectionResetError):  # what arrived before counts
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    return b"".join(pieces)


def answers_in(stream: bytes) -> Iterator[Answer]:
    """The answers in a stream; raises `ValueError` if it has anything else."""
    while stream:
        head, end, stream = stream.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = status_line.partition(" ")
        if not end or version != "HTTP/1.1":
            raise ValueError(f"no answer of HTTP: {head[:100]!r}")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        status = int(rest[:3])
        if headers.get("transfer-encoding") == "chunked":
            body, _, stream = stream.partition(b"0\r\n\r\n")
        else:
            length = 0 if status in (100, 204, 304) else int(headers.get("content-length", "0"))
            body, stream = stream[:length], stream[length:]
        yield Answer(status, headers, body)


def start_impatient(directory: Path) -> ServerProcess:
    return start_server(directory, "--workers", "1", constants=SOON)


def prepare(server: Server) -> None:
    """Create the table that the cases write to."""
    body = f'{{"TableName":"{TABLE}"}}'.encode()
    headers = (
        (b"accept", b"application/json;odata=nometadata"),
        (b"content-type", b"application/json"),
    )
    made = server.ask(Request(b"POST", b"/Tables", headers, body, "key"))
    assert made.status == 201, made


def hidden_is_there(server: Server) -> bool:
    """Whether the hidden write was carried out; removes it, for the next case."""
    path = f"/{TABLE}(PartitionKey='p',RowKey='hidden')".encode()
    removed = server.ask(Request(b"DELETE", path, ((b"if-match", b"*"),), b"", "key"))
    assert removed.status in (204, 404), removed
    return removed.status == 204


def problems_of_case(server: Server, target: Target, case: SocketCase) -> Iterator[str]:
    """The problems of one case."""
    try:
        answers = target.answers(target.content(case), pieces=case.pieces, is_shut=case.is_shut)
    except (ValueError, OSError) as error:
        yield f"{case.name}: {error}"
        return
    statuses = tuple(answer.status for answer in answers)
    if statuses not in case.answers:
        yield f"{case.name} ({case.source}): answered {statuses}, not one of {case.answers}"
    if hidden_is_there(server):
        yield f"{case.name} ({case.source}): the hidden write was carried out"


def _problems_of_change(target: Target, content: bytes, random: Random) -> Iterator[str]:
    if random.random() < 0.05:
        target.reset(content)
        return
    try:
        answers = target.answers(content, pieces=random.choice((1, 1, 1, 2, 5)))
    except TimeoutError:
        yield f"the connection stays open after {content[:600]!r}"
        return
    except ValueError as error:
        if b"HEAD" not in content:  # such an answer has a length and no body
            yield f"{error} after {content[:600]!r}"
        return
    for answer in answers:
        if answer.status not in (100, 505) and code_of(answer) != "OperationTimedOut":
            yield from (f"{each} after {content[:600]!r}" for each in problems(answer))


def cases() -> Iterator[str]:
    """The problems of all cases."""
    with served(start_impatient) as (server, ended):
        prepare(server)
        target = Target(server.process)
        for case in CASES:
            yield from problems_of_case(server, target, case)
    yield from ended


def changed(inputs: int, seed: int) -> Iterator[str]:
    """Run so many changes of the cases; returns the problems, and what the server did not release."""
    with served(start_impatient) as (server, ended):
        prepare(server)
        target = Target(server.process)
        contents = [target.content(case) for case in CASES if case.is_shut]
        random = Random(seed)
        early = None
        for number in range(1, inputs + 1):
            content = mutated(random, random.choice(contents), contents, WORDS)
            yield from _problems_of_change(target, content, random)
            if number == max(1, inputs // 5):
                early = server.resources()
            if number % SHOWN_EVERY == 0:
                print(f"{number:,} connections", flush=True)
        if early is not None:
            yield from leaks("the server", early, server.settled(early), spare=SPARE_DESCRIPTORS)
    yield from ended


def run(inputs: int, seed: int) -> Iterator[str]:
    """Run all cases, and so many changes of them; returns the problems."""
    yield from cases()
    yield from changed(inputs, seed)
