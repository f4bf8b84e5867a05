"""04 Stop sooner: answers that cannot grow beyond their schema, and that end when they are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import settings
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import GENERATING
from fastlane.schemas.given import check_schema, given_schema

from .section import BoundedOutputSection
from .session import BoundedOutputSession

_WHERE = "BoundedOutput(schema=...)"
_Tokens = Annotated[int, Field(ge=1)]


@settings
class BoundedOutput(Play):
    """Bound an answer by its schema, close its stream when it is complete, check it, and ask again if it is not valid.

    The schema is the one that the call has (`response_format`, `text.format`, the parameters of a tool that it must
    call), or else this play's own. As it stands it sets a limit of tokens that no valid answer can exceed, has answers
    streamed underneath to stop those that run on, and says on `record.output` what it found. Raises
    `fastlane.InvalidOutputError` for an answer that is not valid, and asks again where `reasks` allows that.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section: ClassVar[type[BoundedOutputSection]] = BoundedOutputSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    schema: Any = None
    """A type that pydantic has a schema for, a JSON schema, or a whole response format, for calls that ask for none
    themselves: of an object, as strict modes take nothing else."""
    unbounded: Annotated[
        Literal["error"] | _Tokens | None,
        Field(description='a whole number of tokens from 1, "error", or None to leave them alone'),
    ] = None
    """What becomes of a schema with fields that may be of any length: "error": `fastlane.CallRefusedError`, and nothing
    is sent; a number: each such field is given so many tokens; None: no limit is set, and the record names the
    fields."""
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
    json_schema: Mapping[str, Any] | None = field(init=False, repr=False, compare=False, default=None)
    schema_name: str = field(init=False, repr=False, compare=False, default="answer")

    def __post_init__(self) -> None:
        # With the client and not with its first call, which may be made on an event loop.
        import jsonschema_rs  # noqa: F401

        if self.reasks and not self.validate:
            raise ConfigurationError(
                "BoundedOutput(reasks=...) asks again for what is not valid, and validate=False asks for no such "
                "check: leave one of them out"
            )
        if self.schema is not None:
            schema, name = _read_schema(self.schema)
            object.__setattr__(self, "json_schema", schema)
            object.__setattr__(self, "schema_name", name)

    def __repr__(self) -> str:
        # The fingerprint: a schema's name says as much as its text.
        shown = []
        for name, given in type(self).__dataclass_fields__.items():
            value = getattr(self, name) if given.init else None
            if given.init and value != given.default:
                shown.append(f"{name}={self.schema_name if name == 'schema' else value!r}")
        return f"BoundedOutput({', '.join(shown)})"

    @property
    def checks_answers(self) -> bool:
        """Whether it validates answers."""
        return self.validate

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a call."""
        if call.endpoint not in GENERATING:
            return None
        return BoundedOutputSession(call, self)


def _read_schema(given: Any) -> tuple[Mapping[str, Any], str]:
    """Return the JSON schema of what was given, and its name."""
    found = given_schema(given, _WHERE)
    schema = found.schema
    if isinstance(schema, bool):
        raise ConfigurationError(f"{_WHERE} takes a type that pydantic has a JSON schema for, or one, got {schema}")
    if not found.is_type:
        try:
            orjson.dumps(schema)
        except TypeError as error:
            raise ConfigurationError(f"{_WHERE} takes a JSON schema, which is plain JSON ({error})") from error
        check_schema(schema, _WHERE)
    branches = [schema, *schema.get("anyOf", ())]
    others = [one["type"] for one in branches if isinstance(one, Mapping) and one.get("type", "object") != "object"]
    if others:
        raise ConfigurationError(
            f"{_WHERE} takes the schema of an object, because strict modes take nothing else at the root, got one of "
            f"the type {' or '.join(map(str, others))}: put it into a model as its field, such as "
            "`items: list[Model]`, or ask for it by the call's own response_format"
        )
    title = schema.get("title")
    name = found.name or (title if isinstance(title, str) else "")
    return schema, re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "answer"
