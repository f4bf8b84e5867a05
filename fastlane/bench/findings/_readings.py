"""One cell's requests as numbers: by arm, metric and block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..recorded import RequestMetric, Sample

Key = tuple[str, int, int, int]
"""A block, as `Sample.key` names it."""
BROKE_OFF: Final = "answer broke off"
"""What an answer counts as that ended without an error and without its finish reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmValues:
    """One arm's requests of one cell by one metric."""

    values: Mapping[Key, float] = field(default_factory=dict)
    """Of the requests that succeeded and gave one."""
    failed: frozenset[Key] = frozenset()
    silent: int = 0
    """Requests that succeeded and gave no value."""


def errors_of(samples: Sequence[Sample]) -> dict[Key, str]:
    """Return which requests failed and by what: those that broke off have failed as well.

    Servers that are interrupted, or that run out of room, close a stream as if it were whole; its times are those of
    part of an answer. Where not one of the arm's answers says why it ended, that is how its client or server is.
    """
    says_why = any(sample.finish_reason is not None for sample in samples)
    found = {}
    for sample in samples:
        if sample.error is not None:
            found[sample.key] = sample.error
        elif says_why and sample.finish_reason is None:
            found[sample.key] = BROKE_OFF
    return found


def reading(samples: Iterable[Sample], failed: Mapping[Key, str], metric: RequestMetric) -> ArmValues:
    """Return one metric of an arm's requests. A value below 0 or of no finite size is none: a clock's fault."""
    values: dict[Key, float] = {}
    silent = 0
    for sample in samples:
        key = sample.key
        if key in failed:
            continue
        value = metric.value(sample)
        if value is None or not 0 <= value < math.inf:
            silent += 1
        else:
            values[key] = float(value)
    return ArmValues(values=values, failed=frozenset(failed), silent=silent)


def counts_failed(metric: RequestMetric) -> bool:
    """Whether a request that failed is worse than every other by this metric: by times and speeds, not by sizes."""
    return metric.words == ("faster", "slower")


def counted(errors: Mapping[Key, str]) -> dict[str, int]:
    """Return how often each error came, the most frequent first."""
    return dict(Counter(errors.values()).most_common())


def throughput(samples: Iterable[Sample]) -> float:
    """Return output tokens per second in which requests were in flight; shards, which run side by side, add up."""
    by_shard: dict[int, list[Sample]] = {}
    for sample in samples:
        by_shard.setdefault(sample.shard, []).append(sample)
    return sum(_rate(each) for each in by_shard.values())


def _rate(samples: Sequence[Sample]) -> float:
    tokens = sum(sample.output_tokens or 0 for sample in samples)
    busy_ns = 0
    until_ns = -math.inf
    for begun_ns, ended_ns in sorted((sample.issued_ns, sample.ended_ns) for sample in samples):
        if ended_ns > until_ns:
            busy_ns += ended_ns - int(max(begun_ns, until_ns))
            until_ns = ended_ns
    return tokens / (busy_ns / 1e9) if busy_ns else 0.0
