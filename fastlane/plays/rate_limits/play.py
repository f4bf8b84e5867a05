"""Keep requests to a provider's rate limits, so that it refuses none."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.settings import settings
from fastlane.knowledge.redis import shared
from fastlane.records.plays import CallUrgency

from .section import RateLimitsSection
from .session import RateLimitsSession


@settings
class RateLimits(Play):
    """Hold requests back that the provider would refuse with 429, and send them when its limits allow it.

    The limits are read from the headers of responses, as the provider's facts say. Until one is known, nothing is held
    back. Calls to one origin and model with one key share their limits in the whole process, whichever client makes
    them; those that wait are sent in the order of their urgency.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.SEND
    section = RateLimitsSection
    keeps_bodies: ClassVar[bool] = True
    needs_facts: ClassVar[bool] = True
    reads: ClassVar[tuple[type, ...]] = (CallUrgency,)

    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Your limit, kept without any header; None: the provider's alone."""
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    """Of prompt and answer together."""
    max_queued: Annotated[int, Field(ge=1)] = 10_000
    """How many calls may wait, counting for each those that are as urgent or more so. A further one gets
    QueueFullError."""
    max_wait_s: Annotated[float, Field(ge=0)] | None = None
    """The most seconds that a call waits, then QueueTimeoutError; None: its own read timeout."""
    store: Annotated[str | None, Field(description='an address such as "redis://localhost:6379/0"')] = field(
        default=None, repr=False
    )  # it may hold a password
    """Where replicas share their limits, such as "redis://host:6379/0" (extra `redis`); None: in this process."""
    stated: Any = field(init=False, repr=False, compare=False)
    """Your limits: what they count, and how much of it in a minute."""
    redis: Any = field(init=False, repr=False, compare=False)
    """What this process shares through the store."""

    def __post_init__(self) -> None:
        # With the client and not with `import fastlane`.
        from . import session  # noqa: F401

        limits = ("requests", self.requests_per_minute), ("tokens", self.tokens_per_minute)
        object.__setattr__(self, "stated", tuple(limit for limit in limits if limit[1] is not None))
        setting = "RateLimits(store=...)"
        object.__setattr__(self, "redis", None if self.store is None else shared(self.store, setting=setting))

    def open(self, call: Call) -> RateLimitsSession:
        """Begin the play's part in a call."""
        return RateLimitsSession(self, call)
