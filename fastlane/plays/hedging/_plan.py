"""What the driver is told of one call's second chance: after how long, why not, and whom to ask then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastlane.knowledge.prediction._upstream import Upstream

if TYPE_CHECKING:
    from ._governor import CallGovernor


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgePlan:
    """The plan of one call's second attempt."""

    delay_s: float | None
    """Seconds from the start of the first attempt: without content by then, a second one may be made. None: none is."""
    why_not: str | None
    """Why there is no second attempt; None where there is a delay."""
    governor: CallGovernor
    """Who is asked when the delay is over."""
    input_tokens: float
    """Tokens of the prompt, estimated."""
    output_tokens: float
    """Tokens of the answer, as answers of the upstream have had, and no more than the caller's limit."""
    streams: bool
    """Whether an answer that the application does not stream is streamed underneath, so that its first token is seen:
    also before enough were seen to know which are late."""
    upstream: Upstream
    """Where the first attempt goes."""
