"""The metrics that arms are compared by: each with its unit, its words and how one sample gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastlane.errors import ConfigurationError

from ._sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetric:
    """One figure of a request that can be compared between arms; docs/measuring.md defines each."""

    name: str
    title: str
    unit: str
    """Of the values that `value` returns: "ms", "tokens/s", "bytes" or "US$"."""
    lower_is_better: bool = True
    words: tuple[str, str] = ("faster", "slower")
    """What is said where an arm's values are better, and where they are worse."""
    value: Callable[[Sample], float | None]
    """None where the request gave no such figure, as a failed one does."""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


METRICS: Final = {
    metric.name: metric
    for metric in (
        RequestMetric(
            name="time_to_first_token",
            title="Time to first token",
            unit="ms",
            value=lambda sample: _ms(sample.time_to_first_token_s),
        ),
        RequestMetric(
            name="time_to_first_content_token",
            title="Time to first content token",
            unit="ms",
            value=lambda sample: _ms(sample.time_to_first_content_token_s),
        ),
        RequestMetric(
            name="time_per_output_token",
            title="Time per output token",
            unit="ms",
            value=lambda sample: _ms(sample.time_per_output_token_s),
        ),
        RequestMetric(
            name="inter_token_latency",
            title="Inter-token latency",
            unit="ms",
            value=lambda sample: _ms(sample.inter_token_latency_s),
        ),
        RequestMetric(
            name="generation_time",
            title="Token generation time",
            unit="ms",
            value=lambda sample: _ms(sample.generation_time_s),
        ),
        RequestMetric(
            name="api_end_to_end",
            title="API end-to-end",
            unit="ms",
            value=lambda sample: _ms(sample.api_end_to_end_s),
        ),
        RequestMetric(
            name="decode_speed",
            title="Decode speed",
            unit="tokens/s",
            lower_is_better=False,
            value=lambda sample: sample.decode_speed,
        ),
        RequestMetric(
            name="output_throughput",
            title="Output throughput",
            unit="tokens/s",
            lower_is_better=False,
            value=lambda sample: sample.output_throughput,
        ),
        RequestMetric(
            name="request_bytes",
            title="Request body",
            unit="bytes",
            words=("smaller", "larger"),
            value=lambda sample: sample.request_bytes,
        ),
        RequestMetric(
            name="price",
            title="Price",
            unit="US$",
            words=("cheaper", "dearer"),
            value=lambda sample: sample.price,
        ),
    )
}
DEFAULT_METRICS: Final = ("time_to_first_token", "time_per_output_token", "api_end_to_end")


def metric_named(name: str) -> RequestMetric:
    """Return a metric by its name. Raises ConfigurationError, which lists the known ones."""
    if name not in METRICS:
        raise ConfigurationError(f"unknown metric {name!r}: the known metrics are {', '.join(METRICS)}")
    return METRICS[name]
