"""The client's records against the provider's own log: what each side says of the same request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..recorded import RecordedRun, Sample
from ._sight import Check, Sight, quantile, result
from ._types import CheckResult, Level

if TYPE_CHECKING:
    from ...emulator import RequestLog

BUSY_LAG_MS: Final = 10.0
"""A p95 of an arm's lags above this is no client's doing: the machine was busy."""
EARLY_MS: Final = 1.0
"""A token cannot be seen before it arrives: the emulated wire is timed to less than this."""
FIGURE_SHARE: Final = 0.1
"""A typical lag of a tenth of the time to first token is a part of the figure."""

REQUESTS: Final = "requests on both sides"
TIMES: Final = "times by the server's log"
COUNTS: Final = "counts by the server's log"
OPENED: Final = "connections by the server's log"


@dataclass(frozen=True, slots=True, kw_only=True)
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
class BothAccounts:
    """What the comparison of both sides gives, over all requests of a run."""

    requests_by_client: int
    requests_by_server: int
    tries_by_server: int
    """The same with every retry counted."""
    unseen: tuple[str, ...]
    """Tags of requests that the provider's log does not have."""
    unknown: tuple[str, ...]
    """Tags in the provider's log that no client has sent."""
    time_to_first_token_ms: Disagreement | None
    """Client's stamp minus the provider's stamp of the first token, minus the wire's one way."""
    api_end_to_end_ms: Disagreement | None
    """The same for the last token."""
    output_tokens: Disagreement | None
    """Client's count minus the provider's."""
    cached_tokens: Disagreement | None
    chunks: Disagreement | None
    """Chunks with output that the client saw minus tokens that the provider sent."""
    request_bytes: Disagreement | None
    """Bytes of the request's body by the client's record minus by the provider's log."""
    own_time_to_first_token_ms: Disagreement | None
    """The bench's time to first token minus the client's own record of it."""
    lags: Mapping[str, Lag]
    """Per arm, over the first tokens of its measured requests."""
    connections: Mapping[str, Connections]


def both_accounts(recorded: RecordedRun) -> BothAccounts | None:
    """Compare every request's two accounts; None where the provider keeps no log."""
    if recorded.log is None:
        return None
    samples, entries = recorded.samples, _by_tag(recorded.log)
    # A retried request has an entry for each try; the last one gave the answer.
    answered = [(each, entries[each.tag][-1]) for each in samples if each.error is None and each.tag in entries]
    way_ns = recorded.header.one_way_s * 1e9
    timed = [(sample, entry) for sample, entry in answered if sample.token_ns and entry.token_ns]
    sent = {sample.tag for sample in samples}
    # A session that was killed took the provider's account of these with it.
    known = entries.keys() | set(recorded.unlogged)
    counted = [(sample, entry) for sample, entry in answered if sample.output_tokens is not None]
    return BothAccounts(
        requests_by_client=len(samples),
        requests_by_server=len(entries),
        tries_by_server=sum(map(len, entries.values())),
        unseen=tuple(
            sample.tag
            for sample in samples
            # What failed may have failed before it was sent, or was cut off before it was read.
            if sample.tag not in known and (sample.error is None or sample.response_ns is not None)
        ),
        unknown=tuple(tag for tag in entries if tag not in sent),
        time_to_first_token_ms=_largest(
            (sample.tag, (sample.token_ns[0] - entry.token_ns[0] - way_ns) / 1e6) for sample, entry in timed
        ),
        api_end_to_end_ms=_largest(
            (sample.tag, (sample.token_ns[-1] - entry.token_ns[-1] - way_ns) / 1e6) for sample, entry in timed
        ),
        output_tokens=_largest(
            (sample.tag, (sample.output_tokens or 0) - entry.output_tokens) for sample, entry in counted
        ),
        cached_tokens=_largest(
            (sample.tag, sample.cached_tokens - entry.cached_tokens)
            for sample, entry in answered
            if sample.cached_tokens is not None
        ),
        chunks=_largest((sample.tag, len(sample.token_ns) - len(entry.token_ns)) for sample, entry in answered),
        request_bytes=_largest(
            (sample.tag, sample.request_bytes - entry.bytes_in)
            for sample, entry in answered
            if sample.request_bytes is not None
        ),
        own_time_to_first_token_ms=own_disagreement(samples),
        lags=_lags([(sample, entry) for sample, entry in timed if sample.part == "measured"], way_ns),
        connections=_connections(samples, entries),
    )


def own_disagreement(samples: Iterable[Sample]) -> Disagreement | None:
    """Return the largest difference between the bench's time to first token and the client's own, in milliseconds.

    First requests are left out: what a client imports before its method is entered is inside the bench's figure only.
    Both count from the issue, because a client knows of no schedule.
    """
    return _largest(
        (sample.tag, (sample.token_ns[0] - sample.issued_ns) / 1e6 - theirs * 1e3)
        for sample in samples
        if sample.call is not None
        and not sample.cold
        and sample.token_ns
        and (theirs := sample.call["metrics"]["time_to_first_token_s"]) is not None
    )


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


def _by_tag(log: Iterable[RequestLog]) -> dict[str, list[RequestLog]]:
    entries: dict[str, list[RequestLog]] = defaultdict(list)
    for entry in log:
        entries[entry.tag or f"(no tag: {entry.request_id})"].append(entry)
    return dict(entries)


def _largest(differences: Iterable[tuple[str, float]]) -> Disagreement | None:
    found = max(differences, key=lambda each: abs(each[1]), default=None)
    return Disagreement(value=float(found[1]), tag=found[0]) if found else None


def _lags(pairs: Sequence[tuple[Sample, RequestLog]], way_ns: float) -> dict[str, Lag]:
    # First tokens only: later ones may wait for TCP's window on the wire, which is no fault of a client.
    values: dict[str, list[float]] = defaultdict(list)
    for sample, entry in pairs:
        values[sample.arm].append((sample.token_ns[0] - entry.token_ns[0] - way_ns) / 1e6)
    return {arm: Lag(p50_ms=quantile(lags, 0.5), p95_ms=quantile(lags, 0.95)) for arm, lags in sorted(values.items())}


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
    counts = {tag: openers.count(tag) for tag in set(openers)}
    return {
        arm: Connections(
            by_server=sum(counts.get(sample.tag, 0) for sample in sent), by_client=connections_by_client(sent)
        )
        for arm, sent in by_arm.items()
    }


def requests_known(sight: Sight) -> Iterator[CheckResult]:
    """Look for requests that only one side knows of."""
    found = both_accounts(sight.recorded)
    if found is None:
        yield result(REQUESTS, "not checked", "this provider gives no account of its own")
        return
    missing = [
        f"{len(tags)} requests of {whose} are missing {where}: {', '.join(tags[:5])}{', …' if len(tags) > 5 else ''}"
        for tags, whose, where in (
            (found.unseen, "the clients", "in the provider's log"),
            (found.unknown, "the provider's log", "at the clients"),
        )
        if tags
    ]
    for sentence in missing:
        yield result(REQUESTS, "refused", f"{sentence}; these figures are not of what was sent, record again")
    if not missing:
        unlogged = len(sight.recorded.unlogged)
        lost = f"; the account of {unlogged} more was lost with a session that was killed" if unlogged else ""
        yield result(
            REQUESTS,
            "passed",
            f"{found.requests_by_server} requests are the same on both sides, in {found.tries_by_server} tries{lost}",
        )


def times_agree(sight: Sight) -> Iterator[CheckResult]:
    """Look for first tokens that clients stamped before they can have arrived, or long after."""
    if sight.recorded.log is None:
        yield result(TIMES, "not checked", "this provider gives no account of its own")
        return
    entries = _by_tag(sight.recorded.log)
    way_ns = sight.recorded.header.one_way_s * 1e9
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            lags = [
                (sample.token_ns[0] - entries[sample.tag][-1].token_ns[0] - way_ns) / 1e6
                for sample in sight.answered(cell, arm)
                if sample.tag in entries and entries[sample.tag][-1].token_ns
            ]
            if not lags:
                yield result(TIMES, "not checked", f"no answer of {arm.name} on both sides", cell=cell, arm=arm)
                continue
            middle, high = quantile(lags, 0.5), quantile(lags, 0.95)
            figure = sight.time_to_first_token_ms(cell, arm) or 0.0
            level: Level = "passed"
            why = ""
            if min(lags) < -EARLY_MS:
                level = "refused"
                why = f", and {-min(lags):.3g} ms before it at the earliest, which cannot be: the clocks are not one"
            elif middle > FIGURE_SHARE * figure:
                level, why = "refused", f", a tenth or more of the time to first token ({figure:,.4g} ms) itself"
            elif high > BUSY_LAG_MS:
                level, why = "flagged", f", over {BUSY_LAG_MS:g} ms: the machine was busy with something else"
            yield result(
                TIMES,
                level,
                f"{arm.name} stamped first tokens {middle:.3g} ms (p50), {high:.3g} ms (p95) after their arrival{why}",
                cell=cell,
                arm=arm,
                p50_ms=middle,
                p95_ms=high,
                earliest_ms=min(lags),
            )


def counts_agree(sight: Sight) -> Iterator[CheckResult]:
    """Look for answers whose tokens, chunks or bytes the two sides count otherwise."""
    if sight.recorded.log is None:
        yield result(COUNTS, "not checked", "this provider gives no account of its own")
        return
    entries = _by_tag(sight.recorded.log)
    # Tokens are in the figures; chunks and bytes are beside them.
    counted: tuple[tuple[str, Level, Callable[[Sample, RequestLog], int | None]], ...] = (
        ("output tokens", "refused", lambda own, their: _less(own.output_tokens, their.output_tokens)),
        ("cached tokens", "refused", lambda own, their: _less(own.cached_tokens, their.cached_tokens)),
        ("chunks", "flagged", lambda own, their: len(own.token_ns) - len(their.token_ns)),
        ("bytes of a request", "flagged", lambda own, their: _less(own.request_bytes, their.bytes_in)),
    )
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            both = [(each, entries[each.tag][-1]) for each in sight.answered(cell, arm) if each.tag in entries]
            agree = True
            for what, level, difference in counted:
                worst = _largest((own.tag, off) for own, their in both if (off := difference(own, their)))
                if worst is not None:
                    agree = False
                    yield result(
                        COUNTS,
                        level,
                        f"{arm.name} and the provider's log count {what} otherwise, by {worst.value:+,.0f} in "
                        f"{worst.tag}: see what the client leaves out of the answer, or adds to it",
                        cell=cell,
                        arm=arm,
                        what=what,
                        difference=worst.value,
                    )
            if both and agree:
                yield result(
                    COUNTS, "passed", "tokens, chunks and bytes are the same on both sides", cell=cell, arm=arm
                )


def _less(own: int | None, their: int) -> int | None:
    return None if own is None else own - their


def connections_agree(sight: Sight) -> Iterator[CheckResult]:
    """Look for clients that opened more or fewer connections than their own records say."""
    found = both_accounts(sight.recorded)
    for arm in sight.arms if found is not None else ():
        counts = found.connections.get(arm.name) if found is not None else None
        if counts is None or counts.by_client is None:
            yield result(OPENED, "not checked", f"{arm.name}'s client keeps no account of its connections", arm=arm)
            continue
        same = counts.by_client == counts.by_server
        yield result(
            OPENED,
            "passed" if same else "flagged",
            f"{arm.name} opened {counts.by_client} connections by its own records and {counts.by_server} by the "
            "provider's log" + ("" if same else ": connections that carried no request are in neither"),
            arm=arm,
            by_client=counts.by_client,
            by_server=counts.by_server,
        )


CHECKS: Final = (
    Check(name=REQUESTS, line="Every request on both sides, the client's and the provider's.", look=requests_known),
    Check(name=TIMES, line="First tokens stamped before or long after they arrived, by the log.", look=times_agree),
    Check(name=COUNTS, line="Tokens, chunks and bytes, by the client and by the log.", look=counts_agree),
    Check(name=OPENED, line="Connections by the client's records and by the log.", look=connections_agree),
)
