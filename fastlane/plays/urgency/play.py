"""Send interactive calls before background and offline ones."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.settings import settings
from fastlane.records.plays import CallUrgency, Level

from .section import UrgencySection
from .session import UrgencySession


@settings
class Urgency(Play):
    """Send calls that a user waits for before calls that can wait.

    `fastlane.urgency(...)` around a call says how urgent it is, else `default`. Calls to one origin and model with one
    key share their slots in the whole process, whichever client makes them. With `tiers`, background and offline calls
    ask for a cheaper tier where the provider has one. Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section = UrgencySection
    keeps_bodies: ClassVar[bool] = True
    needs_facts: ClassVar[bool] = True
    reads: ClassVar[tuple[type, ...]] = (CallUrgency,)

    default: Level = "interactive"
    """The level of calls without another one."""
    tiers: bool = False
    """Whether background and offline calls ask for the cheap service tier that the provider's facts name."""
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """The most calls at once; None: no limit until the provider refuses calls."""
    reserved: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """The share of the slots that is kept free for interactive calls: at least one where there are two or more."""
    ageing_s: Annotated[float, Field(gt=0)] = 30.0
    """After each such time in the queue, in seconds, a call counts as one level more urgent."""
    max_queued: Annotated[int, Field(ge=1)] = 10_000
    """How many calls may wait, counting for each those that are as urgent or more so. A further one gets
    QueueFullError."""
    max_wait_s: Annotated[float, Field(ge=0)] | None = None
    """The most seconds that a call waits for its slot, then QueueTimeoutError; None: its own read timeout."""

    def open(self, call: Call) -> UrgencySession:
        """Begin the play's part in a call."""
        return UrgencySession(self, call)
