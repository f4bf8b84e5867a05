"""What is planned for one call by how urgent it is: its place, its tier, and what becomes of it where that is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastlane.records.urgency import Level

if TYPE_CHECKING:
    from ._memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """The tier that a call asks for, and where it goes when that is full."""

    field: str
    """The field of the body, "service_tier"."""
    asked: str | None
    """What the body says as it is planned; None where it says nothing."""
    added: str | None = None
    """That, where the play has put it there and not the caller."""
    falls: bool = False
    """Whether the call goes to `following` where the added tier has no capacity."""
    following: str | None = None
    """What is asked for then; None: nothing, which is the usual tier."""
    full_status: int | None = None
    """The status that may say that a tier has no capacity."""
    full_codes: frozenset[str] = frozenset()
    """The error codes that say so with this status; empty where the status alone does."""
    ranks: tuple[tuple[str, ...], ...] = ()
    """The tiers from the slowest to the fastest, those that are as fast as each other together."""
    answer_path: tuple[str, ...] = ()
    """Where an answer says which tier served, if elsewhere than in `service_tier`."""
    answer_header: str | None = None
    """The header that says so, where no field does."""
    timeout_s: float | None = None
    """Seconds that an answer of the asked tier may take, where the application has not said how long it waits."""

    @property
    def refusal(self) -> str:
        """The name of the added tier among the fields that were refused."""
        return f"{self.field}={self.added}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgencyPlan:
    """The plan of one call."""

    urgency: Level
    admission: Any
    """`AdmissionSettings`; None where no limit is kept to."""
    max_wait_s: float | None
    """Seconds that the call may wait for its place; None: as long as it may take."""
    tier: TierPlan | None = None
    """None where nothing is known of the provider's tiers."""
    single_flight: bool = False
    on_downgrade: Callable[[Any], Any] | None = field(default=None, repr=False)
    memory: Memory | None = field(default=None, repr=False)
    """What the play has learned of sizes, shared by its clients."""
