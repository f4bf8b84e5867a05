"""What telemetry has to do around a call's own steps; nothing, at no cost to speak of, where nobody listens."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .observation import Observation

_NOTHING: AbstractContextManager[None] = nullcontext()


def around_attempt(observation: Observation, http_client: Any, request: Any) -> AbstractContextManager[None]:
    """What is to hold while an attempt is sent."""
    return (
        _NOTHING if observation.trace is None else observation.trace.around_attempt(observation, http_client, request)
    )


def quietly(observation: Observation) -> AbstractContextManager[None]:
    """What is to hold while openai's own code runs, so that another tool makes no second span of the call."""
    return _NOTHING if observation.trace is None else observation.trace.around_stock()


def head_came(observation: Observation) -> None:
    """The head of an answer is there, which may be the last that is known while another tool's span is open."""
    if observation.trace is not None and observation.trace.is_deferred:
        observation.trace.progressed(observation)


def answered(observation: Observation, result: Any) -> None:
    """A whole answer is there, and the span of another tool's may end before the call does."""
    if observation.trace is not None and observation.trace.is_deferred:
        observation.look_at(result)
