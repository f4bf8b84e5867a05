"""One call's urgency: its slot and its service tier."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from fastlane._clock import now_ns
from fastlane.engine.effects import Flow, ReadBody
from fastlane.engine.refused_fields import Upstream, refusals
from fastlane.engine.session import CallOutcome, SendAttempt, SendCall, Session
from fastlane.errors import CallRefusedError
from fastlane.providers.output_facts import limit_in
from fastlane.records.urgency import LEVELS, AdmissionRecord, CallUrgency

from .admission import gate_of
from .pacing import tokens_counted
from .section import UrgencySection
from .tiers._asked import AskedTier, TierUnavailableError
from .tiers._choice import asking, tier_plan

if TYPE_CHECKING:
    from fastlane.compat.retry import Attempt
    from fastlane.engine.call import Call
    from fastlane.records.urgency import Level

    from .admission import Gate, Slot
    from .play import Urgency


_NO_TIERS: Mapping[str, str | None] = dict.fromkeys(LEVELS)


class UrgencySession(Session):
    """One call's part in `Urgency`, at one upstream.

    Each attempt has a slot. It is given back while a retry waits; that of the last one when the response has ended.
    """

    def __init__(self, play: Urgency, call: Call) -> None:
        self._play = play
        self._call = call
        urgency = call.get(CallUrgency)
        self._level: Level = play.default if urgency is None else urgency.level
        self._tier: AskedTier | None = None
        self._admission: AdmissionRecord | None = None
        self._gate: Gate | None = None
        self._slot: Slot | None = None
        self._last_slot: Slot | None = None
        self._keeps_slot = False
        """Whether the next attempt has the slot of the one before, whose tier was full."""
        self._body_bytes = 0
        self._waited_s = 0.0
        self._failed: Callable[[], Exception] | None = None
        """Makes the error of the last attempt, which is made again."""

    # Its tier

    def plan(self, call: Call) -> Call:
        """Ask for the tier that suits the call, or for the next one where that is full."""
        tier = self._tier
        if tier is not None and tier.is_left:
            return tier.at_next(call)
        tiers = self._play.tiers
        # Without tiers, the caller's own is looked at all the same.
        wanted = tiers if isinstance(tiers, Mapping) else None if tiers else _NO_TIERS
        plan = tier_plan(call, self._level, wanted)
        self._tier = None if plan is None else AskedTier(plan)
        return call if plan is None else asking(call, plan)

    def around_call(self, send: SendCall) -> SendCall:
        """Ask for the next tier where the one that was asked for is full."""

        def send_at_tiers(call: Call) -> Flow:
            try:
                return (yield from send(call))
            except TierUnavailableError as unavailable:
                left = max(0, call.caller.max_retries - unavailable.retries_taken)
            try:
                return (yield from send(call.replaced(attempt_kind="plain", max_retries=left)))
            finally:
                self._keeps_slot = False

        return send_at_tiers

    # Its slot

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Send an attempt once it has a slot."""

        def send_with_slot(attempt: Attempt) -> Flow:
            try:
                try:
                    yield from self._acquire(attempt)
                except CallRefusedError as refused:
                    if self._failed is None:
                        raise
                    # There is no slot for a retry: the caller gets the error of the attempt.
                    raise self._failed() from refused
                reply = yield from send(attempt)
                response = reply.response
                tier, slot = self._tier, self._slot
                if tier is not None and tier.may_be_full(response.status_code, attempt.options):
                    yield ReadBody(response)
                    # A full tier says nothing of the other tiers' slots: the call keeps its own for the next tier.
                    tier.look(response, attempt.retries_taken)
            except TierUnavailableError:
                self._keeps_slot = True
                raise
            except BaseException as error:
                if isinstance(error, openai.APIConnectionError) and not isinstance(error, CallRefusedError):
                    self._failed = partial(type(error), request=attempt.request)
                self._release(failed=True)
                raise
            if slot is not None:
                slot.answered(response.status_code, response.headers)
            if tier is not None:
                tier.answered(response.status_code, response.headers)
            if response.is_success:
                reply.on_end(lambda outcome: self._release(failed=outcome in ("failed", "cancelled")))
            else:
                self._failed = partial(self._call.caller.error_of, response)
                self._release(failed=True)
            return reply

        return send_with_slot

    def _acquire(self, attempt: Attempt) -> Flow:
        """Wait for a slot, where the call needs one. Raises QueueFullError and QueueTimeoutError."""
        if self._slot is not None:
            if self._keeps_slot:
                self._keeps_slot = False
                return
            self._release(failed=False)  # of the answer before this one
        gate = self._gate_of()
        if gate is None:
            return
        upstream = self._call.upstream
        self._body_bytes = _size_of(attempt.request)
        slot = self._slot = self._last_slot = gate.slot(
            self._level, self._play.admission, tokens=self._tokens(attempt), max_wait_s=self._max_wait_s(attempt)
        )
        if upstream is not None and upstream.must_not_wait:
            slot.start(bool)
            if not slot.is_granted:
                raise CallRefusedError("no slot was free")
        elif not (yield from slot.acquire(self._call.caller.http_client)):
            return
        record = slot.record
        self._waited_s += record.waited_s
        self._admission = AdmissionRecord(
            waited_s=self._waited_s,
            waited_for=record.waited_for,
            ahead=record.ahead,
            concurrency=record.concurrency,
        )

    def _gate_of(self) -> Gate | None:
        if self._gate is None and self._play.admission is not None:
            call = self._call
            account = call.caller.account
            facts = None if call.facts is None else call.facts.rate_limits
            self._gate = gate_of(call.origin, account.here, call.model, self._play.admission, facts)
            self._play.memory.share(self._gate, f"{call.origin} {call.model} {account.anywhere}")
        return self._gate

    def _tokens(self, attempt: Attempt) -> int:
        """What the provider will count for the call, as far as can be said before it is sent."""
        call, body = self._call, attempt.options.json_data
        if not isinstance(body, Mapping):
            return 0
        sizes = self._play.memory.sizes(call.origin, call.model)
        limit = limit_in(body, call.endpoint)
        output = sizes.output_tokens(None) if limit is None else float(limit)
        facts = None if call.facts is None else call.facts.rate_limits
        return tokens_counted(facts, prompt=sizes.input_tokens(self._body_bytes), output=output)

    def _max_wait_s(self, attempt: Attempt) -> float | None:
        """Seconds that it may wait: what the play allows, else the call's own timeout; no longer than its deadline."""
        most_s: Any = self._play.max_wait_s
        if most_s is None:
            most_s = (attempt.request.extensions.get("timeout") or {}).get("read")
        if not isinstance(most_s, int | float) or most_s > threading.TIMEOUT_MAX:
            most_s = None  # for ever, as no clock counts that far
        left_s = None if most_s is None else max(0.0, most_s - self._waited_s)
        upstream = self._call.upstream
        if upstream is not None and upstream.deadline_ns is not None:
            deadline_s = max(0.0, (upstream.deadline_ns - now_ns()) / 1e9)
            left_s = deadline_s if left_s is None else min(left_s, deadline_s)
        return left_s

    def _release(self, *, failed: bool) -> None:
        """Give the slot back."""
        slot = self._slot
        if slot is None:
            return
        release = partial(slot.release, tokens=None, failed=failed)
        if isinstance(sys.exception(), GeneratorExit):
            # In a garbage collection: this thread may hold the lock of the gate.
            self._call.caller.later(release)
        else:
            release()
        self._slot = None  # not before: an interrupt may come amid the release, and then it is done again

    # The end

    def close(self, outcome: CallOutcome) -> UrgencySection:
        """Give the slot back, take note of what the call has used, and say what was done."""
        self._release(failed=outcome.ending in ("failed", "cancelled"))
        self._learn(outcome)
        tier = self._tier
        if tier is not None:
            tier.took_back(outcome.refused)
            if tier.is_denied and outcome.ending == "completed":
                call = self._call
                upstream = Upstream(call.origin, call.model, call.caller.account.here)
                refusals.add(upstream, (tier.refusal,))
        served = outcome.service_tier if tier is None else tier.served(outcome.service_tier)
        return UrgencySection(
            urgency=self._level,
            asked_tier=None if tier is None else tier.asked,
            served_tier=served,
            downgraded=tier is not None and tier.is_downgraded(outcome.service_tier),
            full_tiers=() if tier is None else tier.full,
            admission=self._admission,
        )

    def _learn(self, outcome: CallOutcome) -> None:
        """Take note of the tokens that the provider has counted."""
        usage, slot = outcome.usage, self._last_slot
        if slot is None or usage.estimated or usage.input_tokens is None or usage.output_tokens is None:
            return
        slot.settle(usage.input_tokens + usage.output_tokens)
        self._play.memory.sizes(self._call.origin, self._call.model).learn(
            body_bytes=self._body_bytes,
            input_tokens=usage.input_tokens,
            cached_tokens=None,
            output_tokens=usage.output_tokens,
        )


def _size_of(request: Any) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0
