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
    meaning: str
    """What it is, in a sentence or two."""


def _time(name: str, title: str, meaning: str) -> RequestMetric:
    def milliseconds(sample: Sample) -> float | None:
        value = getattr(sample, f"{name}_s")
        return None if value is None else value * 1e3

    return RequestMetric(name=name, title=title, unit="ms", value=milliseconds, meaning=meaning)


def _rate(name: str, title: str, meaning: str) -> RequestMetric:
    return RequestMetric(
        name=name, title=title, unit="tokens/s", lower_is_better=False, value=attrgetter(name), meaning=meaning
    )


METRICS: Final = {
    metric.name: metric
    for metric in (
        _time(
            "time_to_first_token",
            "Time to first token",
            "TTFT: from just before the call until its first output, reasoning included; connecting is inside.",
        ),
        _time(
            "time_to_first_content_token",
            "Time to first content token",
            "The same until the first output that is no reasoning.",
        ),
        _time(
            "time_per_output_token",
            "Time per output token",
            "TPOT: (E2E - TTFT) / (output tokens - 1), with these parentheses; tokens by the provider's usage. Some "
            "load generators put TTFT inside what they call TPOT.",
        ),
        _time(
            "inter_token_latency",
            "Inter-token latency",
            "ITL: the mean time between a request's chunks with output; a chunk may carry several tokens.",
        ),
        _time("generation_time", "Token generation time", "E2E - TTFT: from the first output to the last one."),
        _time("api_end_to_end", "API end-to-end", "E2E: from just before the call until the last output."),
        _rate("decode_speed", "Decode speed", "1 / TPOT, as one user sees it."),
        _rate("output_throughput", "Output throughput", "Output tokens of a request over its E2E."),
        RequestMetric(
            name="request_bytes",
            title="Request body",
            unit="bytes",
            words=("smaller", "larger"),
            value=attrgetter("request_bytes"),
            meaning="Bytes of the body as sent, without headers, framing and TLS.",
        ),
        RequestMetric(
            name="price",
            title="Price",
            unit="US$",
            words=("cheaper", "dearer"),
            value=attrgetter("price"),
            meaning="US dollars of one request by its usage and the catalog's prices.",
        ),
    )
}
DEFAULT_METRICS: Final = ("time_to_first_token", "time_per_output_token", "api_end_to_end")


def metric_named(name: str) -> RequestMetric:
    """Return a metric by its name. Raises ConfigurationError, which lists the known ones."""
    if name not in METRICS:
        raise ConfigurationError(f"unknown metric {name!r}: the known metrics are {', '.join(METRICS)}")
    return METRICS[name]
