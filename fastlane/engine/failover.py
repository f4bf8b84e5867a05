"""Failover and hedging: send a call to the next upstream when one has failed, or beside one that is late."""

from __future__ import annotations

from collections.abc import Callable

from .._clock import now_ns
from .attempts._failures import as_openai_error
from .attempts._journey import Journey
from .attempts._left import Left
from .attempts._leg import Leg
from .effects import Flow, Race, Racer, Sleep
from .first_content import is_asyncio

SendLeg = Callable[[Leg], Flow]


def send_with_failover(journey: Journey, send: SendLeg) -> Flow:
    """Send a call to one upstream after the other. Returns the result, and the upstream's attempt that brought it.

    Raises what the last upstream raised.
    """
    leg = journey.first()
    while True:
        journey.begin(leg)
        try:
            return (yield from _send_hedged(journey, leg, send))
        except Exception as error:  # noqa: BLE001 - raised again where no other upstream is left
            leg = _following(journey, leg, error)
        if leg.wait_s > 0:
            yield Sleep(journey.http, leg.wait_s)


def _send_hedged(journey: Journey, first: Leg, send: SendLeg) -> Flow:
    """Send a call to an upstream, and once more beside it when it is late. Returns as `send_with_failover`."""
    hedge = first.hedge
    if hedge is None or hedge.delay_s is None or not _can_hedge(journey, first):
        return (yield from send(first)), first
    legs: list[Leg] = [first]

    def begin_first(racer: Racer) -> Flow:
        first.races(racer)
        first.when_placed(racer.begin)
        return send(first)

    def begin_second(racer: Racer) -> Flow | None:
        if not _may_hedge(journey, first):
            return None
        try:
            second = journey.second(first)
        except Exception as error:
            journey.account.why_not = f"planning it raised {type(error).__name__}"
            raise
        if second is None:
            return None
        second.races(racer)
        if not racer.enter():
            second.observation.set_aside()
            second.let_go()
            return None
        legs.append(second)
        journey.hedge_begins(first, second)
        return _send_second(journey, second, send)

    race = Race(begin_first, begin_second, hedge.delay_s)
    try:
        result = yield race
    except BaseException:
        if race.winner is race.second:
            first.instead = legs[-1]
        raise
    return result, legs[-1] if race.winner is race.second else first


def _send_second(journey: Journey, second: Leg, send: SendLeg) -> Flow:
    try:
        return (yield from send(second))
    except Exception as error:
        # What fails after its content has come first is the call's own error.
        if not (second.was_claimed or second.is_lost):
            journey.failed_beside(second, error)
        raise


def _can_hedge(journey: Journey, leg: Leg) -> bool:
    """Whether it can be seen that this attempt is late, and be cancelled; if not, the record says so."""
    why_not = None
    if leg.observation.transport != "fastlane":
        why_not = "fastlane's transport does not carry the call: client.explain() says why"
    elif not leg.shows_first_token:
        why_not = "the answer comes at once"
    elif leg.client._asynchronous and not is_asyncio():
        why_not = "the event loop is not asyncio's"
    if why_not is not None:
        journey.account.no_hedge(why_not)
    return why_not is None


def _may_hedge(journey: Journey, first: Leg) -> bool:
    """Whether the second attempt beside a late one may be made now; the record says why not."""
    hedge = first.hedge
    why_not: str | None = "the call is over"
    if hedge is not None:
        why_not = hedge.governor.take(hedge.input_tokens + hedge.output_tokens, now_ns())
    if why_not is not None:
        journey.account.why_not = why_not
    return why_not is None


def _following(journey: Journey, leg: Leg, error: BaseException) -> Leg:
    """Return the next upstream's attempt. Raises what the caller gets where there is none."""
    shown: BaseException = error
    try:
        following = journey.after(leg.instead or leg, error)
        if following is not None:
            return following
        cause = None
        if isinstance(error, Left):
            shown, cause = as_openai_error(error), error.error
        tried = "; ".join(f"{one.model} ({one.why})" for one in journey.account.fallbacks)
        if tried and isinstance(shown, Exception):
            shown.add_note(f"Tried before: {tried}.")
        if cause is None or cause is shown:
            raise shown
        raise shown from cause
    finally:
        # Its traceback refers to this frame, and would keep it until a garbage collection.
        del error, shown
        cause = None
