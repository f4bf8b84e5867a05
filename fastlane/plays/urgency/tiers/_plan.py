"""The tier that a call asks for, and where it goes when that is full."""

from __future__ import annotations

from dataclasses import dataclass


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
