"""One HTTP connection: uvicorn's, with limits on how long a client may make it wait, and answers in one write.

A connection ends if a request's head is too long, too slow or never begins, if its client does not read an answer, or
if it is idle when the connection limit is reached. A request beyond a limit of `admission` is answered `ServerBusy`.
Beyond uvicorn it also answers clients that have closed their sending half, takes the Host of an absolute target
(RFC 9112 3.2.2), ignores `Upgrade`, and refuses versions of HTTP other than 1.0 and 1.1.
"""

import asyncio
import logging
import math
import types
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tablestone import limits
from tablestone.model.errors import RETRY_AFTER, StorageError
from tablestone.server.admission import Admission, Limit
from tablestone.server.asgi import AsgiApplication
from tablestone.telemetry.logs import OnceAMinute

logger = logging.getLogger(__name__)
TLS_RECORD: Final = b"\x16\x03"
"""The beginning of a TLS handshake."""
_tls_clients = OnceAMinute(is_shared=True)


class Exchange(RequestResponseCycle):
    """One request and its answer. The head waits for the first piece of the body: one call and packet for both."""

    head = b""
    """The head of the answer, until its body comes."""
    hold: Callable[[int], None] | None = None
    """Counts the bytes of a piece of the body. Raises `StorageError` if there is no room for them."""
    end_unread: Callable[[], None] | None = None
    """Ends the connection after an answer to a request whose body has not arrived whole."""
    limit: Limit | None = None
    """The limit that this request exceeds, if it is refused before its turn has come."""
    has_ended = False
    """Whether the client sends no more. Then `receive` has a second message after the whole request, without a body."""

    async def receive(self) -> Any:
        """As uvicorn's; a body that arrives in pieces is counted, which may raise `ServerBusy`."""
        message: Any = await super().receive()
        if self.hold is not None and message.get("more_body"):
            self.hold(len(message["body"]))
        if self.has_ended:
            self.message_event.set()
        return message

    async def send(self, message: Any) -> None:
        """Take the start of the answer, which may have a `reason` phrase, or the next piece of its body."""
        if self.response_complete:
            raise RuntimeError("The answer is complete already.")
        if message["type"] == "http.response.start":
            self.head = self._head(message["status"], message["headers"], message.get("reason"))
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        self.response_started, self.waiting_for_100_continue = True, False
        self._write(self._framed(body, is_last=is_last))
        if not is_last:
            return
        if self.expected_content_length:
            raise RuntimeError("The body is shorter than its content-length.")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            if self.more_body and self.end_unread is not None:
                self.end_unread()
            else:
                self.transport.close()
        self.on_response()

    def _head(
        self, status: int, headers: Iterable[tuple[bytes, bytes]], reason: str | None
    ) -> bytes:
        fields = [*self.default_headers, *headers]
        lines = b"\r\n".join(map(b": ".join, fields))
        if lines.count(b"\n") != len(fields) - 1 or lines.count(b"\r") != len(fields) - 1:
            raise ValueError("There is a line end inside a header.")
        if b"\r\nconnection: close" in lines:
            self.keep_alive = False
        elif not self.keep_alive:
            lines += b"\r\nconnection: close"
        length = lines.find(_CONTENT_LENGTH)
        if length >= 0:
            start = length + len(_CONTENT_LENGTH)
            end = lines.find(b"\r", start)
            self.expected_content_length = int(lines[start:] if end < 0 else lines[start:end])
        elif self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            lines += b"\r\ntransfer-encoding: chunked"
        status_line = STATUS_LINE[status]
        if reason is not None:
            phrase = " ".join(reason.split()).encode("latin-1", "replace")
            status_line = b"HTTP/1.1 %d %b\r\n" % (status, phrase)
        return b"".join((status_line, lines, b"\r\n\r\n"))

    def _framed(self, body: bytes, *, is_last: bool) -> bytes:
        """A piece of the body as it goes over the connection."""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            return b""
        if not self.chunked_encoding:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("The body is longer than its content-length.")
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + b"0\r\n\r\n" if is_last else chunk

    def _write(self, body: bytes) -> None:
        head, self.head = self.head, b""
        if head and len(body) > _JOINED_BYTES_MAX:
            self.transport.writelines((head, body))
        else:
            self.transport.write(head + body)


_JOINED_BYTES_MAX: Final = 16_384
"""Bytes of the largest body that is copied after the head: up to here a copy costs less than a list of the two."""
_CONTENT_LENGTH: Final = b"\r\ncontent-length: "
"""As on any line of a head except the first, which is the date."""


def is_read(exchange: Exchange) -> bool:
    """Whether the request is a read without a body to wait for; only a task can wait."""
    names = map(itemgetter(0), exchange.scope["headers"])
    return exchange.scope["method"] == "GET" and _BODY_HEADERS.isdisjoint(names)


_BODY_HEADERS: Final = frozenset((b"content-length", b"transfer-encoding"))


def take_host_of_target(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Replace `Host` by the host and port of the target, if it has a host."""
    parts = httptools.parse_url(target)
    if parts.host:
        host = b"[%b]" % parts.host if b":" in parts.host else parts.host
        named = b"%b:%d" % (host, parts.port) if parts.port else host
        headers[:] = [(name, named if name == b"host" else value) for name, value in headers]


async def finish(coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
    """The rest of a coroutine that ran up to its first `await`, as a coroutine for a task."""
    await _rest_of(coroutine, awaited)


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    with suppress(StopIteration):
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the coroutine gets a cancellation too
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(None)


_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
_TOO_LARGE_SENTENCE: Final = (
    b"The head of a request, or what stands beside its body, has more than %d bytes."
    % limits.REQUEST_HEAD_BYTES_MAX
)
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
    % (len(_TOO_LARGE_SENTENCE), _TOO_LARGE_SENTENCE)
)
_VERSIONS: Final = frozenset(("1.1", "1.0"))
"""The parser takes 0.9 and 2.0 too, and reads what follows as if it were HTTP/1.1 (RFC 9112 2.3)."""
TASKS_AT_ONCE: Final = 32
"""A request that needs a task begins at once if fewer than so many are under way."""
TLS_CLOSE_SECONDS_MAX: Final = 2.0
"""Seconds that a stop waits for a TLS client to close its side. Idle clients never do; the loop would wait for 30 s."""


class HttpConnection(HttpToolsProtocol):
    """Limits request heads in bytes and time. `refuse` answers beyond a limit. If `waits`, each request is a task."""

    cycle: Exchange | None  # type: ignore[assignment]
    """The last request whose head is whole, which may wait for the answers before it."""

    def __init__(
        self,
        *arguments: Any,
        admission: Admission,
        refuse: AsgiApplication,
        waits: bool,
        on_made: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._admission = admission
        self._refuse: Any = refuse
        self._waits = waits
        self._on_made, self._on_lost = on_made, on_lost
        self._address = ""
        self._held_arrived = 0
        """Bytes of a request that has not arrived whole, which `admission` counts."""
        self._held_unsent = 0
        """Bytes of an answer that waits for its reader, which `admission` counts."""
        self._reader_timer: TimerHandle | None = None
        self._is_overrun = False
        """Whether too many requests arrived, or a body did not arrive; later requests are not looked at."""
        self._under_way: Exchange | None = None
        self._pipelined: deque[Exchange] = deque()
        """Requests that arrived before the answer of the one under way."""
        self._may_begin_at_once = False
        self._head_is_open = False
        self._bytes_without_progress = 0
        """Bytes since a head was complete or part of a body came: those of a head, or of the trailer fields and chunk
        extensions beside a body, which the parser keeps without a limit of its own."""
        self._head_timer: TimerHandle | None = None
        self._idle_since: float | None = None
        """Time at which the last answer was complete, on the loop's clock; None while a request is under way."""
        self._idle_timer: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._on_made()
        super().connection_made(transport)
        self._wait_for_head()  # otherwise a client that connects and sends nothing would stay for ever
        self._address = self.client[0] if self.client else ""
        self._admission.connections.make(cast("set[HttpConnection]", self.connections), self.loop)

    @property
    def idle_since(self) -> float | None:
        """The loop's time since which no request is under way; None while one is. An incomplete head is no request."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        if self._head_timer is not None:
            return self._head_timer.when() - limits.REQUEST_HEAD_SECONDS_MAX
        return self._idle_since

    def end_idle(self) -> None:
        """Close it and count it no more, without waiting until a TLS client closes its side."""
        self.connections.discard(self)
        if self.scheme == "https":
            self.transport.abort()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._may_begin_at_once = not self._waits
        self._idle_since = None  # the timer stays: it checks this when it fires
        self._bytes_without_progress += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            if data.startswith(TLS_RECORD) and self.scheme == "http" and _tls_clients.is_due():
                sentence = "%s speaks TLS to a port that serves plain HTTP: use an http:// URL, or --tls self-signed."
                logger.info(sentence, self._address or "A client")
            self._refuse_bytes()
        if self._bytes_without_progress > limits.REQUEST_HEAD_BYTES_MAX:
            self._end_with(_TOO_LARGE)
        if not self._head_is_open:
            # The data belongs to an answered request, or is an empty line: it ended the wait for the next request.
            is_answered = self.cycle is None or self.cycle.response_complete
            if is_answered and self._idle_since is None:  # an answer just now sets it
                self._wait_for_head()
            return
        # Only a head that arrives in pieces gets here. Most heads arrive whole and cost nothing.
        if not self.transport.is_closing() and not self._hold(len(data)):
            self._end_with(_NO_ROOM)
        self._wait_for_head()

    def _end_with(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _read_without_upgrade(self, rest: memoryview) -> None:
        """Ignore that a request asks for another protocol (RFC 9110 7.8). Java's client asks for HTTP/2 like this.

        The parser takes what follows for the other protocol, so a new one gets the head without `Upgrade` and the rest.
        """
        while self._asks_for_upgrade():
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            try:
                self.parser.feed_data(self._head_without_upgrade())
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                continue
            except httptools.HttpParserError:
                self._refuse_bytes()
            return

    def _asks_for_upgrade(self) -> bool:
        """Whether the head has to be read again without `Upgrade`; CONNECT is answered as it is."""
        return (
            self.parser.should_upgrade()
            and not self._is_overrun
            and self.scope["method"] != "CONNECT"
        )

    def _head_without_upgrade(self) -> bytes:
        method, version = self.scope["method"].encode(), self.scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse_bytes(self) -> None:
        """Answer bytes that are not HTTP, as uvicorn does; not those after the last request that is answered."""
        if not self._is_overrun:
            self.send_400_response("Invalid HTTP request received.")

    def on_response_complete(self) -> None:
        """As uvicorn does it, but without a timer for each answer that closes the idle connection."""
        self._release_arrived()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._pipelined:
            # Not at once: each request would be answered inside the call for the one before.
            self._may_begin_at_once = False
            self._start(self._pipelined.popleft())
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _end_unread(self) -> None:
        """Close later: a client that is cut off while it sends may never see the answer (RFC 9112 9.6)."""
        self._is_overrun = True
        self.loop.call_later(limits.BODY_DISCARD_SECONDS_MAX, self.end_idle)

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer starts the timer again
        rest = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if rest <= 0 and self.transport.get_write_buffer_size():
            self.transport.abort()  # a close would wait until the client reads the answer
        elif rest <= 0:
            self.transport.close()
        else:
            self._idle_timer = self.loop.call_later(rest, self._end_if_idle)

    def _wait_for_head(self) -> None:
        """Limit the time from the first call until a head is whole."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(
                limits.REQUEST_HEAD_SECONDS_MAX, self.transport.close
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_is_open = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn does it, but drop fields after a body: they never become headers (RFC 9110 6.5.1)."""
        if not self._head_is_open:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        self._end_head()
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise httptools.HttpParserError("another version of HTTP")
        if self._is_overrun:
            return
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        if self._asks_for_upgrade():
            return
        if not self.url.startswith(b"/"):
            take_host_of_target(self.url, self.headers)
        target = httptools.parse_url(self.url)
        self.scope["raw_path"] = target.path
        self.scope["path"] = unquote(target.path.decode("ascii"))
        self.scope["query_string"] = target.query or b""
        previous = self.cycle
        self.cycle = exchange = Exchange(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if previous is None or previous.response_complete:
            self._start(exchange)
            return
        self.flow.pause_reading()
        self._pipelined.append(exchange)
        if len(self._pipelined) > limits.PIPELINED_REQUESTS_MAX:
            self._is_overrun = True
            exchange.limit = Limit.PIPELINED

    def on_message_complete(self) -> None:
        exchange = self.cycle
        if exchange is not None and not exchange.response_complete and not self._asks_for_upgrade():
            exchange.more_body = False
            exchange.message_event.set()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: answer the requests that arrived whole, then close. True keeps the connection open.

        TLS as asyncio and uvloop have it ends both directions at once, so there is no answer left to send.
        """
        self._end_head()
        last = self.cycle
        if self.scheme == "https" or last is None or last.response_complete or last.more_body:
            return False
        last.keep_alive = False
        last.has_ended = True
        last.message_event.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._release_arrived()
        self._end_unsent()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._under_way is not None:  # uvicorn informs only the last of several requests
            self._under_way.disconnected = True
        super().connection_lost(exc)
        self._on_lost()

    def shutdown(self) -> None:
        super().shutdown()
        if self.scheme == "https":
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _end_tls(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            self.loop.call_later(TLS_CLOSE_SECONDS_MAX, self._end_tls)

    def _start(self, exchange: Exchange) -> None:
        """Begin a request, at once if possible: refused, in a task, or as a read that needs no task.

        Of requests that arrived together, only the first runs without a task, so that others are served between them.
        If the application waits for a network, none does: `asyncio.timeout` and task groups raise outside a task.
        """
        self._under_way = exchange
        admission = self._admission
        limit = exchange.limit or admission.limit_reached(len(self.connections))
        if limit is not None:
            admission.count_refused(limit, self._address)
            cast("dict[str, Any]", exchange.scope)["limit"] = limit
            # Do not count it as under way: refusals would keep others out.
            refusing = self.loop.create_task(exchange.run_asgi(self._refuse))
            refusing.add_done_callback(self.tasks.discard)
            self.tasks.add(refusing)
            return
        at_once, self._may_begin_at_once = self._may_begin_at_once, False
        if admission.rounds.is_late(self.loop) or (
            len(self.tasks) - admission.waiting >= TASKS_AT_ONCE
            and not (at_once and is_read(exchange))
        ):
            admission.requests += 1
            admission.rounds.wait(self._address, partial(self._begin_in_turn, exchange), self.loop)
        else:
            self._begin(exchange, at_once=at_once)

    def _begin_in_turn(self, exchange: Exchange) -> bool:
        """Begin a request that has waited; True if the rest of it is a task."""
        self._admission.requests -= 1
        return not exchange.disconnected and self._begin(exchange, at_once=not self._waits)

    def _begin(self, exchange: Exchange, *, at_once: bool) -> bool:
        """Run a read to its first wait at once, because most reads never wait; anything else in a task."""
        answering = exchange.run_asgi(self.app)
        if not at_once or not is_read(exchange):
            exchange.hold, exchange.end_unread = self._require_room, self._end_unread
            self._begin_task(answering)
            return True
        try:
            awaited = answering.send(None)
        except StopIteration:
            return False
        self._begin_task(finish(answering, awaited))
        return True

    def _begin_task(self, answering: Coroutine[Any, Any, None]) -> None:
        """Count the request as under way until its task ends, even if the client goes away before."""
        self._admission.requests += 1
        task = self.loop.create_task(answering)
        task.add_done_callback(self._end_task)
        self.tasks.add(task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._admission.requests -= 1

    # Bytes in memory.

    def _hold(self, number: int) -> bool:
        """Count bytes that have arrived; False if there is no room for them."""
        admission = self._admission
        if admission.held_bytes + number > admission.held_bytes_max:
            admission.count_refused(Limit.BUFFERS, self._address)
            return False
        admission.held_bytes += number
        self._held_arrived += number
        return True

    def _require_room(self, number: int) -> None:
        """Count bytes of a body. Raises `ServerBusy` if there is no room for them."""
        if number and not self._hold(number):
            raise StorageError("ServerBusy", reason=Limit.BUFFERS.value, headers=RETRY_AFTER)

    def _release_arrived(self) -> None:
        """Stop counting what has arrived: it is answered."""
        self._admission.held_bytes -= self._held_arrived
        self._held_arrived = 0

    def pause_writing(self) -> None:
        """Count the rest of an answer that its client reads too slowly, and watch the client."""
        super().pause_writing()
        self._end_unsent()
        self._held_unsent = self.transport.get_write_buffer_size()
        self._admission.held_bytes += self._held_unsent  # whether there is room or not
        self._watch_reader(math.inf)

    def resume_writing(self) -> None:
        self._end_unsent()
        super().resume_writing()

    def _end_unsent(self) -> None:
        self._admission.held_bytes -= self._held_unsent
        self._held_unsent = 0
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _watch_reader(self, before: float) -> None:
        """End the connection unless its client reads `ANSWER_READ_BYTES_MIN` in each `ANSWER_READ_SECONDS_MAX`."""
        unsent = self.transport.get_write_buffer_size()
        if before - unsent < limits.ANSWER_READ_BYTES_MIN:
            self._admission.count_refused(Limit.SLOW_READER, self._address)
            self.transport.abort()
        else:
            self._reader_timer = self.loop.call_later(
                limits.ANSWER_READ_SECONDS_MAX, self._watch_reader, unsent
            )

    def _end_head(self) -> None:
        self._head_is_open = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            self._release_arrived()
