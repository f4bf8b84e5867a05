"""What a `Hedging` play remembers: when calls of each upstream are late, and how much second attempts may cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING, Any

import orjson

from fastlane._fork import new_lock, starts_over
from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.redis import shared
from fastlane.knowledge.sightings import SharedSightings, Sighting, Upstream
from fastlane.knowledge.speed import Speed
from fastlane.knowledge.table import Table
from fastlane.providers.output_facts import limit_in

from .side_effects import why_only_once

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.attempts import Attempt
    from fastlane.records.plays import HedgingRecord
    from fastlane.records.record import CallRecord

LEAST_SIGHTINGS = 20
"""First tokens of an upstream that have to be seen before one can be late."""
TOO_FEW = f"fewer than {LEAST_SIGHTINGS} first tokens of this model have been seen"
MOST_LATE = "most calls are late"
OVER_BUDGET = "budget"

# The share of late calls beyond that of the quantile, in a calm and where most are late.
_FEW, _MANY = 0.07, 0.23
_MOST_SHARE = 0.95
# Six late calls in a row are enough to open the breaker, and some forty on time to close it.
_OPEN, _MOST = 5.0, 8.0
_UNREAD = "the application reads the bytes of the answer itself"
# So many calls' share may be saved up: after a long calm, a bad minute must not cost more than that at once.
_SAVED_CALLS = 400
# Weight of one call in the mean of their tokens, once there have been as many.
_WEIGHT = 1 / 64


class Lateness:
    """Knows when a first token of one upstream is late. Its breaker is open while most are. Thread-safe.

    Each call adds to a sum the logarithm of how much likelier its outcome is where many are late than where few are: a
    cumulative sum, held between two bounds (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954).
    """

    __slots__ = (
        "_is_late",
        "_lock",
        "_minimum_delay_s",
        "_on_time",
        "_own",
        "_quantile",
        "_speed",
        "_sum",
        "is_open",
        "sizes",
    )

    def __init__(self, *, quantile: float, minimum_delay_s: float) -> None:
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._lock = new_lock()
        self._speed = Speed()
        self._own = 0
        few, many = (min(_MOST_SHARE, 1 - quantile + more) for more in (_FEW, _MANY))
        few = min(few, many - 0.05)
        self._is_late, self._on_time = log(many / few), log((1 - many) / (1 - few))
        self._sum = 0.0
        self.is_open = False
        """Whether most calls are late, so that a second attempt would be late as well."""
        self.sizes = CallSizes()

    def delay_s(self, uncached_tokens: float) -> float | None:
        """Return the seconds after which a call is late; None where too few first tokens have been seen."""
        if self._speed.first.count < LEAST_SIGHTINGS:
            return None
        return max(self._minimum_delay_s, self._speed.late_after(uncached_tokens, self._quantile))

    def count(self, *, is_late: bool) -> None:
        """Count a call whose first token is late, or has come in time."""
        with self._lock:
            self._sum = min(_MOST, max(0.0, self._sum + (self._is_late if is_late else self._on_time)))
            if self._sum >= _OPEN or self._sum <= 0:
                self.is_open = self._sum >= _OPEN

    def note(self, sighting: Sighting, now_ns: int, *, is_shared: bool = False) -> None:
        """Learn from one attempt; from another process's only until enough have been seen here."""
        seconds = sighting.first_token_s or sighting.late_s
        if seconds is None or not 0 < seconds < inf or (is_shared and self._own >= LEAST_SIGHTINGS):
            return
        with self._lock:
            self._own += not is_shared
            self._speed.note(sighting, now_ns)


class Budget:
    """A bucket into which every call puts `share` of its tokens, and out of which second attempts are paid.

    There is no credit to start with. So what second attempts have cost and what is reserved for those under way never
    exceeds the share of what all calls have taken until then, as long as none costs more than was reserved for it; what
    one costs beyond that is taken from those after it. The same holds for all processes together, as each spends its
    own. Thread-safe.
    """

    __slots__ = ("__weakref__", "_calls", "_left", "_lock", "_mean", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = 0.0
        self._mean = 0.0
        self._calls = 0
        self._lock = new_lock()
        starts_over(self)

    @property
    def left(self) -> float:
        """Tokens that second attempts may cost now; below 0 where some have cost more than was reserved for them."""
        return self._left

    def earn(self, tokens: float) -> None:
        """Note that a call took so many tokens, input and output, second attempts not counted."""
        if not tokens > 0:
            return
        with self._lock:
            self._calls += 1
            self._mean += (tokens - self._mean) * max(_WEIGHT, 1 / self._calls)
            self._left = max(self._left, min(self._most(), self._left + self._share * tokens))

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
            self._left += reserved - max(0.0, used)

    def _most(self) -> float:
        return self._share * _SAVED_CALLS * self._mean

    def begin_in_child(self) -> None:
        """See `StartsOver`: what is left is the parent's, and a copy of it would be a second time as much."""
        self._left = 0.0


@dataclass(slots=True, kw_only=True)
class HedgePlan:
    """The plan of one call's second attempt, at the upstream of its first one."""

    delay_s: float | None
    """Seconds from the start of the first attempt: without content by then it is late. None: it never is."""
    why_not: str | None
    """Why there is no second attempt; None where there is a delay."""
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
        self,
        *,
        budget: float,
        quantile: float,
        minimum_delay_s: float,
        not_with_tools: Collection[str],
        store: str | None,
    ) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._not_with_tools = frozenset(not_with_tools)
        self.budget = Budget(budget)
        self._lateness: Table[Upstream, Lateness] = Table("hedging", max_entries=256)
        self._shared: SharedSightings | None = None
        if store is not None:
            redis = shared(store, setting="Hedging(store=...)")
            self._shared = SharedSightings(redis, "fastlane:hedging", self._learn_shared)

    def plan(self, call: Call) -> HedgePlan:
        """Plan the second attempt of a call."""
        if self._shared is not None:
            self._shared.start()
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

    def note(self, record: CallRecord, plans: Collection[HedgePlan], hedging: HedgingRecord | None) -> None:
        """A call is over: learn from its attempts, and settle what its second one cost."""
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
                self.budget.settle(plan.reserved, _used(record, plan, hedging))
                plan.reserved = 0.0
        for sighting in sightings_of(record, plans):
            self.lateness(Upstream(sighting.model, sighting.origin)).note(sighting, record.timeline.ended_ns)
            if self._shared is not None:
                self._shared.add(sighting)
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
        if self._shared is not None:
            self._shared.watch(upstream)
        return self._lateness.fetch(
            upstream, lambda: Lateness(quantile=self._quantile, minimum_delay_s=self._minimum_delay_s)
        )

    def _learn_shared(self, sighting: Sighting, now_ns: int) -> None:
        known = self._lateness.get(Upstream(sighting.model, sighting.origin))
        if known is not None:
            known.note(sighting, now_ns, is_shared=True)


def sightings_of(record: CallRecord, plans: Collection[HedgePlan] = ()) -> list[Sighting]:
    """Return what the attempts of a call have shown: how long first tokens took, or were waited for in vain."""
    expected = {plan.upstream: plan.uncached_tokens for plan in plans}
    found, answering = [], _answering(record)
    for attempt in record.attempts:
        upstream = _upstream_of(attempt, record)
        started_ns, first_ns, late_ns = attempt.wire.started_ns, None, None
        uncached: float | None = expected.get(upstream)
        if attempt is answering:
            first_ns = record.timeline.first_token_ns
            if record.usage.input_tokens is not None and not record.usage.estimated:
                uncached = float(record.usage.input_tokens - (record.usage.cached_tokens or 0))
        # A second attempt that lost was given up soon after its start, which says next to nothing.
        elif attempt.given_up is not None and not (attempt.kind == "hedge" and attempt.given_up == "lost"):
            late_ns = attempt.wire.ended_ns
        seen_ns = first_ns if late_ns is None else late_ns
        if seen_ns is None or seen_ns <= started_ns:
            continue
        sighting = Sighting(
            model=upstream.model,
            origin=upstream.origin,
            uncached_tokens=uncached,
            first_token_s=None if first_ns is None else (first_ns - started_ns) / 1e9,
            late_s=None if late_ns is None else (late_ns - started_ns) / 1e9,
        )
        found.append(sighting)
    return found


def _used(record: CallRecord, plan: HedgePlan, hedging: HedgingRecord | None) -> float:
    """Return the tokens that the second attempt cost; as many as were reserved where that is not known."""
    if hedging is None or not hedging.hedged:
        return 0.0
    extra = (hedging.extra_input_tokens, hedging.extra_output_tokens)
    if extra == (None, None):
        return plan.reserved
    counted = float(sum(number or 0 for number in extra))
    # What was sent may have been read, whatever became of it.
    was_sent = any(one.given_up == "lost" and one.wire.send_ended_ns is not None for one in record.attempts)
    return max(counted, plan.input_tokens) if was_sent else counted


def _answering(record: CallRecord) -> Attempt | None:
    """Return the attempt that the timeline is about; None where another answer was asked for after it."""
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
