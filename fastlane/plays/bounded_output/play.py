"""04 Stop sooner: answers that cannot grow beyond their schema, and that end when they are complete."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import settings
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING

from .section import BoundedOutputSection
from .session import BoundedOutputSession

_Tokens = Annotated[int, Field(ge=1)]


@settings
class BoundedOutput(Play):
    """Bound an answer by its schema, close its stream when it is complete, check it, and ask again if it is not valid.

    The schema is the one that the call has: `response_format`, `text.format`, the parameters of a tool that it must
    call. As it stands it sets a limit of tokens that no valid answer can exceed, has answers
    streamed underneath to stop those that run on, and says on `record.output` what it found. Raises
    `fastlane.InvalidOutputError` for an answer that is not valid, and asks again where `reasks` allows that.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section: ClassVar[type[BoundedOutputSection]] = BoundedOutputSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    unbounded: _Tokens | None = None
    """Tokens that each field which may be of any length is given; None: a schema with such fields gets no limit, and
    the record names them."""
    max_output_tokens: _Tokens | None = None
    """A limit of tokens for every call that has none of its own, reasoning not counted."""
    reasoning_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that the limit leaves for reasoning; None for what is known of the model: nothing where it does not
    reason, else 25,000."""
    early_stop: bool | Literal["at_once"] = True
    """Whether to close a stream that brings nothing more. True: when something comes behind the complete answer, so
    that the provider's own count is read where the model ends by itself; "at_once": at the last brace."""
    validate: bool = True
    """Whether an answer has to be valid for its schema."""
    reasks: Annotated[int, Field(ge=0, le=10)] = 0
    """How often to ask again, with what was wrong."""

    def __post_init__(self) -> None:
        # With the client and not with its first call, which may be made on an event loop.
        import jsonschema_rs  # noqa: F401

        if self.reasks and not self.validate:
            raise ConfigurationError(
                "BoundedOutput(reasks=...) asks again for what is not valid, and validate=False asks for no such "
                "check: leave one of them out"
            )

    @property
    def checks_answers(self) -> bool:
        """Whether it validates answers."""
        return self.validate

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a call."""
        if call.endpoint not in GENERATING:
            return None
        return BoundedOutputSession(call, self)
