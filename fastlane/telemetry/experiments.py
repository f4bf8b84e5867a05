"""Which arm of which experiment the calls made here belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import Field

from ..compat.context import restore
from ..engine.settings import settings as checked
from ..errors import ConfigurationError

Name = Annotated[str, Field(min_length=1, description="a text that is not empty")]


@checked
class ExperimentArm:
    """One arm of an experiment, for one unit of it."""

    name: Name
    arm: Name
    unit_id_hash: str | None = None
    """Tells which calls of several arms are the same unit (a request, a user), and not who or what it is."""


_current: ContextVar[ExperimentArm | None] = ContextVar("fastlane_experiment", default=None)


def experiment_of(assigned: Any = None) -> ExperimentArm | None:
    """Return the arm of the client's experiment that a call goes to, or else the experiment around it, or None."""
    return _current.get() if assigned is None else assigned.record  # a record has what an arm has


@contextmanager
def experiment(name: str, arm: str, *, unit: str | None = None) -> Iterator[ExperimentArm]:
    """Mark the calls and user actions inside as one arm of an experiment.

    `unit` is what was assigned to the arm, such as a user's id: spans carry a hash of it, metrics nothing. Names of
    experiments and arms become labels of metrics, so there should be few. Raises ConfigurationError for empty ones.
    """
    if unit is not None and not isinstance(unit, str):
        raise ConfigurationError(f"experiment(unit=...) takes a string, got {type(unit).__name__}")
    hashed = None if unit is None else hashlib.blake2b(unit.encode(), digest_size=8).hexdigest()
    made = ExperimentArm(name=name, arm=arm, unit_id_hash=hashed)
    token = _current.set(made)
    try:
        yield made
    finally:
        restore(_current, token)
