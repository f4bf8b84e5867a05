"""01 Route: a second attempt for a call whose first token is late, within a budget."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.settings import Texts, settings
from fastlane.protocol.endpoints import GENERATING

from .memory import HedgingMemory
from .section import HedgingSection
from .session import HedgingSession

if TYPE_CHECKING:
    from fastlane.engine.session import Session


@settings
class Hedging(Play):
    """Make a second attempt when the first token of the first is later than usual, and take whose content comes first.

    The attempt that loses is reset. What second attempts cost stays within a share of all tokens. None is made while
    most answers are late, and none for calls with side effects: answers that the provider keeps, background work, tools
    that the provider runs, and tools that the application declares.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.SEND
    section = HedgingSection
    keeps_bodies: ClassVar[bool] = True
    may_duplicate: ClassVar[bool] = True

    budget: Annotated[float, Field(gt=0, le=1, description="a share of all tokens above 0, up to 1 (0.05 is 5 %)")] = (
        0.05
    )
    """Tokens that second attempts may cost, as a share of the tokens of all calls, input and output."""
    quantile: Annotated[
        float,
        Field(ge=0.5, lt=1, description="a quantile from 0.5 to below 1 (0.95: the slowest twentieth is late)"),
    ] = 0.95
    """A first token is late beyond this quantile of those of the upstream."""
    minimum_delay_s: Annotated[float, Field(ge=0)] = 0.1
    """Seconds before which no first token is late."""
    not_with_tools: Annotated[Texts, Field(description='names of tools, ("send_mail",)')] = ()
    """Names of tools: calls that offer one of them get no second attempt."""
    memory: HedgingMemory = field(init=False, repr=False, compare=False)
    """What the play has learned: it is shared by all clients that this object is given to."""

    def __post_init__(self) -> None:
        settings = {name: getattr(self, name) for name in ("budget", "quantile", "minimum_delay_s", "not_with_tools")}
        object.__setattr__(self, "memory", HedgingMemory(**settings))

    @property
    def needs_transport(self) -> bool:
        """True: on other connections the attempt that loses could not be reset."""
        return True

    def open(self, call: Call) -> Session | None:
        """Take part in calls that generate text."""
        return HedgingSession(self.memory) if call.endpoint in GENERATING else None
