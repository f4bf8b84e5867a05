"""01 Route: a second attempt for a call whose first token is late, within a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._call import Call, CallRecord
from ._base import Play, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedging(Play):
    """Make a second attempt when the first token of the first is later than usual, and take whose content comes first.

    The attempt that loses is reset. What second attempts cost stays within a share of all tokens. None is made while
    most answers are late, and none for calls with side effects: answers that the provider keeps, background work, tools
    that the provider runs, and tools that the application declares.
    """

    stage: ClassVar[Stage] = Stage.SEND
    keeps_bodies: ClassVar[bool] = True

    budget: float = 0.05
    """Tokens that second attempts may cost, as a share of the tokens of all calls, input and output."""
    quantile: float = 0.95
    """A first token is late beyond this quantile of those of the upstream."""
    minimum_delay_s: float = 0.1
    """Seconds before which no first token is late."""
    not_with_tools: tuple[str, ...] = ()
    """Names of tools: calls that offer one of them get no second attempt. `"hedge": False` in a tool says the same."""

    def plan(self, call: Call) -> Call:
        """Say after how long a second attempt is to be made, if at all."""
        return call

    def learn(self, record: CallRecord) -> None:
        """Take note of how late first tokens were, and of what second attempts cost."""
