"""Send the turns of a conversation over WebSockets, each with what is new in it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import settings
from fastlane.errors import MissingExtraError
from fastlane.protocol.endpoints import RESPONSES

from .section import ResponseSocketSection
from .session import ResponseSocketSession


@settings
class ResponseSocket(Play):
    """Send the calls of `responses` over WebSockets, and of a history that the provider has seen only the rest.

    Only if its facts say that it takes them, and only what is certainly the same as over HTTP. All else goes over HTTP.
    Results, errors and usage are the same.
    """

    stage: ClassVar[Stage] = Stage.SEND
    section: ClassVar[type[ResponseSocketSection]] = ResponseSocketSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    max_sockets: Annotated[int, Field(ge=1)] = 16
    """The most WebSockets of a client. Each carries one response at a time, and the provider remembers one conversation
    on it. Calls that find none free go over HTTP."""

    def __post_init__(self) -> None:
        if find_spec("websockets") is None:
            raise MissingExtraError("realtime", "websockets")

    @property
    def needs_transport(self) -> bool:
        """True: on other connections, calls go over HTTP."""
        return True

    def open(self, call: Call) -> Session | None:
        """Take part in calls that create a response."""
        return ResponseSocketSession(self, call) if call.endpoint == RESPONSES else None
