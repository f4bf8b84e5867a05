"""The metrics that arms are compared by: each with its unit, its words and how one sample gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
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


def _time(name: str, title: str) -> RequestMetric:
    def milliseconds(sample: Sample) -> float | None:
        value = getattr(sample, f"{name}_s")
        return None if value is None else value * 1e3

    return RequestMetric(name=name, title=title, unit="ms", value=milliseconds)


def _rate(name: str, title: str) -> RequestMetric:
    return RequestMetric(name=name, title=title, unit="tokens/s", lower_is_better=False, value=attrgetter(name))


METRICS: Final = {
    metric.name: metric
    for metric in (
        _time("time_to_first_token", "Time to first token"),
        _time("time_to_first_content_token", "Time to first content token"),
        _time("time_per_output_token", "Time per output token"),
        _time("inter_token_latency", "Inter-token latency"),
        _time("generation_time", "Token generation time"),
        _time("api_end_to_end", "API end-to-end"),
        _rate("decode_speed", "Decode speed"),
        _rate("output_throughput", "Output throughput"),
        RequestMetric(
            name="request_bytes",
            title="Request body",
            unit="bytes",
            words=("smaller", "larger"),
            value=attrgetter("request_bytes"),
        ),
        RequestMetric(name="price", title="Price", unit="US$", words=("cheaper", "dearer"), value=attrgetter("price")),
    )
}
DEFAULT_METRICS: Final = ("time_to_first_token", "time_per_output_token", "api_end_to_end")


def metric_named(name: str) -> RequestMetric:
    """Return a metric by its name. Raises ConfigurationError, which lists the known ones."""
    if name not in METRICS:
        raise ConfigurationError(f"unknown metric {name!r}: the known metrics are {', '.join(METRICS)}")
    return METRICS[name]
