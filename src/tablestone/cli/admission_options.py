"""The limits of what the server takes on at a time, from their options. Knows options; knows no request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import MAX_ADDRESS_SHARE, MAX_BUFFERS, MAX_CONNECTIONS, MAX_REQUESTS
from tablestone.configuration import (
    BUFFERED_MEBIBYTES_MIN,
    CONNECTIONS_MIN,
    AdmissionLimits,
)

LEAST_OF_A_WORKER: Final = (
    (MAX_CONNECTIONS, CONNECTIONS_MIN),
    (MAX_BUFFERS, BUFFERED_MEBIBYTES_MIN),
)


def admission_limits(given: Mapping[str, Any], workers: int) -> AdmissionLimits:
    """The limits of what the server takes on at a time. Those with which no client could be served are refused."""
    usual = AdmissionLimits()
    for option, least in LEAST_OF_A_WORKER:
        if given.get(option.name, least * workers) < least * workers:
            raise BrokenOption(
                f"{option.flag} must be {least} for each worker at least: {least * workers} for {workers}."
            )
    return AdmissionLimits(
        given.get(MAX_CONNECTIONS.name, usual.connections_max),
        given.get(MAX_REQUESTS.name, usual.requests_max),
        given.get(MAX_BUFFERS.name, usual.buffered_mebibytes_max),
        given.get(MAX_ADDRESS_SHARE.name, usual.address_percent),
    )
