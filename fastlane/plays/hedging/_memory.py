"""What a `Hedging` play remembers: one governor per upstream, one budget, and the calls that are under way."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.providers.output_facts import limit_in

from ._budget import Budget
from ._fleet import SEEN, Fleet, Shares
from ._governor import CallGovernor, Governor
from ._plan import HedgePlan
from ._side_effects import why_only_once

if TYPE_CHECKING:
    from fastlane.engine.call import Attempt, Call, CallRecord

_MOST_UPSTREAMS = 256
# More are not under way at once; what was reserved for one that is forgotten counts as spent.
_MOST_CALLS = 4_096
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


# Whose locks a child process has to make anew.
_all: weakref.WeakSet[Memory] = weakref.WeakSet()


class Memory:
    """Shared by all clients that a play is given to. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.budget = Budget(settings.budget)
        self._fleet: Fleet | None = None
        # A dict takes ever longer to find its oldest key where many old ones have gone.
        self._governors: OrderedDict[Upstream, Governor] = OrderedDict()
        self._under_way: OrderedDict[str, tuple[_UnderWay, ...]] = OrderedDict()
        self._lock = threading.Lock()
        _all.add(self)

    def __reduce__(self) -> tuple[type[Memory], tuple[Settings]]:
        """A copy remembers nothing: what was learned belongs to the calls of its process."""
        return Memory, (self.settings,)

    def share(self, shares: Shares, name: str) -> None:
        """Be one replica of several, by a name that no other has or had; before the first call."""
        self._fleet = Fleet(shares, name, self.budget)

    def plan(self, call: Call, *, only_once: str | None) -> HedgePlan:
        """Plan the second chance of a call; `only_once` says why it has none."""
        if self._fleet is not None:
            self._fleet.start()
        upstream = Upstream(call.model or "", call.origin)
        governor = self.governor(upstream)
        body_bytes = _size_of(call)
        input_tokens = governor.sizes.input_tokens(body_bytes)
        output_tokens = governor.sizes.output_tokens(limit_in(call.body, call.endpoint)) * _choices(call.body)
        uncached = input_tokens * governor.sizes.uncached_share
        asked = CallGovernor(governor)
        with self._lock:
            before = self._under_way.pop(call.call_id, ())
            while len(self._under_way) >= _MOST_CALLS:
                self._under_way.popitem(last=False)
            one = _UnderWay(asked, upstream, body_bytes, uncached, input_tokens, output_tokens)
            self._under_way[call.call_id] = (*before, one)
        delay_s, why_not = None, only_once
        if only_once is None:
            # A call that is planned once more, for another upstream, is not another call.
            delay_s, why_not = governor.delay(uncached, call.issued_ns, None if before else asked)
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
        with self._lock:
            planned = self._under_way.pop(record.call_id, ())
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
            governor = self.governor(upstream)
            governor.note(sighting, now_ns)
            if self._fleet is not None:
                self._fleet.tell(upstream, sighting, governor.word(now_ns))
        if self._fleet is not None:
            self._fleet.ask(now_ns)
        answer = _answering(record)
        if answer is not None and planned and not usage.estimated:
            sizes = self.governor(_upstream_of(answer, record)).sizes
            sizes.learn(
                body_bytes=planned[-1].body_bytes,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=output_tokens or None,
            )

    def told(self, event: Mapping[str, Any], at_ns: int, now_ns: int) -> None:
        """Another replica has told something at `at_ns`. What is not understood is left out."""
        if self._fleet is None:
            return
        try:
            self._fleet.told(event, at_ns, now_ns)
            if event["kind"] == SEEN and event["by"] != self._fleet.name:
                sighting = Sighting.from_json(event)
                self._take(sighting, event.get("slow"), str(event["by"]), at_ns)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            pass  # of another version, or of nobody that we know

    def _take(self, sighting: Sighting, is_slow: object, by: str, at_ns: int) -> None:
        upstream = Upstream(sighting.model, sighting.origin)
        if not isinstance(upstream.model, str) or not isinstance(upstream.origin, str):
            return
        with self._lock:
            # What others ask for must not drive out what is asked for here.
            if upstream not in self._governors and len(self._governors) >= _MOST_UPSTREAMS:
                return
        self.governor(upstream).told(sighting, is_slow if isinstance(is_slow, bool) else None, by, at_ns)

    def governor(self, upstream: Upstream) -> Governor:
        """That of an upstream: one that has not been seen for long is found out anew."""
        with self._lock:
            governor = self._governors.get(upstream)
            if governor is not None:
                self._governors.move_to_end(upstream)
                return governor
            settings, fleet = self.settings, self._fleet
            governor = Governor(
                self.budget,
                quantile=settings.quantile,
                minimum_delay_s=settings.minimum_delay_s,
                tell=None if fleet is None else lambda is_slow: fleet.tell(upstream, None, is_slow),
                ask=None if fleet is None else fleet.ask,
            )
            self._governors[upstream] = governor
            if len(self._governors) > _MOST_UPSTREAMS:
                self._governors.popitem(last=False)
            return governor

    def begin_in_child(self) -> None:
        """Another thread of the parent may have held a lock, and does not live on here; nor do its calls."""
        self._lock = threading.Lock()
        self._under_way.clear()
        self.budget.begin_in_child()
        if self._fleet is not None:
            self._fleet.begin_in_child()
        for governor in self._governors.values():
            governor.begin_in_child()


def _begin_in_child() -> None:
    for memory in list(_all):
        memory.begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


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
    if any(attempt.kind in ("repair", "shared") for attempt in record.attempts):
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
