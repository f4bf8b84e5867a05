"""One call's urgency: its slot and its service tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastlane.engine.effects import Flow, ReadBody
from fastlane.engine.refused_fields import RefusingUpstream, refusals
from fastlane.engine.request_queue import QueueSession
from fastlane.engine.session import CallOutcome, SendAttempt, SendCall
from fastlane.records.plays import LEVELS, AdmissionRecord, CallUrgency, Level

from .section import UrgencySection
from .slots import Slot, SlotQueue, queues
from .tiers import RequestedTier, TierUnavailableError, requested_tier

if TYPE_CHECKING:
    from fastlane.compat.responses import RequestAttempt
    from fastlane.engine.call import Call

    from .play import Urgency


_NO_TIERS: Mapping[str, str | None] = dict.fromkeys(LEVELS)


class UrgencySession(QueueSession):
    """One call's part in `Urgency`, at one upstream.

    Each attempt has a slot. It is given back while a retry waits; that of the last one when the response has ended.
    """

    def __init__(self, play: Urgency, call: Call) -> None:
        super().__init__(call, play.max_wait_s)
        self._play = play
        urgency = call.get(CallUrgency)
        self._level: Level = play.default if urgency is None else urgency.level
        self._tier: RequestedTier | None = None
        self._admission: AdmissionRecord | None = None
        self._keeps_slot = False
        """Whether the next attempt has the slot of the one before, whose tier was full."""

    # Its tier

    def plan(self, call: Call) -> Call:
        """Ask for the tier that suits the call, or for the next one where that is full."""
        tier = self._tier
        if tier is not None and tier.is_left:
            return tier.at_next(call)
        tiers = self._play.tiers
        # Without tiers, the caller's own is recorded all the same.
        wanted = tiers if isinstance(tiers, Mapping) else None if tiers else _NO_TIERS
        self._tier = tier = requested_tier(call, self._level, wanted)
        return call if tier is None else tier.added_to(call)

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

        def send_with_slot(attempt: RequestAttempt) -> Flow:
            try:
                queue, slot = yield from self._acquire(attempt)
                reply = yield from send(attempt)
                response = reply.response
                tier = self._tier
                if tier is not None and tier.may_be_unavailable(response.status_code, attempt.options):
                    yield ReadBody(response)
                    # A full tier says nothing of the other tiers' slots: the call keeps its own for the next tier.
                    tier.check(response, attempt.retries_taken)
            except TierUnavailableError:
                self._keeps_slot = True
                raise
            except BaseException as error:
                self.note_error(attempt, error)
                self.release(failed=True)
                raise
            queue.answered(slot, response.status_code, response.headers)
            if tier is not None:
                tier.answered(response.status_code, response.headers)
            if response.is_success:
                reply.on_end(lambda outcome: self.release(failed=outcome in ("failed", "cancelled")))
            else:
                self.note_response(response)
                self.release(failed=True)
            return reply

        return send_with_slot

    def _acquire(self, attempt: RequestAttempt) -> Flow:
        """Wait for a slot. Returns its queue and the slot. Raises QueueFullError and QueueTimeoutError."""
        call, play = self.call, self._play
        queue = queues.fetch((call.origin, call.caller.account.here, call.model), SlotQueue)
        if self._keeps_slot and self.ticket is not None:
            self._keeps_slot = False
            return queue, self.ticket
        self.release(failed=False)  # of the answer before this one
        slot = Slot(
            queue,
            LEVELS.index(self._level),
            max_concurrency=play.max_concurrency,
            reserved=play.reserved,
            ageing_s=play.ageing_s,
            max_queued=play.max_queued,
        )
        if (yield from self.wait(slot, attempt)):
            self._admission = AdmissionRecord(waited_s=self.waited_s, ahead=slot.ahead, concurrency=slot.concurrency)
        return queue, slot

    # The end

    def close(self, outcome: CallOutcome) -> UrgencySection:
        """Give the slot back, and say what was done."""
        self.release(failed=outcome.ending in ("failed", "cancelled"))
        tier = self._tier
        if tier is not None:
            tier.took_back(outcome.refused)
            if tier.is_denied and outcome.ending == "completed":
                call = self.call
                refusals.add(RefusingUpstream(call.origin, call.model, call.caller.account.here), (tier.refusal,))
        return UrgencySection(
            urgency=self._level,
            asked_tier=None if tier is None else tier.asked,
            served_tier=outcome.service_tier if tier is None else tier.served(outcome.service_tier),
            downgraded=tier is not None and tier.is_downgraded(outcome.service_tier),
            full_tiers=() if tier is None else tier.full,
            admission=self._admission,
        )
