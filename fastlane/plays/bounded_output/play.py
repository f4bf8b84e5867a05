"""04 Stop sooner: answers that cannot grow beyond their schema, and that end when they are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.records.record import CallRecord

from .section import BoundedOutputSection

if TYPE_CHECKING:
    from .outputs._play_state import Memory, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedOutput(Play):
    """Bound an answer by its schema, close its stream when it is complete, check it, and ask again if it is not valid.

    The schema is the one that the call has (`response_format`, `text.format`, the parameters of a tool that it must
    call), or else this play's own. As it stands it sets a limit of tokens that no valid answer can exceed, has answers
    streamed underneath to stop those that run on, and says on `record.output` what it found. Raises
    `fastlane.InvalidOutputError` for an answer that is not valid, and asks again where `repairs` allows that.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section = BoundedOutputSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    schema: Any = None
    """A type that pydantic has a schema for, a JSON schema, or a whole response format, for calls that ask for none
    themselves: of an object, as strict modes take nothing else."""
    unbounded: Literal["error"] | int | None = None
    """What becomes of a schema with fields that may be of any length: "error": `fastlane.CallRefusedError`, and nothing
    is sent; a number: each such field is given so many tokens; None: no limit is set, and the record names the
    fields."""
    max_output_tokens: int | None = None
    """A limit of tokens for every call that has none of its own, reasoning not counted."""
    reasoning_tokens: int | None = None
    """Tokens that the limit leaves for reasoning; None for what is known of the model: nothing where it does not
    reason, 25,000 until its answers have shown how much it needs."""
    early_stop: bool | Literal["at_once"] = True
    """Whether to close a stream that brings nothing more. True: when something comes behind the complete answer, so
    that the provider's own count is read where the model ends by itself; "at_once": at the last brace."""
    stop: str | Sequence[str] = ()
    """Texts at which free text ends; they are no part of it."""
    stop_when: Callable[[str], bool] | None = None
    """Called with the text so far after every piece of free text; True ends it there."""
    validate: bool = True
    """Whether an answer has to be valid for its schema."""
    repairs: int = 0
    """How often to ask again, with what was wrong."""
    repair_temperature: float | None = None
    """The temperature of those calls; None for that of the first."""
    repair_tokens: int | None = None
    """Output tokens that the repairs of a call may come to together; None for any number."""
    compact: bool = False
    """Whether long names of properties and values go out as short ones, and come back written out: answers that the
    application does not stream, where that saves tokens."""
    limits: Literal["error", "note"] = "error"
    """What becomes of a schema beyond what the provider's strict mode takes."""
    effort: str | None = None
    """A reasoning effort for calls that name none, where the model is known to take it."""
    verbosity: str | None = None
    """A verbosity for calls that name none, where the model is known to take it."""
    settings: Settings = field(init=False, repr=False, compare=False)
    memory: Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # With the client and not with `import fastlane`.
        from .outputs._play_state import Memory
        from .outputs._settings import settings_of

        object.__setattr__(self, "settings", settings_of(self))
        object.__setattr__(self, "memory", Memory())

    def __repr__(self) -> str:
        # The fingerprint: a schema's name says as much as its text, and an address of a function nothing.
        shown = []
        for name, given in type(self).__dataclass_fields__.items():
            value = getattr(self, name) if given.init else None
            if not given.init or value == given.default:
                continue
            if name == "schema":
                value = self.settings.name
            elif callable(value):
                value = getattr(value, "__qualname__", type(value).__name__)
            shown.append(f"{name}={value!r}")
        return f"BoundedOutput({', '.join(shown)})"

    @property
    def checks_answers(self) -> bool:
        """Whether it validates answers."""
        return self.validate

    def plan(self, call: Call) -> Call:
        """Set the limit, write the schema as the provider takes it, and say how the answer is to be watched."""
        from fastlane.protocol.endpoints import GENERATING

        from .outputs._plan import OutputPlan
        from .outputs._planning import planned

        if call.endpoint not in GENERATING or call.get(OutputPlan) is not None:
            return call
        return planned(call, self.settings, self.memory)

    def learn(self, record: CallRecord) -> None:
        """Take note of how long the model has thought."""
        output, usage = record.output, record.usage
        if output is None:
            return
        # An answer that was cut off at its limit, and so ended in an error, has thought at least that long.
        if record.outcome not in ("completed", "failed") or usage.estimated or usage.output_tokens is None:
            return
        if output.visible_tokens is not None:
            self.memory.reasoning.learn(
                record.origin,
                record.model,
                output.effort,
                visible_tokens=output.visible_tokens,
                output_tokens=usage.output_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
