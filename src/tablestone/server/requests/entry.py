"""Where a request enters: its record and its body around the steps of the pipeline, and waiting for changes."""

from collections.abc import Callable
from typing import Any

from tablestone import limits
from tablestone.clock import monotonic_seconds, unix_seconds
from tablestone.engines.contract import Engine
from tablestone.server.admission import Admission, Limit
from tablestone.server.requests.body import Arriving, RequestBody, is_worth_discarding
from tablestone.server.requests.pipeline import Pipeline
from tablestone.server.requests.waits import Waits
from tablestone.tables.auto_index import QueryCounts
from tablestone.telemetry.access_log import AccessLog
from tablestone.telemetry.request_counts import RequestCounts
from tablestone.telemetry.request_record import RequestDetails, RequestRecord
from tablestone.wire.messages import RawRequest, RawResponse, Wait

_CLOSE = (b"connection", b"close")
_PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_TOO_LONG = b"The headers of a request have at most %d bytes." % limits.HEADERS_BYTES_MAX


class RequestEntry:
    """Answers requests by the pipeline. Metrics, an access log and traces need their records."""

    def __init__(
        self,
        pipeline: Pipeline,
        counts: RequestCounts | None,
        access_log: AccessLog | None,
        begin_trace: Callable[[RequestRecord, RawRequest], Any] | None,
        scans: QueryCounts | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._counts = counts
        self._access_log = access_log
        self._begin_trace = begin_trace
        self._wants_details = access_log is not None or begin_trace is not None
        self._scans = scans
        self._is_watched = bool(counts or scans) or self._wants_details
        self._waits: Waits | None = None
        self._admission: Admission | None = None

    def allow_waits(self, engine: Engine, admission: Admission) -> None:
        """From now on, requests may wait for changes."""
        self._waits, self._admission = Waits(engine, self._pipeline.answer, admission), admission

    async def answer(self, request: RawRequest, arriving: Arriving) -> RawResponse:
        """The answer to one request. Its last header says so if the connection has to end with it."""
        headers = request.headers
        if len(b"".join(headers)) + len(b"".join(headers.values())) > limits.HEADERS_BYTES_MAX:
            return RawResponse(431, [_PLAIN_TEXT, _CLOSE], _TOO_LONG)
        body = RequestBody(arriving, headers)
        details = RequestDetails(request.method, request.client) if self._wants_details else None
        record = RequestRecord(monotonic_seconds(), details)
        trace = None if self._begin_trace is None else self._begin_trace(record, request)
        try:
            response = await self._pipeline.answer(request, body.read, record)
            if response.wait is not None and self._waits is not None:
                response = await self._answer_later(request, arriving, record, response.wait)
            record.bytes_in = body.size
            self._note(record, response)
        finally:
            if trace is not None:
                trace.end()
        if arriving.has_more:
            if not body.is_read and is_worth_discarding(headers):
                await body.discard()
            if arriving.has_more:
                response.headers.append(_CLOSE)
        return response

    async def _answer_later(
        self, request: RawRequest, arriving: Arriving, record: RequestRecord, wait: Wait
    ) -> RawResponse:
        admission, waits = self._admission, self._waits
        assert admission is not None
        assert waits is not None
        if admission.waiting >= admission.waits_max:
            admission.count_refused(Limit.WAITING, request.client)
            return self._pipeline.refusal(request.headers, Limit.WAITING.value, record)
        admission.waiting += 1
        try:
            return await waits.answer(request, arriving, record, wait)
        finally:
            admission.waiting -= 1

    async def refuse(self, request: RawRequest, arriving: Arriving, limit: Limit) -> RawResponse:
        """Answer that a limit is reached, and close the connection."""
        record = RequestRecord(monotonic_seconds(), RequestDetails(request.method, request.client))
        response = self._pipeline.refusal(request.headers, limit.value, record)
        self._note(record, response)
        if is_worth_discarding(request.headers):
            await RequestBody(arriving, request.headers).discard()
        response.headers.append(_CLOSE)
        return response

    def _note(self, record: RequestRecord, response: RawResponse) -> None:
        """Count and log a request whose answer is ready."""
        if not self._is_watched:
            return
        record.ended = monotonic_seconds()
        record.status = response.status
        record.bytes_out = len(response.body)
        if self._counts is not None:
            self._counts.count(record)
        if self._scans is not None and not record.is_ours:
            self._scans.note(record)
        if self._access_log is not None:
            assert record.details is not None
            record.details.at_seconds = unix_seconds()
            self._access_log.write(record, record.details)
