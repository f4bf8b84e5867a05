"""The request of one call as plays see it, before it is sent: frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ..compat.requests import longer_bytes
from ..records.attempts import AttemptKind

if TYPE_CHECKING:
    from ..providers import ProviderFacts

_T = TypeVar("_T")

attached: ContextVar[Mapping[type, Any]] = ContextVar("fastlane_attached", default=MappingProxyType({}))
"""Data that the application attaches to the calls of a block, by class: the initial `Call.data`. See `Play.reads`."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request for plays to rewrite. A play returns a new Call, and never changes this one."""

    call_id: str
    endpoint: str
    """The path below the base URL, such as "/chat/completions"."""
    origin: str
    """scheme://host:port of the provider."""
    body: Mapping[str, Any]
    """The JSON body, `extra_body` merged in. Never changed in place: it may be the caller's own mapping."""
    stream: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that plays add to the request. Never contains the caller's headers or credentials."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    facts: ProviderFacts | None = None
    """The facts about the provider; None unless a play needs them (`Play.needs_facts`)."""
    issued_ns: int = 0
    """When the application issued the call: monotonic nanoseconds."""
    placements: tuple[Any, ...] | None = None
    """The declared placement of each message, or of each part of its content: see `fastlane.prompts.Prompt`. None if
    nothing was declared."""
    optional: tuple[str, ...] = ()
    """Fields of the body that plays added. If the provider refuses one, the call is sent again without it.
    "service_tier=flex" names a field and the value that was added; another value may still be sent."""
    refused: frozenset[str] = frozenset()
    """Fields that the provider refused for this model within the last hour. Plays must not add them."""
    unread: bool = False
    """Whether the application reads the bytes of the response itself (`with_streaming_response`). Plays must not."""
    encoded: tuple[Mapping[str, Any], bytes] | None = None
    """A body, and its bytes as JSON: see `written`."""
    upstream: Any = None
    """The upstream that it is sent to: an `engine.upstream_attempt.UpstreamAttempt`. None unless the client has a play
    with `routes` or `may_duplicate`."""
    streams_for: str | None = None
    """The play that needs to see the first token: the engine then streams a call that the caller does not stream."""
    attempt_kind: AttemptKind | None = None
    """The kind of the next attempt, if a play sends the call again; None: "first" or "retry"."""
    timeout_s: float | None = None
    """The read timeout in seconds, if the application has not set any; None: openai's default."""
    max_retries: int | None = None
    """How often openai's rules may retry an attempt; None: the setting of the application."""
    collector: Any = None
    """A function without arguments that returns an `engine.collector.Collecting`, which assembles the streamed answer
    of one attempt for a caller who does not stream. None: the default one, which checks nothing."""
    parser: Any = None
    """openai's `post_parser`, which parses the answer into your classes; None without one."""
    is_helped: bool = False
    """Whether a `.stream()` helper of openai reads the answer, and parses it into classes unknown to the call."""
    fetch: tuple[str, Mapping[str, Any]] | None = None
    """The path below the endpoint and the query of a GET that continues the answer, to be sent in place of the call;
    None: the call itself."""
    caller: Any = None
    """The client that makes the call: an `engine.client_state.Caller`."""
    data: Mapping[type, Any] = field(default_factory=dict)
    """Data that the application attached to the call or that plays added, by class: see `get` and `with_data`.
    A `RecordSection` becomes part of the record."""

    @property
    def model(self) -> str | None:
        """The requested model; None if the body names none."""
        model = self.body.get("model")
        return model if isinstance(model, str) else None

    @property
    def written(self) -> bytes | None:
        """The bytes of the body as JSON; None if they have not been written yet."""
        encoded = self.encoded
        return encoded[1] if encoded is not None and encoded[0] is self.body else None

    def get(self, kind: type[_T]) -> _T | None:
        """Return the attached data of this class; None if there is none."""
        return self.data.get(kind)

    def with_data(self, *added: Any) -> Call:
        """Return this call with data added; it replaces data of the same class."""
        return self.replaced(data={**self.data, **{type(one): one for one in added}})

    def with_body(self, changed: str, /, **fields: Any) -> Call:
        """Return this call with `fields` set in its body. `changed` describes the change in the record."""
        return self.with_fields(fields, (changed,))

    def with_fields(self, fields: Mapping[str, Any], changes: Iterable[str], optional: Iterable[str] = ()) -> Call:
        """Return this call with `fields` set in its body, as `with_body` does.

        `optional`: those that the call is sent again without if the provider refuses them.
        """
        body, written = {**self.body, **fields}, self.written
        if written is not None and len(body) == len(self.body) + len(fields):
            written = longer_bytes(written, fields)
        else:
            written = None
        return self.replaced(
            body=body,
            encoded=None if written is None else (body, written),
            changes=(*self.changes, *changes),
            optional=(*self.optional, *optional),
        )

    def replaced(self, **fields: Any) -> Call:
        """Return this call with other values of its fields, as `dataclasses.replace` at a fraction of the CPU time."""
        return _made({**self.__dict__, **fields})

    @classmethod
    def of(cls, **fields: Any) -> Call:
        """Make a call, as `Call(**fields)` at a fraction of the CPU time."""
        return _made(fields)


def _made(fields: dict[str, Any]) -> Call:
    call = object.__new__(Call)
    object.__setattr__(call, "__dict__", fields)
    return call


# `Call.of` leaves out fields with a default, which are then read from the class, as dataclasses do with all but these.
Call.headers = MappingProxyType({})
Call.data = MappingProxyType({})
