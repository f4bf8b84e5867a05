"""The client's records against the provider's own log: what each side says of the same request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ..recorded import Sample
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


def _by_tag(log: Iterable[RequestLog]) -> dict[str, list[RequestLog]]:
    entries: dict[str, list[RequestLog]] = defaultdict(list)
    for entry in log:
        entries[entry.tag or f"(no tag: {entry.request_id})"].append(entry)
    return dict(entries)


def requests_known(sight: Sight) -> Iterator[CheckResult]:
    """Look for requests that only one side knows of."""
    recorded = sight.recorded
    if recorded.log is None:
        yield result(REQUESTS, "not checked", "this provider gives no account of its own")
        return
    entries, sent = _by_tag(recorded.log), {sample.tag for sample in recorded.samples}
    # A session that was killed took the provider's account of these with it.
    known = entries.keys() | set(recorded.unlogged)
    unseen = [
        sample.tag
        for sample in recorded.samples
        # What failed may have failed before it was sent, or was cut off before it was read.
        if sample.tag not in known and (sample.error is None or sample.response_ns is not None)
    ]
    unknown = [tag for tag in entries if tag not in sent]
    for tags, whose, where in (
        (unseen, "the clients", "in the provider's log"),
        (unknown, "the provider's log", "at the clients"),
    ):
        if tags:
            named = f"{', '.join(tags[:5])}{', …' if len(tags) > 5 else ''}"
            yield result(
                REQUESTS,
                "refused",
                f"{len(tags)} requests of {whose} are missing {where}: {named}; these figures are not of what was "
                "sent, record again",
            )
    if not unseen and not unknown:
        unlogged = len(recorded.unlogged)
        lost = f"; the account of {unlogged} more was lost with a session that was killed" if unlogged else ""
        tries = sum(map(len, entries.values()))
        yield result(REQUESTS, "passed", f"{len(entries)} requests are the same on both sides, in {tries} tries{lost}")


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
                off = ((own.tag, difference(own, their)) for own, their in both)
                worst = max(((tag, by) for tag, by in off if by), key=lambda each: abs(each[1]), default=None)
                if worst is not None:
                    agree = False
                    yield result(
                        COUNTS,
                        level,
                        f"{arm.name} and the provider's log count {what} otherwise, by {worst[1]:+,.0f} in "
                        f"{worst[0]}: see what the client leaves out of the answer, or adds to it",
                        cell=cell,
                        arm=arm,
                        what=what,
                        difference=worst[1],
                    )
            if both and agree:
                yield result(
                    COUNTS, "passed", "tokens, chunks and bytes are the same on both sides", cell=cell, arm=arm
                )


def _less(own: int | None, their: int) -> int | None:
    return None if own is None else own - their


CHECKS: Final = (
    Check(name=REQUESTS, line="Every request on both sides, the client's and the provider's.", look=requests_known),
    Check(name=TIMES, line="First tokens stamped before or long after they arrived, by the log.", look=times_agree),
    Check(name=COUNTS, line="Tokens, chunks and bytes, by the client and by the log.", look=counts_agree),
)
