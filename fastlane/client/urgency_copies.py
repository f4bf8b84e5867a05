"""A client for calls of one urgency, made at a fraction of what a copy costs: it differs in nothing else."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

from ..engine.client_state import ClientState
from ..plays import Urgency
from ..plays.urgency.level import checked_level
from ..records.urgency import CallUrgency, Level
from .configuration import arms_of_client


def client_for(client: Any, level: Level) -> Any:
    """See `with_urgency` of the clients."""
    checked_level(level, "with_urgency()")
    shell = client._fastlane
    if shell is None:
        return client  # the stock behaviour knows no urgency
    if not any(isinstance(play, Urgency) for play in shell.pipeline.plays):
        made = client.with_plays(Urgency())
        made._fastlane.data = {CallUrgency: CallUrgency(level)}
        return made
    kind: Any = type(client)
    made = object.__new__(kind)
    # Resources remember the client that they were made for.
    bound = _remembered(kind)
    made.__dict__.update({name: value for name, value in client.__dict__.items() if name not in bound})
    made._fastlane = own = ClientState(shell.pipeline, shell.transport, shell.requests)
    own.data = {**shell.data, CallUrgency: CallUrgency(level)}
    if shell.arms is not None:
        own.arms = arms_of_client(shell.arms.experiment, shell.pipeline, shell.arms.copy, shell.arms)
    return made


@lru_cache(maxsize=64)  # an application's classes come and go
def _remembered(kind: type[Any]) -> frozenset[str]:
    """The names of what a client makes once and remembers."""
    return frozenset(
        name for base in kind.__mro__ for name, value in base.__dict__.items() if isinstance(value, cached_property)
    )
