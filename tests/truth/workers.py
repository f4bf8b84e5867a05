"""The bench's workers, on fastlane's clients and on openai's, held against a truth server."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fastlane.bench import Arm, Sample
from fastlane.bench._arms import stock_async

from .lanes import Lanes, read_lanes
from .score import ClientTimes, MeasurementErrors, score
from .server import ServerPace, truth_server

LANES: Final = 50
PACES: Final = {
    100: ServerPace(time_to_first_token_s=0.2, token_s=0.01, tokens=64),
    2_000: ServerPace(time_to_first_token_s=0.05, token_s=0.0005, tokens=200),
}
"""By tokens per second of each stream."""
ARMS: Final = (
    Arm(name="fastlane", asynchronous=True),
    Arm(name="threads"),
    Arm(name="stock", client=stock_async),
)
_ONE_PROCESS_CHUNKS_PER_S: Final = 5_000
"""Up to here one process is enough for any client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """One client at one pace."""

    arm: str
    shards: int
    """Processes that shared the streams."""
    score: MeasurementErrors


def run(rate: int, *, requests: int, arms: Iterable[Arm] = ARMS, lanes: int = LANES) -> tuple[WorkerRow, ...]:
    """Hold what the workers record of `lanes` streams at `rate` tokens a second against what the server did.

    `requests` of each lane count. The streams of fastlane's clients are spread over all cores where one process may
    not be enough; openai's has one process, as an application has it. Raises RunFailedError if a client fails,
    ConfigurationError without a C compiler, and TruthServerError.
    """
    pace = PACES[rate]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rows = []
    with truth_server() as truth:
        for arm in arms:
            # All cores, though the server wants one of them: on two, two processes were less late than one (p50 3.3
            # against 8.3 ms at 2,000 tokens/s).
            several = arm.client is None and lanes * rate > _ONE_PROCESS_CHUNKS_PER_S
            shards = min(cores, lanes) if several else 1
            truth.clear()
            truth.answer_like(pace)
            load = Lanes(lanes=lanes, requests=requests, answer_s=pace.answer_s, shards=shards)
            samples = read_lanes(arm, truth.base_url, load)
            rows.append(WorkerRow(arm=arm.name, shards=shards, score=score(list(map(_reading, samples)), truth.log())))
    return tuple(rows)


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
