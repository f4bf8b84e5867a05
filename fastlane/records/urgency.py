"""What the record of a call says of its urgency: the tier asked and served, and the wait for a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .section import RecordSection

Level = Literal["interactive", "background", "offline"]
"""How urgent a call is: somebody waits for it, it is wanted soon, or at some time."""

LEVELS: tuple[Level, ...] = ("interactive", "background", "offline")
"""The most urgent first."""


@dataclass(frozen=True, slots=True)
class CallUrgency:
    """How urgent the application says that a call is: data of the call (`Call.get`)."""

    level: Level

    @property
    def unread_warning(self) -> str | None:
        """What to log where no play looks at it."""
        if self.level == "interactive":
            return None
        return (
            f'urgency("{self.level}") has no effect, because this client has no Urgency play: make it with '
            f'OpenAI(plays=[Urgency()]), or call client.with_urgency("{self.level}")'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRecord:
    """How a call got its slot. Of its last attempt, the wait of all of them."""

    waited_s: float
    """Seconds in the queue for a slot, all attempts together."""
    ahead: int
    """Calls that were to be sent before it when it came."""
    concurrency: int | None
    """How many were allowed at once when it was sent; None: no limit was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgencyRecord(RecordSection):
    """How urgent a call was, and what was done about that."""

    name: ClassVar[str] = "urgency"

    urgency: Level
    asked_tier: str | None = None
    """The service tier that the last attempt asked for, whoever chose it; None where it asked for none."""
    served_tier: str | None = None
    """The tier that served it, by the provider's own word; None where it said none."""
    downgraded: bool = False
    """Whether it was served by a slower tier than the one that it asked for."""
    full_tiers: tuple[str, ...] = ()
    """Tiers that had no capacity for it, in the order in which they were asked."""
    admission: AdmissionRecord | None = None
    """None where the call was not sent."""
