"""What a metric is, and the buckets of its histogram."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

Kind = Literal["histogram", "counter"]


class Metric(NamedTuple):
    """One metric, as OpenTelemetry's API is asked for it."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    """The boundaries that are advised where the application's views say nothing; only of a histogram."""


class Measure(NamedTuple):
    """One value of a metric."""

    metric: Metric
    value: float
    labels: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Labels beyond those of the call. A text is one of a limited number in each label."""


SECONDS: Final = (
    0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0,
    5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
)  # fmt: skip
"""Fine enough to tell two arms of an experiment apart, which steps of a factor of two are not."""

SHORT_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, *SECONDS)
"""For what may take less than a hundredth of a second: a phase on the wire, the gap between two chunks."""

LONG_SECONDS: Final = (*SECONDS, 180.0, 300.0, 600.0, 1800.0, 3600.0)
"""For a user's action, which may be a job."""
