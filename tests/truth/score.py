"""How far recorded figures are from a server's own: request by request, from raw records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .log import ServedRequest, TruthLog

BUSY_MS: Final = 1.0
"""A server that is itself later than this with one chunk in a hundred has, or is on, a machine that is too busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTimes:
    """What any client says of one request. Monotonic nanoseconds of the server's own machine."""

    tag: str
    time_to_first_token_s: float
    time_per_output_token_s: float | None
    chunks: int
    """With output."""
    arrived_s: float | None = None
    """Time to first token by when the bytes had arrived, by the client's own record; None if it keeps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementErrors:
    """Errors of all requests that were read. Percentiles are of absolute values, without interpolation."""

    requests: int
    unmatched: int
    """Readings whose request the server does not know."""
    wrong_counts: int
    """Requests of which another number of chunks was read than was sent."""
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    arrived_error_p50_ms: float | None
    """The same, had the time been taken when the bytes arrived."""
    arrived_error_p99_ms: float | None
    tpot_error_p50: float
    """Of time per output token, as a share of the true one."""
    tpot_error_p99: float
    true_ttft_p50_ms: float
    reported_ttft_p50_ms: float
    reported_ttft_p99_ms: float
    chunks_per_s: float
    """That the server sent, from its first to its last."""
    server_late_p50_ms: float
    """Of the server's chunks, against its own schedule: no error of the client's."""
    server_late_p99_ms: float

    @property
    def too_busy(self) -> bool:
        """Whether the server itself was late, so that the figures may say more of the machine than of the client."""
        return self.server_late_p99_ms > BUSY_MS


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def score(readings: Sequence[ClientTimes], log: TruthLog) -> MeasurementErrors:
    """Hold readings against the log of the server that answered them, matched by their tags."""
    truths = log.by_tag()
    pairs = [(reading, truths[reading.tag]) for reading in readings if reading.tag in truths]
    ttft = [_ms(reading.time_to_first_token_s, truth) for reading, truth in pairs]
    arrived = [_ms(reading.arrived_s, truth) for reading, truth in pairs if reading.arrived_s is not None]
    tpot = [error for reading, truth in pairs if (error := _tpot_error(reading, truth)) is not None]
    late = [lateness for _, truth in pairs for lateness in truth.lateness_ms]
    sent = [stamp for _, truth in pairs for stamp in (truth.sent_ns[0], truth.sent_ns[-1])]
    chunks = sum(len(truth.sent_ns) for _, truth in pairs)
    reported = [1e3 * reading.time_to_first_token_s for reading, _ in pairs]
    return MeasurementErrors(
        requests=len(pairs),
        unmatched=len(readings) - len(pairs),
        wrong_counts=sum(reading.chunks != len(truth.sent_ns) for reading, truth in pairs),
        ttft_error_p50_ms=percentile(ttft, 0.5),
        ttft_error_p99_ms=percentile(ttft, 0.99),
        arrived_error_p50_ms=percentile(arrived, 0.5) if arrived else None,
        arrived_error_p99_ms=percentile(arrived, 0.99) if arrived else None,
        tpot_error_p50=percentile(tpot, 0.5),
        tpot_error_p99=percentile(tpot, 0.99),
        true_ttft_p50_ms=percentile([1e3 * (truth.time_to_first_token_s or 0) for _, truth in pairs], 0.5),
        reported_ttft_p50_ms=percentile(reported, 0.5),
        reported_ttft_p99_ms=percentile(reported, 0.99),
        chunks_per_s=chunks / (max(sent) - min(sent)) * 1e9 if len(set(sent)) > 1 else 0.0,
        server_late_p50_ms=percentile(late, 0.5),
        server_late_p99_ms=percentile(late, 0.99),
    )


def _ms(reported_s: float | None, truth: ServedRequest) -> float:
    true_s = truth.time_to_first_token_s
    return math.inf if reported_s is None or true_s is None else abs(reported_s - true_s) * 1e3


def _tpot_error(reading: ClientTimes, truth: ServedRequest) -> float | None:
    true_s = truth.time_per_output_token_s
    if not true_s:
        return None
    reported_s = reading.time_per_output_token_s
    return math.inf if reported_s is None else abs(reported_s / true_s - 1)
