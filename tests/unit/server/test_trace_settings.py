"""The environment variables of OpenTelemetry that switch traces on, as its specification defines them.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import pytest

from tablestone.server.application import asks_for_traces
from tablestone.server.tracing import exporter_names

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
HTTP, GRPC = ["otlp_proto_http"], ["otlp_proto_grpc"]
ROWS: dict[str, tuple[dict[str, str], list[str] | None]] = {
    "nothing": ({}, None),
    "an endpoint": (ENDPOINT, HTTP),
    "an endpoint for traces": ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h/v1/traces"}, HTTP),
    "an endpoint for something else": ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://h"}, None),
    "an empty endpoint": ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
    "an exporter": ({"OTEL_TRACES_EXPORTER": "otlp"}, HTTP),
    "another exporter": ({"OTEL_TRACES_EXPORTER": "console"}, ["console"]),
    "two exporters": ({"OTEL_TRACES_EXPORTER": "otlp, console"}, [*HTTP, "console"]),
    "none, beside an endpoint": ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, None),
    "switched off": ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, None),
    "not switched off": ({"OTEL_SDK_DISABLED": "false", **ENDPOINT}, HTTP),
    "gRPC": ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", **ENDPOINT}, GRPC),
    "gRPC for other signals": (
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            **ENDPOINT,
        },
        HTTP,
    ),
    "only a name": ({"OTEL_SERVICE_NAME": "tables"}, None),
}


@pytest.mark.parametrize(("environment", "exporters"), ROWS.values(), ids=ROWS)
def test_asked_for(environment: dict[str, str], exporters: list[str] | None) -> None:
    assert asks_for_traces(environment) == (exporters is not None)
    if exporters is not None:
        assert exporter_names(environment) == exporters
