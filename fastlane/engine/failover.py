"""Failover: send a call to the next upstream when one has failed."""

from __future__ import annotations

from collections.abc import Callable

from .attempts._async import async_raced
from .attempts._failures import as_openai_error
from .attempts._journey import Journey
from .attempts._left import Left
from .attempts._leg import Leg
from .attempts._sync import raced
from .effects import Either, Flow, Sleep


def send_with_failover(journey: Journey, send: Callable[[Leg], Flow]) -> Flow:
    """Send a call to one upstream after the other. Returns the result, and the upstream's attempt that brought it.

    Raises what the last upstream raised.
    """
    leg = journey.first()
    while True:
        journey.begin(leg)
        try:
            return (yield _race(journey, leg, send))
        except (Exception, Left) as error:  # noqa: BLE001 - raised again where no other upstream is left
            leg = _following(journey, leg, error)
        if leg.wait_s > 0:
            yield Sleep(journey.http, leg.wait_s)


def _race(journey: Journey, leg: Leg, send: Callable[[Leg], Flow]) -> Either:
    return Either(
        lambda run: raced(journey, leg, lambda one: run(send(one))),
        lambda run: async_raced(journey, leg, lambda one: run(send(one))),
    )


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
