"""What a `Hedging` play remembers: when calls of each upstream are late, and how much second attempts may cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import orjson

from fastlane._fork import new_lock
from fastlane.knowledge.call_sizes import CallSizes, RunningMean
from fastlane.knowledge.sightings import Sighting, Upstream
from fastlane.knowledge.speed import Speed
from fastlane.knowledge.table import Table
from fastlane.providers.output_facts import limit_in

from .side_effects import why_only_once

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.attempts import Attempt
    from fastlane.records.record import CallRecord

LEAST_SIGHTINGS = 20
"""First tokens of an upstream that have to be seen before one can be late."""
TOO_FEW = f"fewer than {LEAST_SIGHTINGS} first tokens of this model have been seen"
MOST_LATE = "most calls are late"
OVER_BUDGET = "budget"

# The breaker opens where the share of late calls exceeds that of the quantile by so much. Weight of one call in it.
_MORE_LATE, _WEIGHT = 0.15, 1 / 48
_MOST_SHARE = 0.95
_UNREAD = "the application reads the bytes of the answer itself"
# So many calls' share may be saved up: after a long calm, a bad minute must not cost more than that at once.
_SAVED_CALLS = 400


class Lateness:
    """Knows when a first token of one upstream is late. Its breaker is open while many are. Thread-safe."""

    __slots__ = ("_late_share", "_lock", "_minimum_delay_s", "_most", "_quantile", "_speed", "sizes")

    def __init__(self, *, quantile: float, minimum_delay_s: float) -> None:
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._lock = new_lock()
        self._speed = Speed()
        self._late_share = 0.0
        self._most = min(_MOST_SHARE, 1 - quantile + _MORE_LATE)
        self.sizes = CallSizes()

    @property
    def is_open(self) -> bool:
        """Whether so many of the latest calls were late that a second attempt would be late as well."""
        return self._late_share > self._most

    def delay_s(self, uncached_tokens: float) -> float | None:
        """Return the seconds after which a call is late; None if too few first tokens have been seen."""
        if self._speed.first.count < LEAST_SIGHTINGS:
            return None
        return max(self._minimum_delay_s, self._speed.late_after(uncached_tokens, self._quantile))

    def count(self, *, is_late: bool) -> None:
        """Count a call whose first token is late, or has come in time."""
        with self._lock:
            # Bounded, so that it closes soon after a time in which all were late.
            share = self._late_share + _WEIGHT * (is_late - self._late_share)
            self._late_share = min(2.0 * self._most, share)

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt."""
        seconds = sighting.first_token_s or sighting.late_s
        if seconds is not None and 0 < seconds < inf:
            with self._lock:
                self._speed.note(sighting, now_ns)


class Budget:
    """A bucket into which every call puts `share` of its tokens, and out of which second attempts are paid.

    It is empty at first. What a second attempt costs beyond what was reserved for it is taken from those after it.
    Thread-safe.
    """

    __slots__ = ("_left", "_lock", "_mean", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = 0.0
        self._mean = RunningMean(0.0)
        self._lock = new_lock()

    @property
    def left(self) -> float:
        """Tokens that second attempts may cost now; below 0 where some have cost more than was reserved for them."""
        return self._left

    def earn(self, tokens: float) -> None:
        """Note that a call took so many tokens, input and output, second attempts not counted."""
        if not tokens > 0:
            return
        with self._lock:
            self._mean.note(tokens)
            most = self._share * _SAVED_CALLS * self._mean.value
            self._left = max(self._left, min(most, self._left + self._share * tokens))

    def reserve(self, tokens: float) -> bool:
        """Reserve so many tokens for a second attempt; False where they are not there."""
        with self._lock:
            if not 0 <= tokens <= self._left:
                return False
            self._left -= tokens
            return True

    def settle(self, reserved: float, used: float) -> None:
        """Give back what a second attempt did not use of what was reserved for it."""
        with self._lock:
            self._left += reserved - used


@dataclass(slots=True, kw_only=True)
class HedgePlan:
    """The plan of one call's second attempt, at the upstream of its first one."""

    delay_s: float | None
    """Seconds from the start of the first attempt: without content by then it is late. None: it never is."""
    why_not: str | None
    """Why there is no second attempt; None if there is a delay."""
    lateness: Lateness
    upstream: Upstream
    body_bytes: int
    input_tokens: float
    """Tokens of the prompt, estimated."""
    uncached_tokens: float
    """Of them, those that the provider does not have in its cache."""
    output_tokens: float
    """Tokens of the answer: the mean of the latest, and no more than the caller's limit."""
    is_late: bool = False
    reserved: float = 0.0
    """Tokens of the budget that are reserved."""


class HedgingMemory:
    """Shared by all clients that a play is given to. Thread-safe."""

    def __init__(
        self, *, budget: float, quantile: float, minimum_delay_s: float, not_with_tools: Collection[str]
    ) -> None:
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._not_with_tools = frozenset(not_with_tools)
        self.budget = Budget(budget)
        self._lateness: Table[Upstream, Lateness] = Table("hedging", max_entries=256)

    def plan(self, call: Call) -> HedgePlan:
        """Plan the second attempt of a call."""
        upstream = Upstream(call.model or "", call.origin)
        lateness = self.lateness(upstream)
        body_bytes, sizes = _size_of(call), lateness.sizes
        input_tokens = sizes.input_tokens(body_bytes)
        why_not = _UNREAD if call.unread else why_only_once(call.endpoint, call.body, self._not_with_tools)
        delay_s = None
        if why_not is None:
            delay_s = lateness.delay_s(input_tokens * sizes.uncached_share)
            why_not = TOO_FEW if delay_s is None else None
        return HedgePlan(
            delay_s=delay_s,
            why_not=why_not,
            lateness=lateness,
            upstream=upstream,
            body_bytes=body_bytes,
            input_tokens=input_tokens,
            uncached_tokens=input_tokens * sizes.uncached_share,
            output_tokens=sizes.output_tokens(limit_in(call.body, call.endpoint)) * _choices(call.body),
        )

    def reserve(self, plan: HedgePlan) -> str | None:
        """A call is late: reserve the tokens of a second attempt. Returns why there is to be none, or None."""
        plan.is_late = True
        plan.lateness.count(is_late=True)
        if plan.lateness.is_open:
            return MOST_LATE
        tokens = plan.input_tokens + plan.output_tokens
        if not self.budget.reserve(tokens):
            return OVER_BUDGET
        plan.reserved += tokens
        return None

    def note(self, record: CallRecord, plans: Collection[HedgePlan], extra_tokens: float) -> None:
        """A call is over: learn from its attempts, and settle what its second one cost: `extra_tokens`."""
        usage = record.usage
        # What the provider has not counted: each event with output carries a token or more.
        output_tokens = len(record.timeline.token_ns) if usage.output_tokens is None else usage.output_tokens
        input_tokens: float | None = usage.input_tokens
        if input_tokens is None:
            is_answered = record.outcome not in ("failed", "cancelled")
            input_tokens = next((plan.input_tokens for plan in plans), 0.0) if is_answered else 0.0
        self.budget.earn(input_tokens + output_tokens)
        for plan in plans:
            if plan.reserved:
                self.budget.settle(plan.reserved, extra_tokens)
                plan.reserved = 0.0
        for sighting in sightings_of(record, plans):
            self.lateness(Upstream(sighting.model, sighting.origin)).note(sighting, record.timeline.ended_ns)
        answer = _answering(record)
        if answer is not None and plans and not usage.estimated:
            self.lateness(_upstream_of(answer, record)).sizes.learn(
                body_bytes=next(iter(plans)).body_bytes,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=output_tokens,
            )

    def lateness(self, upstream: Upstream) -> Lateness:
        """Return what is known of an upstream."""
        return self._lateness.fetch(
            upstream, lambda: Lateness(quantile=self._quantile, minimum_delay_s=self._minimum_delay_s)
        )


def sightings_of(record: CallRecord, plans: Collection[HedgePlan] = ()) -> list[Sighting]:
    """Return what the attempts of a call have shown: how long first tokens took, or were waited for in vain."""
    expected = {plan.upstream: plan.uncached_tokens for plan in plans}
    found, answering = [], _answering(record)
    for attempt in record.attempts:
        upstream = _upstream_of(attempt, record)
        uncached: float | None = expected.get(upstream)
        if attempt is answering:
            shown, seen_ns = "first_token_s", record.timeline.first_token_ns
            if record.usage.input_tokens is not None and not record.usage.estimated:
                uncached = float(record.usage.input_tokens - (record.usage.cached_tokens or 0))
        # A second attempt that lost was given up soon after its start, which says next to nothing.
        elif attempt.given_up is not None and not (attempt.kind == "hedge" and attempt.given_up == "lost"):
            shown, seen_ns = "late_s", attempt.wire.ended_ns
        else:
            continue
        if seen_ns is not None and seen_ns > attempt.wire.started_ns:
            seconds: Any = {shown: (seen_ns - attempt.wire.started_ns) / 1e9}
            found.append(Sighting(model=upstream.model, origin=upstream.origin, uncached_tokens=uncached, **seconds))
    return found


def _answering(record: CallRecord) -> Attempt | None:
    """Return the attempt that the timeline is about; None if another answer was requested after it."""
    if any(attempt.kind == "repair" for attempt in record.attempts):
        return None
    for attempt in reversed(record.attempts):
        if attempt.given_up is None:
            return attempt if attempt.error is None else None
    return None


def _upstream_of(attempt: Attempt, record: CallRecord) -> Upstream:
    return Upstream(attempt.model or record.model or "", attempt.origin or record.origin)


def _size_of(call: Call) -> int:
    """Return the bytes of the body as JSON, about; 0 where nothing can write it."""
    if call.written is not None:
        return len(call.written)
    try:
        # The mapping itself may be of any kind, and what is in it may be openai's own objects.
        return len(orjson.dumps(dict(call.body), default=repr, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError):
        return 0


def _choices(body: Any) -> int:
    n = body.get("n")
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1
