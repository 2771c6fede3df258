"""A collector of traces for tests: OTLP over HTTP on a free port."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    """One span. Ids are hexadecimal, the parent's is empty for a root span, and times are in nanoseconds."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    error: bool
    start: int
    end: int
    attributes: dict[str, Any]


@dataclass
class Collector:
    """The spans received so far."""

    endpoint: str
    spans: list[CollectedSpan] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        for exported in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_attributes(exported.resource.attributes))
            for scope in exported.scope_spans:
                self.spans += [
                    CollectedSpan(
                        each.trace_id.hex(),
                        each.span_id.hex(),
                        each.parent_span_id.hex(),
                        each.name,
                        each.kind,
                        each.status.code == 2,
                        each.start_time_unix_nano,
                        each.end_time_unix_nano,
                        _attributes(each.attributes),
                    )
                    for each in scope.spans
                ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""

    class Exported(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                collector.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep standard error for the test."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Exported) as listening:
        collector = Collector(f"http://127.0.0.1:{listening.server_address[1]}")
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            listening.shutdown()
            thread.join()
