"""The run's figures against the provider's own log: what each side says of the same request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._recorder import Sample

if TYPE_CHECKING:
    from ..emulator import RequestLog


BUSY_LAG_MS = 10.0
"""A p95 of an arm's lags above this is no client's doing: the machine was busy."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The largest difference between two accounts of one thing, and the request that showed it."""

    value: float
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Milliseconds from a token's arrival, by the provider's stamp and the wire's one way, to the caller's stamp."""

    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Connections that one arm opened, by two accounts; None where the client keeps none."""

    by_server: int
    by_client: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the comparison of both sides gave. `problems` says why the run's figures must not be used."""

    requests_by_client: int
    requests_by_server: int
    tries_by_server: int
    """The same with every retry counted."""
    problems: tuple[str, ...]
    time_to_first_token_ms: Disagreement | None
    """Client's stamp minus the provider's stamp of the first token, minus the wire's one way."""
    api_end_to_end_ms: Disagreement | None
    """The same for the last token."""
    output_tokens: Disagreement | None
    """Client's count minus the provider's."""
    chunks: Disagreement | None
    """Chunks with output that the client saw minus tokens that the provider sent."""
    request_bytes: Disagreement | None
    """Bytes of the request's body by the client's record minus by the provider's log."""
    own_time_to_first_token_ms: Disagreement | None
    """The bench's time to first token minus the client's own record of it."""
    lags: Mapping[str, Lag]
    """Per arm, over the first tokens of its measured requests."""
    connections: Mapping[str, Connections]


def check(samples: Sequence[Sample], log: Iterable[RequestLog], *, one_way_s: float) -> Check:
    """Compare every request's two accounts; `one_way_s` is the wire's delay in one direction."""
    entries: dict[str, list[RequestLog]] = defaultdict(list)
    for entry in log:
        entries[entry.tag or f"(no tag: {entry.request_id})"].append(entry)
    # A retried request has an entry for each try; the last one gave the answer.
    pairs = [(sample, entries[sample.tag][-1]) for sample in samples if sample.tag in entries]
    answered = [(sample, entry) for sample, entry in pairs if sample.error is None]
    way_ns = one_way_s * 1e9
    timed = [(sample, entry) for sample, entry in answered if sample.token_ns and entry.token_ns]
    return Check(
        requests_by_client=len(samples),
        requests_by_server=len(entries),
        tries_by_server=sum(map(len, entries.values())),
        problems=_missing(samples, entries),
        time_to_first_token_ms=_largest(
            (sample.tag, (sample.token_ns[0] - entry.token_ns[0] - way_ns) / 1e6) for sample, entry in timed
        ),
        api_end_to_end_ms=_largest(
            (sample.tag, (sample.token_ns[-1] - entry.token_ns[-1] - way_ns) / 1e6) for sample, entry in timed
        ),
        output_tokens=_largest(
            (sample.tag, (sample.output_tokens or 0) - entry.output_tokens) for sample, entry in answered
        ),
        chunks=_largest((sample.tag, len(sample.token_ns) - len(entry.token_ns)) for sample, entry in answered),
        request_bytes=_largest(
            (sample.tag, sent - entry.bytes_in)
            for sample, entry in answered
            if (sent := request_body_bytes(sample)) is not None
        ),
        own_time_to_first_token_ms=own_disagreement(samples),
        lags=_lags([(sample, entry) for sample, entry in timed if not sample.cold], way_ns),
        connections=_connections(samples, entries),
    )


def own_disagreement(samples: Iterable[Sample]) -> Disagreement | None:
    """Return the largest difference between the bench's time to first token and the client's own, in milliseconds.

    First requests are left out: what a client imports before its method is entered is inside the bench's figure only.
    """
    return _largest(
        (sample.tag, (ours - theirs) * 1e3)
        for sample in samples
        if sample.call is not None
        and not sample.cold
        and (ours := sample.time_to_first_token_s) is not None
        and (theirs := sample.call["metrics"]["time_to_first_token_s"]) is not None
    )


def request_body_bytes(sample: Sample) -> int | None:
    """Return the bytes of the request's body by the client's own record; None where it keeps none."""
    return _last_attempt(sample).get("request_body_bytes")


def connections_by_client(samples: Iterable[Sample]) -> int | None:
    """Return how many connections an arm's own records say that it opened; None where any does not say."""
    attempts = [
        attempt for sample in samples for attempt in (sample.call["attempts"] if sample.call is not None else ({},))
    ]
    if not attempts or any(attempt.get("connection_reused") is None for attempt in attempts):
        return None
    # Attempts that waited for one opening together have the same stamps of it; a port may be used again later.
    return len({_opening(attempt) for attempt in attempts if not attempt["connection_reused"]})


def _opening(attempt: Mapping[str, Any]) -> tuple[str | None, int]:
    return attempt["connection_id"], attempt["wire"]["connect_started_ns"]


def _last_attempt(sample: Sample) -> Mapping[str, Any]:
    attempts: Sequence[Mapping[str, Any]] = sample.call["attempts"] if sample.call is not None else ()
    return attempts[-1] if attempts else {}


def _missing(samples: Sequence[Sample], entries: Mapping[str, Sequence[RequestLog]]) -> tuple[str, ...]:
    sent = {sample.tag for sample in samples}
    unseen = [sample.tag for sample in samples if sample.tag not in entries]
    unknown = [tag for tag in entries if tag not in sent]
    problems = []
    if unseen:
        problems.append(f"{len(unseen)} requests of the clients are missing in the provider's log: {_some(unseen)}")
    if unknown:
        problems.append(f"{len(unknown)} requests of the provider's log are missing at the clients: {_some(unknown)}")
    return tuple(problems)


def _some(tags: Sequence[str]) -> str:
    return ", ".join(tags[:5]) + (", …" if len(tags) > 5 else "")


def _largest(differences: Iterable[tuple[str, float]]) -> Disagreement | None:
    found = max(differences, key=lambda each: abs(each[1]), default=None)
    return Disagreement(value=float(found[1]), tag=found[0]) if found else None


def _lags(pairs: Sequence[tuple[Sample, RequestLog]], way_ns: float) -> dict[str, Lag]:
    # First tokens only: later ones may wait for TCP's window on the wire, which is no fault of a client.
    values: dict[str, list[float]] = {}
    for sample, entry in pairs:
        values.setdefault(sample.arm, []).append((sample.token_ns[0] - entry.token_ns[0] - way_ns) / 1e6)
    return {
        arm: Lag(p50_ms=float(np.quantile(lags, 0.5)), p95_ms=float(np.quantile(lags, 0.95)))
        for arm, lags in sorted(values.items())
    }


def _connections(samples: Sequence[Sample], entries: Mapping[str, Sequence[RequestLog]]) -> dict[str, Connections]:
    by_arm: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_arm[sample.arm].append(sample)
    # A connection counts for the arm that sent the first request over it: clients may share a pool.
    opened: dict[str, tuple[int, str]] = {}
    for tag, tries in entries.items():
        for entry in tries:
            first = (entry.connection_request_number, tag)
            opened[entry.connection_id] = min(first, opened.get(entry.connection_id, first))
    openers = [tag for _, tag in opened.values()]
    return {
        arm: Connections(
            by_server=sum(openers.count(sample.tag) for sample in sent), by_client=connections_by_client(sent)
        )
        for arm, sent in by_arm.items()
    }
