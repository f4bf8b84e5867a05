"""What a `Hedging` play remembers: one governor per upstream, one budget, and the calls that are under way."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.redis import shared
from fastlane.knowledge.shared_sightings import SharedSightings
from fastlane.knowledge.table import Table
from fastlane.providers.output_facts import limit_in

from ._budget import Budget
from ._governor import CallGovernor, Governor
from ._plan import HedgePlan
from ._side_effects import why_only_once

if TYPE_CHECKING:
    from fastlane.engine.call import Call
    from fastlane.records.attempts import Attempt
    from fastlane.records.record import CallRecord

_UNREAD = "the application reads the bytes of the answer itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the play, checked."""

    budget: float
    quantile: float
    minimum_delay_s: float
    not_with_tools: frozenset[str]


class _UnderWay(NamedTuple):
    """One attempt to plan a call: a call that is sent to several upstreams is planned for each."""

    asked: CallGovernor
    upstream: Upstream
    body_bytes: int
    uncached_tokens: float
    input_tokens: float
    output_tokens: float


class Memory:
    """Shared by all clients that a play is given to. Thread-safe."""

    def __init__(self, settings: Settings, store: str | None = None) -> None:
        """Raises ConfigurationError and MissingExtraError for a store that cannot work."""
        self.settings = settings
        self.budget = Budget(settings.budget)
        self._governors: Table[Upstream, Governor] = Table("hedging", max_entries=256)
        # What was reserved for a call that is dropped counts as spent. The parent's calls are not in a child.
        self._planned: Table[str, tuple[_UnderWay, ...]] = Table("hedged calls", max_entries=4_096, in_child="empty")
        self._shared: SharedSightings | None = None
        if store is not None:
            redis = shared(store, setting="Hedging(store=...)")
            self._shared = SharedSightings(redis, "fastlane:hedging", self._learn_shared)

    def __reduce__(self) -> tuple[type[Memory], tuple[Settings]]:
        """A copy remembers nothing: what was learned belongs to the calls of its process."""
        return Memory, (self.settings,)

    def plan(self, call: Call, *, only_once: str | None) -> HedgePlan:
        """Plan the second chance of a call; `only_once` says why it has none."""
        if self._shared is not None:
            self._shared.start()
        upstream = Upstream(call.model or "", call.origin)
        governor = self.governor(upstream)
        body_bytes = _size_of(call)
        input_tokens = governor.sizes.input_tokens(body_bytes)
        output_tokens = governor.sizes.output_tokens(limit_in(call.body, call.endpoint)) * _choices(call.body)
        uncached = input_tokens * governor.sizes.uncached_share
        asked = CallGovernor(governor)
        one = _UnderWay(asked, upstream, body_bytes, uncached, input_tokens, output_tokens)
        planned = self._planned.update(call.call_id, lambda before: (*(before or ()), one))
        delay_s, why_not = None, only_once
        if only_once is None:
            # A call that is planned once more, for another upstream, is not another call.
            delay_s, why_not = governor.delay(uncached, call.issued_ns, None if len(planned) > 1 else asked)
        return HedgePlan(
            delay_s=delay_s,
            why_not=why_not,
            governor=asked,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            streams=only_once is None,
            upstream=upstream,
        )

    def note(self, record: CallRecord) -> None:
        """A call is over: learn from its attempts, and settle what its second one cost."""
        planned = self._planned.pop(record.call_id) or ()
        usage, now_ns = record.usage, record.timeline.ended_ns
        # What nobody has counted: each event with output carries a token or more.
        output_tokens = len(record.timeline.token_ns) if usage.output_tokens is None else usage.output_tokens
        input_tokens: float | None = usage.input_tokens
        if input_tokens is None:
            answered = record.outcome not in ("failed", "cancelled")
            input_tokens = planned[-1].input_tokens if answered and planned else 0.0
        self.budget.earn(input_tokens + output_tokens)
        for one in planned:
            one.asked.settle(_used(record, one))
        for upstream, sighting in sightings_of(record, planned):
            self.governor(upstream).note(sighting, now_ns)
            if self._shared is not None:
                self._shared.add(sighting)
        answer = _answering(record)
        if answer is not None and planned and not usage.estimated:
            sizes = self.governor(_upstream_of(answer, record)).sizes
            sizes.learn(
                body_bytes=planned[-1].body_bytes,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=output_tokens or None,
            )

    def governor(self, upstream: Upstream) -> Governor:
        """Return that of an upstream: one that has not been seen for long is found out anew."""
        if self._shared is not None:
            self._shared.watch(upstream)
        settings = self.settings
        return self._governors.fetch(
            upstream,
            lambda: Governor(self.budget, quantile=settings.quantile, minimum_delay_s=settings.minimum_delay_s),
        )

    def _learn_shared(self, sighting: Sighting, now_ns: int) -> None:
        governor = self._governors.get(Upstream(sighting.model, sighting.origin))
        if governor is not None:
            governor.learn_shared(sighting, now_ns)


def only_once(call: Call, not_with_tools: Collection[str]) -> str | None:
    """Why a call is not made twice; None where it may be."""
    return _UNREAD if call.unread else why_only_once(call.endpoint, call.body, not_with_tools)


def sightings_of(record: CallRecord, planned: Collection[_UnderWay] = ()) -> list[tuple[Upstream, Sighting]]:
    """What the attempts of a call have shown of upstreams: how long first tokens took, or how long in vain."""
    expected = {one.upstream: one.uncached_tokens for one in planned}
    found = []
    answering = _answering(record)
    for attempt in record.attempts:
        upstream = _upstream_of(attempt, record)
        started_ns, first_token_s, late_s = attempt.wire.started_ns, None, None
        uncached: float | None = expected.get(upstream)
        if attempt is answering:
            first_ns = record.timeline.first_token_ns
            if first_ns is None or first_ns <= started_ns:
                continue
            first_token_s = (first_ns - started_ns) / 1e9
            if record.usage.input_tokens is not None and not record.usage.estimated:
                uncached = float(record.usage.input_tokens - (record.usage.cached_tokens or 0))
        # A second attempt that lost was given up soon after its start, which says next to nothing.
        elif attempt.given_up is not None and not (attempt.kind == "hedge" and attempt.given_up == "lost"):
            if attempt.wire.ended_ns is None or attempt.wire.ended_ns <= started_ns:
                continue
            late_s = (attempt.wire.ended_ns - started_ns) / 1e9
        else:
            continue
        sighting = Sighting(
            model=upstream.model,
            origin=upstream.origin,
            uncached_tokens=uncached,
            first_token_s=first_token_s,
            late_s=late_s,
        )
        found.append((upstream, sighting))
    return found


def _used(record: CallRecord, one: _UnderWay) -> float | None:
    """Tokens that the second attempt cost; None where nobody knows."""
    hedging = record.hedging
    if hedging is None or not hedging.hedged or not one.asked.reserved:
        return 0.0
    extra = (hedging.extra_input_tokens, hedging.extra_output_tokens)
    if extra == (None, None):
        return None
    told = float(sum(number or 0 for number in extra))
    # What was sent may have been read, whatever became of it.
    sent = any(attempt.given_up == "lost" and attempt.wire.send_ended_ns is not None for attempt in record.attempts)
    return max(told, one.input_tokens) if sent else told


def _answering(record: CallRecord) -> Attempt | None:
    """The attempt whose first token the timeline tells of; None where another answer was asked for after it."""
    if any(attempt.kind == "repair" for attempt in record.attempts):
        return None
    for attempt in reversed(record.attempts):
        if attempt.given_up is None:
            return attempt if attempt.error is None else None
    return None


def _upstream_of(attempt: Attempt, record: CallRecord) -> Upstream:
    return Upstream(attempt.model or record.model or "", attempt.origin or record.origin)


def _size_of(call: Call) -> int:
    """Bytes of the body as JSON, about; 0 where nobody can say."""
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
