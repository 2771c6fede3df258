"""Whether traces are asked for: by OpenTelemetry's standard environment variables, and by nothing else.

Imports nothing of OpenTelemetry, so a server without traces does not either. Takes the environment as a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED: Final = "OTEL_SDK_DISABLED"
NONE: Final = "none"
OTLP: Final = "otlp"
GRPC: Final = "grpc"


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Whether an exporter or its endpoint is named, and nothing switches traces off."""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return False
    exporter = environment.get(EXPORTER, "").strip()
    if exporter:
        return exporter.lower() != NONE
    return any(environment.get(name, "").strip() for name in ENDPOINTS)


def exporter_names(environment: Mapping[str, str]) -> list[str]:
    """The names under which packages register the exporters that are asked for; without a name, OTLP over HTTP."""
    protocol = next(filter(None, (environment.get(name, "").strip() for name in PROTOCOLS)), "")
    otlp = "otlp_proto_grpc" if protocol.lower() == GRPC else "otlp_proto_http"
    asked = environment.get(EXPORTER, "") or OTLP
    names = [name.strip().lower() for name in asked.split(",") if name.strip()]
    return [otlp if name == OTLP else name for name in names]
