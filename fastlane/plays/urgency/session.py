"""One call's urgency: its slot and its service tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlane.engine.effects import Flow, ReadBody
from fastlane.engine.request_queue import QueueSession
from fastlane.engine.session import CallOutcome, SendAttempt, SendCall
from fastlane.records.plays import LEVELS, AdmissionRecord, CallUrgency, Level

from .section import UrgencySection
from .slots import Slot, SlotQueue, queues
from .tiers import RequestedTier, TierFullError, requested_tier

if TYPE_CHECKING:
    from fastlane.compat.responses import RequestAttempt
    from fastlane.engine.call import Call

    from .play import Urgency


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

    # Its tier

    def plan(self, call: Call) -> Call:
        """Ask for the tier that suits the call, or for the usual one where that is full."""
        if self._tier is None or not self._tier.is_full:
            self._tier = requested_tier(call, self._level, is_on=self._play.tiers)
        return call if self._tier is None else self._tier.applied_to(call)

    def around_call(self, send: SendCall) -> SendCall:
        """Request the usual tier if the requested one is full."""

        def send_at_tiers(call: Call) -> Flow:
            try:
                return (yield from send(call))
            except TierFullError as full:
                left = max(0, call.caller.max_retries - full.retries_taken)
            return (yield from send(call.replaced(attempt_kind="plain", max_retries=left)))

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
                if tier is not None and tier.may_be_full(response.status_code, attempt.options):
                    yield ReadBody(response)
                    tier.check(response, attempt.retries_taken)
            except BaseException as error:
                self.note_error(attempt, error)
                self.release(failed=True)
                raise
            queue.answered(slot, response.status_code, response.headers)
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
        self.release(failed=False)  # of the answer before this one
        slot = Slot(
            queue,
            LEVELS.index(self._level),
            max_concurrency=play.max_concurrency,
            reserved=play.reserved,
            ageing_s=play.ageing_s,
            max_queued=play.max_queued,
        )
        yield from self.wait(slot, attempt)
        if slot.is_granted:
            self._admission = AdmissionRecord(waited_s=self.waited_s, ahead=slot.ahead, concurrency=slot.concurrency)
        return queue, slot

    # The end

    def close(self, outcome: CallOutcome) -> UrgencySection:
        """Give the slot back, and say what was done."""
        self.release(failed=outcome.ending in ("failed", "cancelled"))
        tier = self._tier
        if tier is not None:
            tier.took_back(outcome.refused)
        return UrgencySection(
            urgency=self._level,
            asked_tier=None if tier is None else tier.asked,
            served_tier=outcome.service_tier,
            full_tier=tier.added if tier is not None and tier.is_full else None,
            admission=self._admission,
        )
