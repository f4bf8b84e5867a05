"""End a stream that a play has stopped, for the application that reads on to its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from openai._models import construct_type

from ..engine.observation import Observation


def closing_events(observation: Observation, cast_to: Any) -> list[Any]:
    """The events, of the stream's own type, that are missing at the end of one that was stopped in the middle.

    Raises InvalidOutputError for one that was stopped because it could not become valid.
    """
    guard = observation.guard
    stopper = next((one for one in observation.watchers if hasattr(one, "closing")), None)
    if guard is None or stopper is None:
        return []
    try:
        events = [construct_type(value=event, type_=cast_to) for event in stopper.closing()]
    except Exception as error:  # noqa: BLE001 - a play must not break a call
        observation.pipeline.went_wrong(stopper, "closing", error)
        return []
    answer = observation.answer
    invalid = guard.error_of_stream()
    if invalid is not None:
        if answer.usage is None and guard.usage:
            answer.usage = SimpleNamespace(**guard.usage)
        # A finish reason would say that the model had ended it so.
        raise invalid
    # They say how the answer ended, but none of them arrived.
    stamped, counted = answer.token_ns[:], answer.events
    for event in events:
        answer.event(event)
    answer.token_ns, answer.events = stamped, counted
    if answer.usage is None and guard.usage:
        answer.usage = SimpleNamespace(**guard.usage)
    return events
