"""All metrics of a server, except those of engines."""

from typing import Final

from tablestone.telemetry import metrics
from tablestone.telemetry.metrics import Metric

OWN_METRICS: Final = tuple(
    each
    for value in vars(metrics).values()
    for each in (value.values() if isinstance(value, dict) else (value,))
    if isinstance(each, Metric)
)
