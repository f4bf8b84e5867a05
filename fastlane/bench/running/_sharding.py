"""Over how many processes a load must be spread, so that no client is asked for more than it can take."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Final

from ..load import Closed, Load
from ..workloads import Workload

TRUSTED_SHARE: Final = 0.5
"""Of its capacity, how much a client may be asked for. Receive lag was seen to grow well before a client is full:
openai's, which takes 11,000 chunks/s, showed lags of 9 ms (p50) at 16,000 offered and 1.5 ms at 5,000."""
STREAM_TOKENS_PER_S: Final = 100.0
"""How fast one stream is taken to decode where nobody has seen it yet: hosted models mostly do 50 to 200 tokens/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How many processes an arm's lanes are spread over, and why."""

    shards: int
    offered_chunks_per_s: float
    """Of all lanes together, a token a chunk, at the busiest cell."""
    sentence: str


def sharding(
    load: Load, workload: Workload, capacity: float, *, stream_tokens_per_s: float = STREAM_TOKENS_PER_S
) -> Sharding:
    """Return over how many processes each arm's client must be spread at the busiest cell of `load`.

    `capacity` is the chunks per second of the slowest arm's client in one process (`calibrate`), of which
    `TRUSTED_SHARE` counts. A closed load of N users offers at most N streams of `stream_tokens_per_s`, an open one its
    rate times the workload's mean answer. Never more shards than users: a lane is not divided.
    """
    if isinstance(load, Closed):
        streams = max(load.users)
        offered = streams * stream_tokens_per_s
        what = f"{streams} users at {stream_tokens_per_s:,.0f} tokens/s each"
        most = streams
    else:
        turns = [turn for each in workload.conversations for turn in each.turns]
        tokens = statistics.fmean(turn.answer_tokens for turn in turns)
        rate = max(load.rates)
        if load.arrivals == "recorded":
            arrivals = [turn.arrival_s for turn in turns if turn.arrival_s is not None]
            span_s = max(arrivals, default=0.0) - min(arrivals, default=0.0)
            rate = load.speed * (len(arrivals) / span_s if span_s else rate)
        offered = rate * tokens
        what = f"{rate:,.3g} requests/s of {tokens:,.0f} tokens each"
        most = None
    trusted = capacity * TRUSTED_SHARE
    shards = max(1, math.ceil(offered / trusted))
    shards = shards if most is None else min(shards, most)
    one = f"{what} are up to {offered:,.0f} chunks/s; one process takes {capacity:,.0f}, of which half is trusted"
    several = "process is enough" if shards == 1 else "processes share the lanes"
    return Sharding(shards=shards, offered_chunks_per_s=offered, sentence=f"{one}: {shards} {several}")
