"""The self-test: the harness's own recorder, and openai's client beside it, against the truth."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastlane.errors import ConfigurationError

from .._arms import Arm, stock_async
from ..recorded import Sample, Vitals
from ..running._calibration import calibrate
from ..running._sharding import TRUSTED_SHARE
from ._lanes import Lanes, Read, read_lanes
from ._score import ClientTimes, MeasurementErrors, score
from ._truth_server import ServerPace, TruthServer, truth_server

LANES: Final = 50
PACES: Final = {
    100: ServerPace(time_to_first_token_s=0.2, token_s=0.01, tokens=64),
    2_000: ServerPace(time_to_first_token_s=0.05, token_s=0.0005, tokens=200),
}
"""By tokens per second of each stream."""
_REQUESTS: Final = {100: 8, 2_000: 20}
_QUICK_REQUESTS: Final = {100: 2, 2_000: 6}
ARMS: Final = (
    Arm(name="fastlane", asynchronous=True, description="this harness, on fastlane.AsyncOpenAI"),
    Arm(name="fastlane, threads", description="this harness, on fastlane.OpenAI in threads"),
    Arm(name="stock", client=stock_async, description="this harness, on openai.AsyncOpenAI"),
)
_ONE_PROCESS_CHUNKS_PER_S: Final = 5_000
"""Up to here one process is enough for any client that there is, and none is calibrated."""
OURS: Final = "fastlane"
"""The arm that has to reach the bars."""
MOST_P50_MS: Final = 1.0
MOST_P99_MS: Final = 3.0
MOST_TPOT_ERROR: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestRow:
    """One client at one pace."""

    arm: str
    description: str
    tokens_per_s: int
    """Of each stream."""
    streams: int
    shards: int
    """Processes that shared them."""
    score: MeasurementErrors
    cpu_share: float
    """Of one core, all its processes together."""
    loop_lag_p99_ms: float | None
    """The worst process's own probe."""

    @property
    def reached(self) -> bool:
        """Whether the errors are within the bars."""
        return (
            self.score.ttft_error_p50_ms <= MOST_P50_MS
            and self.score.ttft_error_p99_ms <= MOST_P99_MS
            and self.score.tpot_error_p50 <= MOST_TPOT_ERROR
            and not self.score.wrong_counts
            and not self.score.unmatched
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The outcome of a self-test."""

    rows: tuple[SelfTestRow, ...]
    cores: int
    notes: tuple[str, ...] = field(default=())

    @property
    def reached(self) -> bool:
        """Whether the harness's own recorder is within the bars at every pace."""
        return all(row.reached for row in self.rows if row.arm == OURS)

    @property
    def too_busy(self) -> bool:
        """Whether the server itself was late in some of it."""
        return any(row.score.too_busy for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        rows = [{**dataclasses.asdict(row), "reached": row.reached} for row in self.rows]
        return {
            "cores": self.cores,
            "bars": {
                "ttft_error_p50_ms": MOST_P50_MS,
                "ttft_error_p99_ms": MOST_P99_MS,
                "tpot_error_p50": MOST_TPOT_ERROR,
            },
            "rows": rows,
            "notes": list(self.notes),
            "reached": self.reached,
            "too_busy": self.too_busy,
        }


def run(
    *,
    quick: bool = False,
    arms: Iterable[Arm] = ARMS,
    rates: Iterable[int] = tuple(PACES),
    lanes: int = LANES,
    requests: int | None = None,
    shards: int | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> SelfTest:
    """Hold what the harness records against what a server on loopback really did.

    `rates` are tokens per second of each of `lanes` streams, out of `PACES`; `requests` is how many of each lane count,
    and by default depends on `quick`. `shards` None spreads the lanes of fastlane's arms over as many processes as
    their calibrated capacity demands and this machine has cores; openai's has the one that an application has. Takes
    about two minutes, or half of one if `quick`. Raises RunFailedError where a client fails, ConfigurationError for a
    rate that is not known or without a C compiler, and TruthServerError.
    """
    wanted, chosen = tuple(arms), tuple(rates)
    unknown = [rate for rate in chosen if rate not in PACES]
    if unknown:
        raise ConfigurationError(f"rates are {' or '.join(map(str, PACES))} tokens per second, got {unknown[0]}")
    rows: list[SelfTestRow] = []
    notes: list[str] = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    tell = on_progress or (lambda _: None)
    with truth_server() as truth:
        for arm in wanted:
            capacity = None
            if shards is None and arm.client is None and lanes * max(chosen, default=0) > _ONE_PROCESS_CHUNKS_PER_S:
                tell(f"{arm.name}: calibrating")
                capacity = calibrate(arm, 1.0)
            for rate in chosen:
                count, note = _shards(arm, rate, lanes, capacity, cores) if shards is None else (shards, None)
                notes += [note] if note else []
                tell(f"{arm.name}: {lanes} streams of {rate:,} tokens/s")
                counted = requests or (_QUICK_REQUESTS if quick else _REQUESTS)[rate]
                rows.append(row(arm, rate, truth, lanes=lanes, requests=counted, shards=count))
    return SelfTest(rows=tuple(rows), cores=cores, notes=tuple(notes))


def row(arm: Arm, rate: int, truth: TruthServer, *, lanes: int, requests: int, shards: int) -> SelfTestRow:
    """Measure one arm at one pace."""
    pace = PACES[rate]
    truth.clear()
    truth.answer_like(pace)
    read = read_lanes(arm, truth.base_url, Lanes(lanes=lanes, requests=requests, answer_s=pace.answer_s, shards=shards))
    return SelfTestRow(
        arm=arm.name,
        description=arm.description,
        tokens_per_s=rate,
        streams=lanes,
        shards=shards,
        score=score(readings(read), truth.log()),
        cpu_share=sum(each.cpu_share for each in read.vitals),
        loop_lag_p99_ms=_worst_lag(read.vitals),
    )


def readings(read: Read) -> tuple[ClientTimes, ...]:
    """What a harness's samples say, as any client would say it."""
    return tuple(_reading(sample) for sample in read.samples)


def _reading(sample: Sample) -> ClientTimes:
    own = sample.record.timeline if sample.record is not None else None
    return ClientTimes(
        tag=sample.tag,
        # A request without output never had its first token.
        time_to_first_token_s=math.inf if sample.time_to_first_token_s is None else sample.time_to_first_token_s,
        time_per_output_token_s=sample.time_per_output_token_s,
        chunks=len(sample.token_ns),
        arrived_s=None if own is None or own.first_token_ns is None else (own.first_token_ns - sample.started_ns) / 1e9,
    )


def _worst_lag(vitals: Sequence[Vitals]) -> float | None:
    lags = [each.loop_lag_p99_ms for each in vitals if each.loop_lag_p99_ms is not None]
    return max(lags, default=None)


def _shards(arm: Arm, rate: int, lanes: int, capacity: float | None, cores: int) -> tuple[int, str | None]:
    if capacity is None:
        return 1, None
    offered = lanes * rate
    needed = math.ceil(offered / (capacity * TRUSTED_SHARE))
    # All cores, though the server wants one of them: on two, two processes were seen to be less late than one (p50 3.3
    # against 8.3 ms at 2,000 tokens/s).
    count = max(1, min(needed, cores, lanes))
    if needed == 1:
        return 1, None
    short = "" if needed < cores else f"; they and the server want {needed + 1} cores, and this machine has {cores}"
    return count, (
        f"{arm.name}: {lanes} streams of {rate:,} tokens/s are {offered:,} chunks/s, and one process takes "
        f"{capacity:,.0f}, of which half is trusted: {count} processes{short}"
    )
