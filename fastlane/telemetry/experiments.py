"""Which arm of which experiment the calls made here belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..compat.context import restore
from ..errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentArm:
    """One arm of an experiment, for one unit of it."""

    name: str
    arm: str
    unit_id_hash: str | None = None
    """Tells which calls of several arms are the same unit (a request, a user), and not who or what it is."""


_current: ContextVar[ExperimentArm | None] = ContextVar("fastlane_experiment", default=None)


def experiment_of(assigned: Any = None) -> ExperimentArm | None:
    """Return the arm of the client's experiment that a call goes to, or else the experiment around it, or None."""
    if assigned is None:
        return _current.get()
    record = assigned.record
    return ExperimentArm(name=record.name, arm=record.arm, unit_id_hash=record.unit_id_hash)


@contextmanager
def experiment(name: str, arm: str, *, unit: str | None = None) -> Iterator[ExperimentArm]:
    """Mark the calls and user actions inside as one arm of an experiment.

    `unit` is what was assigned to the arm, such as a user's id: spans carry a hash of it, metrics nothing. Names of
    experiments and arms become labels of metrics, so there should be few. Raises ConfigurationError for empty ones.
    """
    for what, example, value in (("a name", "transport", name), ("an arm", "http2", arm)):
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"experiment() takes {what} such as {example!r}, got {value!r:.60}")
    if unit is not None and not isinstance(unit, str):
        raise ConfigurationError(f"experiment(unit=...) takes a string, got {type(unit).__name__}")
    hashed = None if unit is None else hashlib.blake2b(unit.encode(), digest_size=8).hexdigest()
    made = ExperimentArm(name=name, arm=arm, unit_id_hash=hashed)
    token = _current.set(made)
    try:
        yield made
    finally:
        restore(_current, token)
