"""One call's part of hedging: a race of two attempts, once the first is late."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastlane.compat.context import is_asyncio
from fastlane.engine.effects import Cancelled, Flow, Race, Racer
from fastlane.engine.session import CallOutcome, SendCall, Session
from fastlane.engine.upstream_attempt import UpstreamAttempt
from fastlane.errors import CallRefusedError

from .memory import TOO_FEW, HedgePlan, HedgingMemory
from .section import HedgingSection

if TYPE_CHECKING:
    from fastlane.engine.call import Call


class HedgingSession(Session):
    """Sends a second attempt beside one that is late, and takes the one whose content comes first."""

    def __init__(self, memory: HedgingMemory) -> None:
        self._memory = memory
        self._plans: dict[UpstreamAttempt, HedgePlan] = {}
        self._delay_s: float | None = None
        self._why_not: str | None = None
        self._second: UpstreamAttempt | None = None
        """The second attempt, once it has begun."""
        self._won: bool | None = None
        self._extra_input_tokens: int | None = None
        self._extra_price: float | None = None

    def plan(self, call: Call) -> Call:
        """Plan when the attempt is late."""
        plan = self._memory.plan(call)
        if not self._plans:
            self._delay_s, self._why_not = plan.delay_s, plan.why_not
        self._plans[call.upstream] = plan
        # Also before enough first tokens were seen to know which are late.
        may_hedge = plan.why_not in (None, TOO_FEW)
        return call.replaced(streams_for=call.streams_for or "Hedging") if may_hedge else call

    def around_call(self, send: SendCall) -> SendCall:
        """Race the call against a second attempt."""

        def send_hedged(call: Call) -> Flow:
            first: UpstreamAttempt = call.upstream
            first.on_begin.append(partial(self._first_begins, first))
            why_never = _why_never(first)
            if why_never is not None:
                first.on_begin.append(partial(self._no_hedge, first, why_never))
                return (yield from send(call))

            def begin_first(racer: Racer) -> Flow:
                first.join_race(racer)
                return send(call)

            race = Race(begin_first, partial(self._begin_second, send, call, first), 0.0)
            try:
                reply = yield race
            except BaseException:
                is_second = race.winner is race.second
                first.attempts.failed = self._second if is_second else first
                raise
            plan = self._plans.get(first)
            if self._second is not None and self._won is None:
                self._decided(first, self._second, won=race.winner is race.second)
            elif plan is not None and plan.delay_s is not None and not plan.is_late:
                plan.lateness.count(is_late=False)
            return reply

        return send_hedged

    def _first_begins(self, first: UpstreamAttempt) -> None:
        """The first attempt has its slot: its delay begins."""
        plan = self._plans.get(first)
        if plan is None or plan.delay_s is None or first.racer is None:
            return
        if not first.shows_first_token:
            self._no_hedge(first, "the answer comes at once")
            return
        first.racer.race.delay_s = plan.delay_s
        first.racer.begin()

    def _no_hedge(self, first: UpstreamAttempt, why_not: str) -> None:
        plan = self._plans.get(first)
        if plan is not None and plan.delay_s is not None:
            plan.delay_s = self._delay_s = None
            self._why_not = why_not

    def _begin_second(self, send: SendCall, call: Call, first: UpstreamAttempt, racer: Racer) -> Flow | None:
        """Make the second attempt. Returns its flow, or None when there is to be none."""
        plan = self._plans[first]
        why_not = self._memory.reserve(plan)
        if why_not is not None:
            self._why_not = why_not
            return None
        second = first.another(kind="hedge", avoid=first.connection)
        second.facts, second.price, second.may_leave = first.facts, first.price, first.may_leave
        second.changes, second.optional = first.changes, first.optional
        second.must_not_wait = True
        second.join_race(racer)
        second.on_begin = [partial(self._second_begins, racer, second), partial(_wait_as_long, first, second)]
        return self._send_second(send, call.replaced(upstream=second), second)

    def _second_begins(self, racer: Racer, second: UpstreamAttempt) -> None:
        if not racer.enter():
            raise Cancelled
        self._second = second

    def _send_second(self, send: SendCall, call: Call, second: UpstreamAttempt) -> Flow:
        try:
            return (yield from send(call))
        except Exception as error:
            if self._second is not second:
                no_slot = isinstance(error, CallRefusedError)
                self._why_not = "no place was free" if no_slot else f"planning it raised {type(error).__name__}"
            elif not (second.was_claimed or second.is_lost):
                # What fails after its content has come first is the call's own error.
                second.failed(error)
            raise

    def _decided(self, first: UpstreamAttempt, second: UpstreamAttempt, *, won: bool) -> None:
        self._won = won
        loser, plan = (first if won else second), self._plans[first]
        if not loser.is_lost:
            return  # it had failed before
        self._extra_input_tokens = round(plan.input_tokens) if loser.was_sent else 0
        if loser.price is not None:
            self._extra_price = self._extra_input_tokens * loser.price.input / 1e6

    def close(self, outcome: CallOutcome) -> HedgingSection | None:
        """Say whether a second attempt was made, and learn how late first tokens were and what it cost."""
        plans, hedged = tuple(self._plans.values()), self._second is not None
        self._plans.clear()
        self._second = None
        extra_tokens: float = self._extra_input_tokens or 0
        if hedged and self._extra_input_tokens is None:
            # Both have failed or were cancelled: the prompt may have been read.
            extra_tokens = plans[0].input_tokens
        self._memory.note(outcome.record, plans, extra_tokens)
        if not plans:
            return None
        return HedgingSection(
            delay_s=self._delay_s,
            hedged=hedged,
            won=self._won,
            why_not=self._why_not,
            extra_input_tokens=self._extra_input_tokens,
            extra_price=self._extra_price,
        )


def _wait_as_long(first: UpstreamAttempt, second: UpstreamAttempt) -> None:
    # Both together are waited for as long as the first alone.
    second.patience.until_ns = first.patience.until_ns


def _why_never(first: UpstreamAttempt) -> str | None:
    """Why an attempt cannot be cancelled, so that there is no second one; None if it can."""
    if first.state.transport != "fastlane":
        return "fastlane's transport does not carry the call: client.explain() says why"
    if first.client._asynchronous and not is_asyncio():
        return "the event loop is not asyncio's"
    return None
