"""What the record of a call says of its experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Why = Literal["ended", "unknown", "failed"]
"""Why a call went to another arm than its unit was drawn for.

- ended: that arm has ended
- unknown: the store could not be read so far, and it alone knows which arms have ended
- failed: fastlane could not make the arm's client
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord:
    """Which arm of an experiment a call went to. Holds nothing of its unit's id but a hash."""

    name: str
    arm: str
    """The arm whose plays it went through."""
    unit_id_hash: str
    """Tells which calls are of one unit, and not who that is: keyed by the experiment, so that it differs in each."""
    drawn: str
    """The arm that the unit was drawn for."""
    why: Why | None = None
    """Why it went elsewhere; None where it did not. Calls that went elsewhere are not counted."""
