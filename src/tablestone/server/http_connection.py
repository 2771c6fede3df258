"""One HTTP/1.1 connection: requests out of bytes, their turns, and how long a client may make it wait.

A connection ends if a request's head is too long, too slow or never begins, if its client does not read an answer, or
if it is idle when the connection limit is reached. A request beyond a limit of `admission` is answered `ServerBusy`.
It answers clients that have closed their sending half, takes the Host of an absolute target (RFC 9112 3.2.2), ignores
`Upgrade`, and refuses `CONNECT`, versions of HTTP other than 1.0 and 1.1, and codings of a body other than `chunked`.
"""

import asyncio
import logging
import re
import types
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final

import httptools

from tablestone import limits
from tablestone.server.admission import Limit
from tablestone.server.exchange import ClientChannel, Exchange, Fields, Response, Serving
from tablestone.server.trusted_proxies import TrustedProxies, unmapped
from tablestone.telemetry.logs import OnceAMinute
from tablestone.wire.messages import RawResponse, raw_request

logger = logging.getLogger(__name__)
TLS_RECORD: Final = b"\x16\x03"
"""The beginning of a TLS handshake."""
_tls_clients = OnceAMinute(is_shared=True)


@types.coroutine
def _rest_of(answering: Response, awaited: Any) -> Generator[Any, Any, RawResponse | None]:
    """The rest of a coroutine that ran up to its first `await`."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the coroutine gets a cancellation too
                awaited = answering.throw(error)
            else:
                awaited = answering.send(None)
    except StopIteration as done:
        response: RawResponse | None = done.value
        return response


def _plain(status: bytes, sentence: bytes) -> bytes:
    """A refusal that needs no request: the connection ends with it."""
    return (
        b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b" % (status, len(sentence), sentence)
    )


_NO_ROOM: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)
_INVALID: Final = _plain(b"400 Bad Request", b"Invalid HTTP request received.")
_TOO_LARGE: Final = _plain(
    b"431 Request Header Fields Too Large",
    b"The head of a request, or what stands beside its body, has more than %d bytes."
    % limits.REQUEST_HEAD_BYTES_MAX,
)
_VERSIONS: Final = frozenset(("1.1", "1.0"))
"""The parser takes 0.9 and 2.0 too, and reads what follows as if it were HTTP/1.1 (RFC 9112 2.3)."""
_OTHER_PROTOCOL: Final = re.compile(rb" (?:RTSP|ICE)/")
_ENDS_IN_OTHER_PROTOCOL: Final = re.compile(rb" (?:RTSP|ICE)/[0-9.]*\s*\Z")
"""The end of a request line that the parser takes for HTTP's too."""
_END_BYTES: Final = 32
"""Bytes that hold this end of a line."""
TASKS_AT_ONCE: Final = 32
"""A request that needs a task begins at once if fewer than so many are under way."""


class HttpConnection(ClientChannel):
    """One connection of `serving`. `on_made` and `on_lost` are called when it begins and has ended."""

    __deletable__ = ("parser",)

    def __init__(
        self,
        serving: Serving,
        loop: AbstractEventLoop,
        on_made: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(serving, loop)
        self._on_made, self._on_lost = on_made, on_lost
        self._scheme = "http"
        self._is_local = False
        self._proxies: TrustedProxies | None = None
        """Those that may name the client, if this connection comes from one of them."""
        self.parser = self._new_parser()
        self._method = self._version = ""
        self._url = b""
        self._fields: Fields = []
        self._head_is_open = False
        self._request_line: bytes | None = None
        """The end of the line in which a request begins, until the line is whole."""
        self._bytes_without_progress = 0
        """Bytes since a head was complete or part of a body came: those of a head, or of the trailer fields and chunk
        extensions beside a body, which the parser keeps without a limit of its own."""
        self._last: Exchange | None = None
        """The last request whose head is whole, which may wait for the answers before it."""
        self._under_way: Exchange | None = None
        self._pipelined: deque[Exchange] | None = None
        """Requests that arrived before the answer of the one under way."""
        self._is_overrun = False
        """Whether too many requests arrived, or a body did not arrive; later requests are not looked at."""
        self._last_words: bytes | None = None
        """The answer that ends the connection when its turn comes."""
        self._may_begin_at_once = False
        self._head_timer: TimerHandle | None = None
        self._idle_since: float | None = None
        """Time at which the last answer was complete, on the loop's clock; None while a request is under way."""
        self._idle_timer: TimerHandle | None = None

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What follows `Connection: close` is dropped instead of refused: the answer must arrive.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # The life of a connection.

    def connection_made(self, transport: Any) -> None:
        if self._on_made is not None:
            self._on_made()
        self.transport = transport
        with suppress(OSError):  # the client is gone already
            peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            self.address = unmapped(peer[0]) if peer else ""
            self._is_local = bool(peer and own) and peer[0] == own[0]
        if transport.get_extra_info("sslcontext"):
            self._scheme = "https"
        proxies = self.serving.proxies
        if proxies is not None and proxies.trusts(self.address):
            self._proxies = proxies
            self._is_local = False  # its clients may be anywhere
        self.serving.connections.add(self)
        self._wait_for_head()  # otherwise a client that connects and sends nothing would stay for ever
        self.admission.connections.make(self.serving.connections, self.loop)
        if self.admission.is_stopping:  # it was accepted before, and is told now
            self.shutdown()

    @property
    def idle_since(self) -> float | None:
        """The loop's time since which no request is under way; None while one is. An incomplete head is no request."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return None
        if self._last is not None and not self._last.is_complete:
            return None
        if self._head_timer is not None:
            return self._head_timer.when() - self.admission.head_seconds
        return self._idle_since

    def end_idle(self) -> None:
        """Close it and count it no more, without waiting until a TLS client closes its side."""
        self.serving.connections.discard(self)
        if self._scheme == "https":
            self.transport.abort()
        else:
            self.close()

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer starts the timer again
        rest = self._idle_since + self.serving.idle_seconds - self.loop.time()
        if rest <= 0 and self.transport.get_write_buffer_size():
            self.transport.abort()  # a close would wait until the client reads the answer
        elif rest <= 0:
            self.transport.close()
        else:
            self._idle_timer = self.loop.call_later(rest, self._end_if_idle)

    def eof_received(self) -> bool:
        """The client sends no more: answer the requests that arrived whole, then close. True keeps the connection open.

        TLS as asyncio and uvloop have it ends both directions at once, so there is no answer left to send.
        """
        self._end_head()
        if self._pipelined and self._pipelined[-1].has_more:
            self._drop_last()
        last = self._last
        if self._scheme == "https" or last is None or last.is_complete or last.has_more:
            return False
        last.end_sending()
        return True

    def _drop_last(self) -> None:
        """Forget the last request of several, which will never be whole."""
        assert self._pipelined is not None
        self._pipelined.pop()
        self._last = self._pipelined[-1] if self._pipelined else self._under_way
        self._is_overrun = True

    def shutdown(self) -> None:
        """Close it after the answers under way."""
        if self._last is None or self._last.is_complete:
            self.close()
        else:
            self._last.keep_alive = False
        if self._scheme == "https":
            self.loop.call_later(self.admission.tls_close_seconds, self._end_tls)

    def _end_tls(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            self.loop.call_later(self.admission.tls_close_seconds, self._end_tls)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self.is_lost = True
        self.serving.connections.discard(self)
        self._end_head()
        self.release_arrived()
        self.end_unsent()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._under_way is not None:
            self._under_way.tell()
        del self.parser  # it refers to this connection, and so do these
        self._last = self._under_way = self._pipelined = None
        if self._on_lost is not None:
            self._on_lost()

    # Requests out of bytes.

    def data_received(self, data: bytes) -> None:
        self._may_begin_at_once = not self.serving.application.waits
        self._bytes_without_progress += len(data)
        for piece in pieces_of(data, line_is_open=bool(self._request_line)):
            self._feed(piece)
            if self._request_line is not None:
                self._request_line = (self._request_line + piece)[-_END_BYTES:]
                if _ENDS_IN_OTHER_PROTOCOL.search(self._request_line):
                    self._refuse_bytes()
                    break
                if piece.endswith(b"\n"):
                    self._request_line = None
        if self._bytes_without_progress > limits.REQUEST_HEAD_BYTES_MAX:
            self._end_with(_TOO_LARGE)
        if not self._head_is_open:
            # The data belongs to an answered request, or is an empty line: it ended the wait for the next request.
            is_answered = self._last is None or self._last.is_complete
            if is_answered and self._idle_since is None:  # an answer just now sets it
                self._wait_for_head()
            return
        # Only a head that arrives in pieces gets here. Most heads arrive whole and cost nothing.
        if not self.transport.is_closing() and not self.hold(len(data)):
            self._end_with(_NO_ROOM)
        self._wait_for_head()

    def _feed(self, data: bytes) -> None:
        self._idle_since = None  # the timer stays: it checks this when it fires
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            if data.startswith(TLS_RECORD) and self._scheme == "http" and _tls_clients.is_due():
                sentence = "%s speaks TLS to a port that serves plain HTTP: use an http:// URL, or --tls self-signed."
                logger.info(sentence, self.address or "A client")
            self._refuse_bytes()

    def _refuse_bytes(self) -> None:
        """Answer bytes that are not HTTP; not those after the last request that is answered."""
        if not self._is_overrun:
            self._end_with(_INVALID.replace(b"\r\n", b"\r\n" + self.serving.date_line, 1))

    def _end_with(self, answer: bytes) -> None:
        """Write a last answer, after those to the whole requests before it, and close."""
        if self.transport.is_closing():
            return
        if self._pipelined and self._pipelined[-1].has_more:
            self._drop_last()  # the answer is about this one
        under_way = self._under_way
        is_due = under_way is not None and not (under_way.is_complete or under_way.has_more)
        if (is_due or self._pipelined) and self._last_words is None:
            self._last_words, self._is_overrun = answer, True
            return
        self.is_lost = True  # nothing is written after this
        if under_way is not None:
            under_way.tell()
        is_last = under_way is not None and under_way.is_complete and not under_way.keep_alive
        if not is_last and (under_way is None or under_way.is_complete or not under_way.is_begun):
            self.transport.write(answer)
        self.close()

    def _wait_for_head(self) -> None:
        """Limit the time from the first call until a head is whole."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.admission.head_seconds, self.close)

    def _end_head(self) -> None:
        self._head_is_open, self._request_line = False, None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            self.release_arrived()

    def on_message_begin(self) -> None:
        self._url = b""
        self._fields = []
        self._head_is_open, self._request_line = True, b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_is_open:  # fields after a body never become headers (RFC 9110 6.5.1)
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        self._end_head()
        parser = self.parser
        self._version = parser.get_http_version()
        self._method = parser.get_method().decode("ascii")
        if self._version not in _VERSIONS or self._method == "CONNECT":
            raise httptools.HttpParserError("another version of HTTP, or a tunnel")
        if self._is_overrun:
            return
        if self._asks_for_upgrade():
            return
        exchange = self._exchange(self._version != "1.0" and parser.should_keep_alive())
        previous, self._last = self._last, exchange
        if previous is None or previous.is_complete:
            self._start(exchange)
            return
        self.pause_reading()
        if self._pipelined is None:
            self._pipelined = deque()
        self._pipelined.append(exchange)
        if len(self._pipelined) > limits.PIPELINED_REQUESTS_MAX:
            self._is_overrun = True
            exchange.limit = Limit.PIPELINED

    def _exchange(self, keep_alive: bool) -> Exchange:  # noqa: FBT001 - its only caller is above
        """The request whose head is whole. Raises an error of the parser if its target or coding is none."""
        fields = self._fields
        parts = httptools.parse_url(self._url)
        if parts.host:  # RFC 9112 3.2.2
            host = b"[%b]" % parts.host if b":" in parts.host else parts.host
            named = b"%b:%d" % (host, parts.port) if parts.port else host
            fields[:] = [(name, named if name == b"host" else value) for name, value in fields]
        path: bytes = parts.path or b"/"
        if not path.isascii():
            raise httptools.HttpParserInvalidURLError("a path that is not ASCII")
        client, scheme = self.address, self._scheme
        if self._proxies is not None:
            client, scheme = self._proxies.described(fields, client, scheme)
        query = parts.query or b""
        request = raw_request(self._method, path, query, fields, scheme, client, self._is_local)
        if b"transfer-encoding" in request.headers:
            _require_chunked(fields, self._version)
        return Exchange(self, request, fields, self._version, keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        exchange = self._last  # a whole one is not the request of these bytes, which was refused
        if exchange is not None and exchange.has_more and not exchange.is_complete:
            exchange.take(body)

    def on_message_complete(self) -> None:
        exchange = self._last
        if exchange is not None and not exchange.is_complete and not self._asks_for_upgrade():
            exchange.take_end()

    def _asks_for_upgrade(self) -> bool:
        """Whether the head has to be read again without `Upgrade`."""
        return self.parser.should_upgrade() and not self._is_overrun

    def _read_without_upgrade(self, rest: memoryview) -> None:
        """Ignore that a request asks for another protocol (RFC 9110 7.8). Java's client asks for HTTP/2 like this.

        The parser takes what follows for the other protocol, so a new one gets the head without `Upgrade` and the rest.
        """
        while self._asks_for_upgrade():
            self.parser = self._new_parser()
            try:
                self.parser.feed_data(self._head_without_upgrade())
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
                continue
            except httptools.HttpParserError:
                self._refuse_bytes()
            return

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self._method.encode(), self._url, self._version.encode())]
        lines += [b"%b: %b" % header for header in self._fields if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    # The turns of requests.

    def _start(self, exchange: Exchange) -> None:
        """Begin a request, at once if possible: refused, in a task, or as a read that needs no task.

        Of requests that arrived together, only the first runs without a task, so that others are served between them.
        If the application waits for a network, none does: `asyncio.timeout` and task groups raise outside a task.
        """
        self._under_way = exchange
        admission, serving = self.admission, self.serving
        limit = exchange.limit or admission.limit_reached(len(serving.connections))
        if limit is not None:
            admission.count_refused(limit, self.address)
            # Do not count it as under way: refusals would keep others out.
            answering = serving.application.refuse(exchange.request, exchange, limit)
            refusing = self.loop.create_task(self._respond(exchange, answering))
            refusing.add_done_callback(serving.tasks.discard)
            serving.tasks.add(refusing)
            return
        at_once = self._may_begin_at_once and exchange.is_read
        self._may_begin_at_once = False
        if admission.rounds.is_late(self.loop) or (
            not at_once and len(serving.tasks) - admission.waiting >= TASKS_AT_ONCE
        ):
            admission.requests += 1
            admission.rounds.wait(self.address, partial(self._begin_in_turn, exchange), self.loop)
        else:
            self._begin(exchange, at_once=at_once)

    def _begin_in_turn(self, exchange: Exchange) -> bool:
        """Begin a request that has waited; True if the rest of it is a task."""
        self.admission.requests -= 1
        at_once = exchange.is_read and not self.serving.application.waits
        return not self.is_lost and self._begin(exchange, at_once=at_once)

    def _begin(self, exchange: Exchange, *, at_once: bool) -> bool:
        """Run a read to its first wait at once, because most reads never wait; anything else in a task."""
        answering = self.serving.application.answer(exchange.request, exchange)
        if not at_once or self._writable is not None:
            self._begin_task(self._respond(exchange, answering))
            return True
        try:
            awaited = answering.send(None)
        except StopIteration as done:
            exchange.finish(done.value)
            return False
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            exchange.fail(error)
            return False
        self._begin_task(self._respond(exchange, _rest_of(answering, awaited)))
        return True

    async def _respond(self, exchange: Exchange, answering: Awaitable[RawResponse | None]) -> None:
        try:
            response = await answering
            await self.until_writable()
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            exchange.fail(error)
        else:
            exchange.finish(response)

    def _begin_task(self, answering: Coroutine[Any, Any, None]) -> None:
        """Count the request as under way until its task ends, even if the client goes away before."""
        self.admission.requests += 1
        task = self.loop.create_task(answering)
        task.add_done_callback(self._end_task)
        self.serving.tasks.add(task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self.serving.tasks.discard(task)
        self.admission.requests -= 1

    def on_response_complete(self) -> None:
        """End the connection, begin the next request, or wait for it."""
        exchange = self._under_way
        assert exchange is not None
        if not exchange.keep_alive:
            self._is_overrun = True  # nothing that follows is carried out (RFC 9112 9.6)
            if exchange.has_more:  # close later: a client that is cut off may never see the answer
                self.loop.call_later(limits.BODY_DISCARD_SECONDS_MAX, self.end_idle)
            else:
                self.close()
        self.release_arrived()
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._pipelined:
            # Not at once: each request would be answered inside the call for the one before.
            self._may_begin_at_once = False
            self._start(self._pipelined.popleft())
            return
        if self._last_words is not None:
            self._end_with(self._last_words)
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.serving.idle_seconds, self._end_if_idle)


def pieces_of(data: bytes, *, line_is_open: bool) -> list[bytes]:
    """The data, cut around each line that may be the request line of another protocol, or the rest of it.

    So it is known of such a line whether a request began in it. Others stay together: a body has many lines.
    """
    cuts = [0, data.find(b"\n") + 1 if line_is_open else 0]
    if b" RTSP/" in data or b" ICE/" in data:
        for found in _OTHER_PROTOCOL.finditer(data):
            if found.start() >= cuts[-1]:
                cuts.append(data.rfind(b"\n", cuts[-1], found.start()) + 1 or cuts[-1])
                cuts.append(data.find(b"\n", found.end()) + 1 or len(data))
    cuts += (max(cuts[-1], data.rfind(b"\n") + 1), len(data))
    return [data[one:other] for one, other in pairwise(cuts) if one < other]


def _require_chunked(fields: Fields, version: str) -> None:
    """Raise unless the body is chunked and nothing else, once, as nginx requires it: no proxy may see another end."""
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings != [b"chunked"] or version == "1.0":
        raise httptools.HttpParserError("a coding of the body that is not served")
