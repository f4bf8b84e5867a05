"""Notice streams that stall, and continue streams that break."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import settings
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING

from .section import UnbrokenSection
from .session import UnbrokenSession

_Seconds = Annotated[float, Field(gt=0)]


@settings
class Unbroken(Play):
    """End a stream that stalls, and continue one that stalls or breaks where no text is lost or doubled by it.

    A response with `background=True` is resumed after its last event. Another stream is requested again as long as it
    has had no output. Everything counts towards `max_retries`. Otherwise a `fastlane.BrokenStreamError` or
    `fastlane.StalledStreamError` holds what has been received.
    """

    stage: ClassVar[Stage] = Stage.SEND
    section: ClassVar[type[UnbrokenSection]] = UnbrokenSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    stall_factor: Annotated[float, Field(gt=1)] = 2.5
    """A stream has stalled after this many times the longest gap that streams of its model and origin usually have."""
    min_stall_s: _Seconds = 5.0
    """The least seconds after which a stream has stalled."""
    max_stall_s: _Seconds = 60.0
    """The most seconds; the limit as long as the usual gap is not known."""
    max_thinking_s: _Seconds | None = None
    """Seconds without any output in which the model may be thinking: before the first text, during and after reasoning,
    between the parts of a response. None: no limit but the timeout of the call."""
    on_break: Literal["raise", "continue"] = "raise"
    """What to do after the first text of a chat completion. "continue": ask the model to continue its text, where the
    provider is known to support that; a new sample from there on."""

    def __post_init__(self) -> None:
        if self.min_stall_s > self.max_stall_s:
            raise ConfigurationError(
                f"Unbroken(min_stall_s=...) takes seconds up to max_stall_s ({self.max_stall_s}), got "
                f"{self.min_stall_s}: raise max_stall_s too"
            )

    @property
    def needs_transport(self) -> bool:
        """True: on other connections a stall is not noticed."""
        return True

    def open(self, call: Call) -> Session | None:
        """Take part in streams that the application reads as events."""
        reads_events = call.stream and not call.unread and call.endpoint in GENERATING
        return UnbrokenSession(self, call) if reads_events else None
