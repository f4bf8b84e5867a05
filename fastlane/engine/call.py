"""One call before it is sent: frozen data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ..records.attempts import AttemptKind

if TYPE_CHECKING:
    from ..providers import ProviderFacts

_T = TypeVar("_T")

attached: ContextVar[Mapping[type, Any]] = ContextVar("fastlane_attached", default=MappingProxyType({}))
"""What the application attaches to the calls of a block, by its class: the first `Call.data`. See `Play.reads`."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is about to be sent, for plays to rewrite; a play returns a new Call and leaves this one as it is."""

    call_id: str
    endpoint: str
    """The path below the base URL, such as "/chat/completions"."""
    origin: str
    """scheme://host:port of the provider."""
    body: Mapping[str, Any]
    """The JSON body, `extra_body` merged in. Never changed in place: it may be the caller's own mapping."""
    stream: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that plays add to the request. Neither the caller's headers nor any credential are in here."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    facts: ProviderFacts | None = None
    """What is known of the provider; None unless a play needs it (`Play.needs_facts`)."""
    issued_ns: int = 0
    """When the application issued it: monotonic nanoseconds, for plays that know what was sent when."""
    placements: tuple[Any, ...] | None = None
    """What the caller declared of each message, or of each part of its content: see `fastlane.prompts.Prompt`. None if
    nothing was declared."""
    optional: tuple[str, ...] = ()
    """Fields of the body that a play added: where the provider refuses one, the call is sent again without them.
    "service_tier=flex": the field may be sent with another value."""
    refused: frozenset[str] = frozenset()
    """Fields that the provider has refused for this model within the last hour: plays do not add them."""
    unread: bool = False
    """The application reads the bytes of the answer itself (`with_streaming_response`): nobody else may."""
    written: bytes | None = None
    """The body as it would be sent if nothing changed it, where that has been written already."""
    upstream: Any = None
    """Where it is sent: an `engine.upstream_attempt.UpstreamAttempt`, for plays that send it to several upstreams, or
    more than once (`Play.routes`, `Play.may_duplicate`)."""
    streams_for: str | None = None
    """The play that wants to see the first token: an answer that the caller does not stream is streamed to us."""
    attempt_kind: AttemptKind | None = None
    """Why the next attempt is made, where a play sends the call again; None: the record finds that out."""
    timeout_s: float | None = None
    """Seconds that the answer may take, where the application has not said how long it waits; None: the usual time."""
    max_retries: int | None = None
    """How often openai's rules may retry an attempt; None: as the application has it."""
    collector: Any = None
    """Makes what puts an attempt's answer together where the caller does not stream and a play has had it streamed to
    us: called without arguments, it returns an `engine.collector.Collecting`. None: one that judges nothing of it."""
    parser: Any = None
    """openai's `post_parser`, which makes objects of the application's classes out of the answer; None without one."""
    is_helped: bool = False
    """Whether one of openai's helpers for streams reads the answer, with classes that the call knows nothing of."""
    caller: Any = None
    """Who sends it: an `engine.client_state.Caller`."""
    data: Mapping[type, Any] = field(default_factory=dict)
    """What the application has attached to the call and what plays add to it, by its class: see `get` and `with_data`.
    A `RecordSection` becomes part of the record."""

    @property
    def model(self) -> str | None:
        """The model asked for; None where the body names none."""
        model = self.body.get("model")
        return model if isinstance(model, str) else None

    def get(self, kind: type[_T]) -> _T | None:
        """Return what a play has added of this class; None where none has."""
        return self.data.get(kind)

    def with_data(self, *added: Any) -> Call:
        """Return this call with further data, in place of data of the same class."""
        return self.replaced(data={**self.data, **{type(one): one for one in added}})

    def with_body(self, changed: str, **fields: Any) -> Call:
        """This call with `fields` set in its body, `changed` saying so on the record."""
        return self.replaced(body={**self.body, **fields}, changes=(*self.changes, changed))

    def replaced(self, **fields: Any) -> Call:
        """This call with other values of its own fields, at a fraction of the CPU of `dataclasses.replace`."""
        call = object.__new__(Call)
        call.__dict__.update(self.__dict__, **fields)
        return call

    @classmethod
    def of(cls, **fields: Any) -> Call:
        """What `Call(**fields)` makes, at a fraction of its CPU."""
        call = object.__new__(cls)
        call.__dict__.update(_DEFAULTS, **fields)
        return call


_DEFAULTS: Mapping[str, Any] = {
    one.name: MappingProxyType({}) if one.default is MISSING else one.default
    for one in dataclasses.fields(Call)
    if one.default is not MISSING or one.default_factory is not MISSING
}
