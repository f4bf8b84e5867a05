"""What a `Hedging` play remembers: when calls of each upstream are late, and how much second attempts may cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.knowledge.redis import shared
from fastlane.knowledge.sightings import SharedSightings, Sighting, Upstream
from fastlane.knowledge.table import Table
from fastlane.providers.output_facts import limit_in

from .budget import Budget
from .lateness import MOST_LATE, OVER_BUDGET, TOO_FEW, Lateness
from .side_effects import why_only_once

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.attempts import Attempt
    from fastlane.records.plays import HedgingRecord
    from fastlane.records.record import CallRecord

_UNREAD = "the application reads the bytes of the answer itself"


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
