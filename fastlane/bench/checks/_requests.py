"""Whether a request's times can be true: by its own stamps, and by the provider's log of the same request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from .._formatting import percent
from ..recorded import ArmInfo, Cell, Sample
from ..statistics import percentile
from ._check import Answers, RunView, answer, looks_for, of_answers
from ._types import CheckResult, Level

if TYPE_CHECKING:
    from ...emulator import RequestLog

BUSY_LAG_MS: Final = 10.0
"""A p95 of an arm's lags above this comes from a busy machine, not from the client."""
EARLY_MS: Final = 1.0
"""A token cannot be seen before it arrives: the emulated wire is timed to less than this."""
FIGURE_SHARE: Final = 0.1
"""A typical lag of a tenth of the time to first token is a part of the figure."""
BURST_S_PER_TOKEN: Final = 0.0001
"""10,000 tokens/s in one stream come from a buffer: several times what the fastest hosted models decode."""
BURST_SHARE: Final = 0.1
"""More bursts than one in ten, and a cell's higher percentiles are of them."""
FEWEST_TOKENS: Final = 8
"""Shorter answers may come in one piece for good reasons."""
_NO_LOG: Final = "this provider gives no log of its own"


def _by_tag(log: Iterable[RequestLog]) -> dict[str, list[RequestLog]]:
    entries: dict[str, list[RequestLog]] = defaultdict(list)
    for entry in log:
        entries[entry.tag or f"(no tag: {entry.request_id})"].append(entry)
    return dict(entries)


@looks_for("requests on both sides", "run")
def requests_known(view: RunView) -> Iterator[CheckResult]:
    """Look for requests that only one side knows of."""
    recorded = view.recorded
    if recorded.log is None:
        yield answer("not checked", _NO_LOG)
        return
    entries, sent = _by_tag(recorded.log), {sample.tag for sample in recorded.samples}
    # A session that was killed took the provider's log of these with it.
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
            yield answer("refused", f"{len(tags)} requests of {whose} are missing {where}: {named}; record again")
    if not unseen and not unknown:
        unlogged = len(recorded.unlogged)
        lost = f"; the account of {unlogged} more was lost with a session that was killed" if unlogged else ""
        tries = sum(map(len, entries.values()))
        yield answer("passed", f"{len(entries)} requests are the same on both sides, in {tries} tries{lost}")


@looks_for("times by the server's log")
def times_agree(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for first tokens that clients stamped before they can have arrived, or long after."""
    if view.recorded.log is None:
        return answer("not checked", _NO_LOG)
    entries = _by_tag(view.recorded.log)
    way_ns = view.recorded.header.one_way_s * 1e9
    lags = [
        (sample.token_ns[0] - entries[sample.tag][-1].token_ns[0] - way_ns) / 1e6
        for sample in view.answered(cell, arm)
        if sample.tag in entries and entries[sample.tag][-1].token_ns
    ]
    if not lags:
        return answer("not checked", f"no answer of {arm.name} on both sides")
    middle, high = percentile(lags, 0.5), percentile(lags, 0.95)
    figure = view.time_to_first_token_ms(cell, arm) or 0.0
    level: Level = "passed"
    why = ""
    if min(lags) < -EARLY_MS:
        level, why = "refused", f", and up to {-min(lags):.3g} ms before it: the two clocks differ"
    elif middle > FIGURE_SHARE * figure:
        level, why = "refused", f", a tenth or more of the time to first token ({figure:,.4g} ms) itself"
    elif high > BUSY_LAG_MS:
        level, why = "flagged", f", over {BUSY_LAG_MS:g} ms: the machine was busy with something else"
    sentence = f"{arm.name} stamped first tokens {middle:.3g} ms (p50), {high:.3g} ms (p95) after their arrival{why}"
    return answer(level, sentence)


@looks_for("counts by the server's log")
def counts_agree(view: RunView, cell: Cell, arm: ArmInfo) -> Iterator[CheckResult]:
    """Look for answers whose tokens, chunks or bytes the two sides count differently."""
    if view.recorded.log is None:
        yield answer("not checked", _NO_LOG)
        return
    entries = _by_tag(view.recorded.log)
    # Tokens are in the figures; chunks and bytes are beside them.
    counted: tuple[tuple[str, Level, Callable[[Sample, RequestLog], int | None]], ...] = (
        ("output tokens", "refused", lambda own, their: _less(own.output_tokens, their.output_tokens)),
        ("cached tokens", "refused", lambda own, their: _less(own.cached_tokens, their.cached_tokens)),
        ("chunks", "flagged", lambda own, their: len(own.token_ns) - len(their.token_ns)),
        ("bytes of a request", "flagged", lambda own, their: _less(own.request_bytes, their.bytes_in)),
    )
    both = [(each, entries[each.tag][-1]) for each in view.answered(cell, arm) if each.tag in entries]
    agree = True
    for what, level, difference in counted:
        off = ((own.tag, difference(own, their)) for own, their in both)
        worst = max(((tag, by) for tag, by in off if by), key=lambda each: abs(each[1]), default=None)
        if worst is not None:
            agree = False
            said = f"{arm.name} and the provider's log count {what} differently, by {worst[1]:+,.0f} in {worst[0]}"
            yield answer(level, said)
    if both and agree:
        yield answer("passed", "tokens, chunks and bytes are the same on both sides")


def _less(own: int | None, their: int) -> int | None:
    return None if own is None else own - their


@looks_for("end-to-end below first token")
def in_order(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for requests whose stamps run backwards."""
    samples = view.measured(cell, arm)
    return of_answers(
        samples,
        [sample for sample in samples if not _ordered(sample)],
        f"requests of {arm.name} end before their first token, or have a token before the one before it: their stamps "
        "are not of one clock; record again",
        passed=f"{len(samples)} requests end after they begin",
        refuse_above=0.0,
    )


def _ordered(sample: Sample) -> bool:
    stamps = [sample.started_ns, *sample.token_ns, sample.ended_ns]
    return all(before <= after for before, after in pairwise(stamps)) and (
        sample.first_event_ns is None or not sample.token_ns or sample.first_event_ns <= sample.token_ns[0]
    )


@looks_for("buffered stream")
def streamed(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for answers that came all at once, so that the time to first token is that of the whole generation."""
    # An end-to-end time is true of a buffered answer too.
    matters = set(view.recorded.header.metrics) - {"api_end_to_end", "request_bytes", "price"}
    long = [sample for sample in view.answered(cell, arm) if _tokens(sample) >= FEWEST_TOKENS]
    if not long:
        return answer("not checked", f"no answer of {arm.name} to check it by")
    share = sum(map(_at_once, long)) / len(long)
    if share <= BURST_SHARE:
        return answer("passed", "the answers came as a stream")
    return answer(
        "refused" if matters and share > 0.5 else "flagged",
        f"{percent(share)} of {arm.name}'s answers came in one burst: their time to first token is that of the whole "
        "generation; find what buffers the stream (server, proxy or client), or compare end-to-end times only",
    )


def _at_once(sample: Sample) -> bool:
    return (sample.generation_time_s or 0.0) < BURST_S_PER_TOKEN * (_tokens(sample) - 1)


def _tokens(sample: Sample) -> int:
    return max(sample.output_tokens or 0, len(sample.token_ns))
